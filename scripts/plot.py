"""`python -m largevocab.tools.plot`, where the rest of its help is."""

import sys

from largevocab.tools import plot

if __name__ == "__main__":
  sys.exit(plot.cli())
