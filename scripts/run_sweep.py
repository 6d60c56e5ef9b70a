"""`python -m largevocab.tools.run_sweep`, where the rest of its help is."""

import sys

from largevocab.tools import run_sweep

if __name__ == "__main__":
  sys.exit(run_sweep.cli())
