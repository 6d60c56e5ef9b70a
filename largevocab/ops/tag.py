"""A tag leaf on gradients that hold ids, to detect what was done leaf by leaf.

The tag is a certain integer. Adding gradients with `jax.tree.map(jnp.add, a, b)` would
add their ids as well, and so refer to other classes; the tags then add up to another
number. Signs, squares and bounds of integers change the tag too. Scaling leaf by leaf
makes the ids non-integers. A gradient that was zeroed leaf by leaf, to skip a step
whose loss is not finite, has the tag 0, and is one of no row.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largevocab.errors import UserError

TAG = np.int32(1_000_003)
_CHANGED = np.int32(-1)


def is_valid(ids: jax.Array, tag: ArrayLike) -> bool | jax.Array:
  """Whether ids are unchanged, or the gradient was zeroed: True, or bool[] if the tag
  is traced.

  Raises:
    UserError: ids were changed; if the tag is traced, only for ids of a float type.

  >>> is_valid(jnp.array([3, 5]), TAG), is_valid(jnp.array([0, 0]), 0)
  (True, True)
  """
  if not jnp.issubdtype(ids.dtype, jnp.integer):
    raise UserError(
      f"the ids of a gradient are {ids.dtype}: it was scaled with its ids; give "
      "`weights` to largevocab.accumulate, or `scale` to update"
    )
  if isinstance(tag, jax.core.Tracer):
    return jnp.all(tag == TAG) | _is_zeroed(tag)
  if np.any(np.asarray(tag) != TAG) and not _is_zeroed(tag):
    raise UserError(
      "a gradient was changed leaf by leaf, and with it its ids: add gradients by "
      "largevocab.accumulate([a, b]), and change only leaves of floats"
    )
  return True


def _is_zeroed(tag: ArrayLike) -> jax.Array:
  return jnp.all(jnp.asarray(tag) == 0)


def valid(
  ids: jax.Array, tag: ArrayLike, values: jax.Array, padding: int
) -> tuple[jax.Array, jax.Array]:
  """Ids and values of a gradient, if its ids are unchanged. If it was zeroed, ids from
  `padding` on; if the tag is traced and ids were changed, valid ids and NaN.

  Raises:
    UserError: see `is_valid`.

  >>> valid(jnp.array([0, 0]), 0, jnp.zeros(2), padding=9)[0].tolist()
  [9, 10]
  """
  is_right = is_valid(ids, tag)
  if not isinstance(tag, jax.core.Tracer) and np.all(np.asarray(tag) == TAG):
    return ids, values
  # Sums of ids may all be outside the table, so valid ids are used instead.
  other = jnp.arange(ids.size, dtype=ids.dtype).reshape(ids.shape)
  other = jnp.where(_is_zeroed(tag), padding + other, other)
  is_whole = jnp.all(jnp.asarray(tag) == TAG)
  return jnp.where(is_whole, ids, other), jnp.where(is_right, values, jnp.nan)


def joined(ids: Sequence[jax.Array], tags: Sequence[ArrayLike]) -> ArrayLike:
  """The tag of several concatenated gradients: invalid if one of them is invalid.

  >>> int(joined([jnp.array([3]), jnp.array([5])], [TAG, TAG]))
  1000003
  """
  are_valid = [is_valid(i, tag) for i, tag in zip(ids, tags, strict=True)]
  if all(each is True for each in are_valid):
    return TAG
  return jnp.where(jnp.all(jnp.array(are_valid)), TAG, _CHANGED)
