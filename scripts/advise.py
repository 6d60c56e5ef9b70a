"""`python -m largevocab.tools.advise`, where the rest of its help is."""

import sys

from largevocab.tools import advise

if __name__ == "__main__":
  sys.exit(advise.cli())
