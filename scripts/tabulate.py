"""Runs `python -m largevocab.tools.tabulate`; see there for help."""

import sys

from largevocab.tools import tabulate

if __name__ == "__main__":
  sys.exit(tabulate.cli())
