"""Runs `python -m largevocab.tools.run_sweep`; see there for help."""

import sys

from largevocab.tools import run_sweep

if __name__ == "__main__":
  sys.exit(run_sweep.cli())
