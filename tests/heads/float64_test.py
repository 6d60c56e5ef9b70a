"""With `jax_enable_x64` default types are wider: every head and every sampler trains,
evaluates and is monitored all the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import config, single_targets
from largevocab.labels import Counts
from largevocab.samplers import QuadraticPrior
from tests.long import others_long

V, D, N = 40, 8, 6
COUNTS = Counts(np.arange(2 * V, V, -1), np.arange(V))
PATHS = [
  path
  for path in config.head_paths()
  if "/" not in path or path.partition("/")[0] in ("sampled", "spherical")
]
# Heads that are not of samplers, and samplers without and with integers of their own.
FIRST = (
  *("full", "adaptive", "hierarchical", "huffman"),
  *("sampled/pps", "sampled/lsh_embedding"),
)
WIDE = ("full", "sampled/pps")  # activations too


@pytest.mark.parametrize(
  ("path", "dtype"),
  others_long(
    [(path, dtype) for path in PATHS for dtype in ("float32", "float64")],
    [(path, "float32") for path in FIRST] + [(path, "float64") for path in WIDE],
  ),
)
def test_everything_runs_with_wider_default_types(path, dtype):
  fields = {"num_samples": 8, "loss": {"corrected": not path.endswith(("top_k", "ce"))}}
  head = config.head(path, **fields)
  y = single_targets(np.arange(N))

  def train(state, dtype):
    h_ND = jnp.asarray(np.sin(np.arange(N * D).reshape(N, D)), dtype)
    step = jax.jit(head.backward)(state, h_ND, y, jax.random.key(1))
    return h_ND, step, jax.jit(head.update)(state, step.grads, 0.1, 1.0)

  with jax.enable_x64(True):
    initial = head.init(jax.random.key(0), COUNTS, D)
    h_ND, step, state = train(initial, dtype)
    read = jax.jit(head.evaluate)(state, h_ND, y)
    monitored = jax.jit(head.monitor)(state, h_ND, y, jax.random.key(2))
    _, best_NK = jax.jit(head.top_k, static_argnums=2)(state, h_ND, 3)
  assert step.dh_ND.dtype == dtype
  for x in (step.loss, step.sq_norm, step.dh_ND, *read.values(), best_NK):
    assert np.isfinite(x).all()
  assert not any(np.isnan(x).any() for x in monitored.values())
  if not path.startswith("sampled"):  # draws are others
    initial = jax.tree.map(lambda x: jnp.asarray(np.asarray(x)), initial)
    _, narrow, after = train(initial, "float32")
    got, want = (step.loss, step.dh_ND, state), (narrow.loss, narrow.dh_ND, after)
    for x, z in zip(*map(jax.tree.leaves, (got, want)), strict=True):
      np.testing.assert_allclose(x, z, rtol=1e-5, atol=1e-6)


def test_kernel_sampler_also_takes_float32_rows():
  sampler, w_VD = QuadraticPrior(), np.ones((V, D), np.float32)
  with jax.enable_x64(True):
    stats = sampler.init(COUNTS, jnp.asarray(w_VD), 4)
    again = sampler.refresh(stats, jnp.asarray(w_VD), jax.random.key(0))
  jax.tree.map(np.testing.assert_array_equal, again, stats)
  narrow = sampler.init(COUNTS, jnp.asarray(w_VD), 4)
  jax.tree.map(np.testing.assert_allclose, narrow, stats)
