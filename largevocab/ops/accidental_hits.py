"""Accidental hits: masks for drawn classes that are true classes or repetitions."""

import jax
import jax.numpy as jnp

# Replaces log 0: finite, so that gradients through it are zero and never NaN.
LOG_ZERO = -1e30
_SEARCHED = 32  # size of a set from which binary search is faster than comparison


def is_member(ids_NM: jax.Array, set_NS: jax.Array) -> jax.Array:
  """Whether each id is in its row's set: bool[N, M]; either may have one row for all.

  Cost: O(N M S). For larger sets, O((S + N M) log S) if all rows share one set, and
    O(N (S + M) log S) if each row has its own.

  >>> is_member(jnp.array([[1, 2, 3]]), jnp.array([[2], [3]])).tolist()
  [[False, True, False], [False, False, True]]
  """
  if set_NS.shape[1] > _SEARCHED:
    sorted_NS = jnp.sort(set_NS, axis=1)
    is_in = lambda sorted_S, ids: (
      sorted_S.at[jnp.searchsorted(sorted_S, ids)].get(mode="clip") == ids
    )
    if len(set_NS) == 1:
      return is_in(sorted_NS[0], ids_NM)
    N = len(set_NS)
    return jax.vmap(is_in)(sorted_NS, jnp.broadcast_to(ids_NM, (N, ids_NM.shape[1])))
  return jnp.any(ids_NM[:, :, None] == set_NS[:, None, :], axis=-1)


def accidental_hits(drawn: jax.Array, ids_NP: jax.Array) -> jax.Array:
  """Which drawn classes are true classes of an example: bool[N, M].

  Args:
    drawn: i32[M], of the batch, or i32[N, M], of each example: `Draw.ids`.
    ids_NP: i32[N, P], the true classes: `Targets.ids_NP`.

  Cost: as for `is_member`.

  >>> accidental_hits(jnp.array([3, 1]), jnp.array([[1], [0]])).tolist()
  [[False, True], [False, False]]
  """
  return is_member(jnp.atleast_2d(drawn), ids_NP)


def is_first(ids_NP: jax.Array) -> jax.Array:
  """Whether each entry is its id's first occurrence in the row: bool[N, P].

  Cost: O(N P^2); for many entries O(N P log P), by sorting.

  >>> is_first(jnp.array([[4, 4, 1]])).tolist()
  [[True, False, True]]
  """
  num = ids_NP.shape[1]
  if num > _SEARCHED:
    order_NP = jnp.argsort(ids_NP, axis=1, stable=True)
    sorted_NP = jnp.take_along_axis(ids_NP, order_NP, axis=1)
    new_NP = sorted_NP[:, 1:] != sorted_NP[:, :-1]
    new_NP = jnp.pad(new_NP, ((0, 0), (1, 0)), constant_values=True)
    return jnp.put_along_axis(new_NP, order_NP, new_NP, axis=1, inplace=False)
  earlier_PP = jnp.tril(jnp.ones((num, num), bool), -1)
  same_NPP = ids_NP[:, :, None] == ids_NP[:, None, :]
  return ~jnp.any(same_NPP & earlier_PP[None], axis=-1)
