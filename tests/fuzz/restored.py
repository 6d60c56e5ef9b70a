"""Prints the step of the state that a run goes on from, and a digest of all of it.

python tests/fuzz/restored.py WORKDIR
"""

import hashlib
import json
import sys

import jax
import numpy as np

from largevocab import config
from largevocab.training import console
from largevocab.training.state import restore


def main(argv: list[str]) -> None:
  exp = config.build(config.of_workdir(argv[1]))
  _, state = restore(exp, argv[1], "latest")
  digest = hashlib.sha256()
  for leaf in jax.tree.leaves(state):
    is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    digest.update(np.asarray(jax.random.key_data(leaf) if is_key else leaf).tobytes())
  print(json.dumps({"step": int(state.step), "digest": digest.hexdigest()}))


if __name__ == "__main__":
  sys.exit(console.run(lambda: main(sys.argv)))
