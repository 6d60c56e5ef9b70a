"""`python -m largevocab.tools.tabulate`, where the rest of its help is."""

import sys

from largevocab.tools import tabulate

if __name__ == "__main__":
  sys.exit(tabulate.cli())
