"""Runs `python -m largevocab.tools.advise`; see there for help."""

import sys

from largevocab.tools import advise

if __name__ == "__main__":
  sys.exit(advise.cli())
