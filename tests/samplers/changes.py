"""Changes of rows, in the form that `Sampler.update` takes."""

import jax
import jax.numpy as jnp


def change_rows(sampler, stats, w_VD, steps, rows, *, keep=0.0, size=1.0, seed=1):
  """Statistics and table after consecutive updates of a few random rows, some ids being
  padding, and the ids i32[T, R].

  A row becomes `keep` times the old one, and normal numbers of this size.
  """

  def step(carry, key):
    stats, w_VD = carry
    k_ids, k_rows = jax.random.split(key)
    ids_R = jax.random.permutation(k_ids, len(w_VD) + 3)[:rows]
    old_RD = w_VD.at[ids_R].get(mode="clip")
    new_RD = keep * old_RD + size * jax.random.normal(k_rows, old_RD.shape)
    w_VD = w_VD.at[ids_R].set(new_RD, mode="drop")
    return (sampler.update(stats, w_VD, ids_R, old_RD, new_RD), w_VD), ids_R

  keys = jax.random.split(jax.random.key(seed), steps)
  run = jax.jit(lambda carry: jax.lax.scan(step, carry, keys))
  (stats, w_VD), ids_TR = run((stats, w_VD))
  return stats, w_VD, ids_TR


def rows_of_batch(ids_N, num_classes):
  """The distinct labels of a batch, with padding: ids i32[N]."""
  ids_R = jnp.sort(ids_N)
  again_R = jnp.pad(ids_R[1:] == ids_R[:-1], (1, 0))
  return jnp.where(again_R, num_classes + jnp.arange(len(ids_R)), ids_R)
