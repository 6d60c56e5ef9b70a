"""The shapes of a sharded state, without its arrays."""

import pytest

PROGRAM = """
import jax, numpy as np
from largevocab import config
from largevocab.heads import ShardedHead, class_mesh
from largevocab.labels import Counts
from largevocab.rows import Adagrad

V, D, B = 203, 8, 8  # B does not divide V
counts = Counts((1e4 / np.arange(1, V + 1)).astype(np.int64) + 1)
mesh = class_mesh()
for path in PATHS:
  fields = {"num_samples": 64} if "/" in path else {}
  fields |= {} if path == "spherical" else {"optimizer": Adagrad()}
  inner = config.head(path, **fields)
  head = ShardedHead(inner, mesh, B)
  made = head.init(jax.random.key(0), counts, D)
  abstract = head.abstract_state(counts, D)
  assert jax.tree.structure(made) == jax.tree.structure(abstract), path
  for got, want in zip(*map(jax.tree.leaves, (abstract, made)), strict=True):
    assert (got.shape, got.dtype) == (want.shape, want.dtype), path
    assert got.sharding == want.sharding, path
    assert not isinstance(got, jax.Array), path

# A billion classes, whose rows would fill this machine: counts that memory has once.
head = ShardedHead(config.head("full"), mesh, B)
table = head.abstract_state(Counts(np.broadcast_to(1, 10**9)), 128).parts.table
assert table.w_VD.shape == (10**9, 136)
"""
PATHS = [
  "full",
  "sampled/quadratic_prior",
  "sampled/lsh_embedding",
  "sampled/ivf",
  "spherical",
  "huffman",
  "hierarchical",
  "adaptive",
]


@pytest.mark.long
def test_shapes_and_shardings_equal_those_of_the_initial_state(on_four_devices):
  on_four_devices(f"PATHS = {PATHS!r}" + PROGRAM)
