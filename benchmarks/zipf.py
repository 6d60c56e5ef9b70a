"""Class ids and counts of a Zipf distribution, the input of most benchmarks."""

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.labels import Counts, Targets, single_targets


def zipf_ids(num: int, num_classes: int, seed: int = 0) -> jax.Array:
  """Random class ids, with P(rank r) about proportional to 1 / r."""
  u = np.random.default_rng(seed).random(num)
  ids = np.exp(u * np.log(num_classes + 1)).astype(np.int64) - 1
  return jnp.asarray(ids.clip(max=num_classes - 1), jnp.int32)


def zipf_batch(
  num: int, num_classes: int, dim: int
) -> tuple[jax.Array, Targets, jax.Array]:
  """Random activations f32[num, dim], labels as in `zipf_ids`, and a key for draws."""
  h_ND = jax.random.normal(jax.random.key(1), (num, dim))
  return h_ND, single_targets(zipf_ids(num, num_classes)), jax.random.key(2)


def zipf_counts(num_classes: int) -> Counts:
  """Counts in proportion to the distribution of `zipf_ids`."""
  ranks = np.arange(1, num_classes + 1)
  return Counts(np.ceil(1e8 * np.log1p(1 / ranks)).astype(np.int64))
