"""`python -m largevocab.bench`; see `largevocab.bench.command`."""

import sys

from largevocab.bench.command import cli

if __name__ == "__main__":
  sys.exit(cli())
