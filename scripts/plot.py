"""Runs `python -m largevocab.tools.plot`; see there for help."""

import sys

from largevocab.tools import plot

if __name__ == "__main__":
  sys.exit(plot.cli())
