"""A tag leaf on gradients that hold ids, to detect leaf-by-leaf operations.

The tag is a certain integer. Adding gradients with `jax.tree.map(jnp.add, a, b)` would
add their ids as well, and so refer to other classes; the tags then add up to another
number. Signs, squares and bounds of integers change the tag too. Scaling leaf by leaf
makes the ids non-integers. A gradient that was zeroed leaf by leaf, to skip a step
whose loss is not finite, has the tag 0 and only zeros, and counts as one without rows.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largevocab.errors import UserError

TAG = np.int32(1_000_003)
_CHANGED = np.int32(-1)


def is_valid(ids: jax.Array, tag: ArrayLike, values: Any) -> bool | jax.Array:
  """Whether ids are unchanged, or the gradient was zeroed.

  The result is True, or bool[] if the tag is traced, or if it is 0 and values are
  traced.

  Args:
    ids: ids of the gradient.
    tag: tag of the gradient.
    values: other leaves of the gradient, all 0 if it was zeroed.

  Raises:
    UserError: ids were changed; if that depends on traced values, only for ids of a
      float type.

  >>> is_valid(jnp.array([3, 5]), TAG, jnp.ones(2))
  True
  >>> is_valid(jnp.array([0, 0]), 0, jnp.zeros(2))
  True
  """
  if not jnp.issubdtype(ids.dtype, jnp.integer):
    raise UserError(
      f"the ids of a gradient are {ids.dtype}, since it was scaled with its ids: pass "
      "`weights` to largevocab.accumulate, or `scale` to update"
    )
  if isinstance(tag, jax.core.Tracer):
    return jnp.all(tag == TAG) | (jnp.all(tag == 0) & _all_zero(values))
  tag = np.asarray(tag)
  if np.all(tag == TAG):
    return True
  is_zeroed: Any = np.all(tag == 0)
  if is_zeroed:
    is_zeroed = _all_zero(values)
    if isinstance(is_zeroed, jax.core.Tracer):
      return is_zeroed
  if not is_zeroed:
    raise UserError(
      "a gradient was changed leaf by leaf, including its ids: add gradients with "
      "largevocab.accumulate([a, b]), and change only leaves of floats"
    )
  return True


def _all_zero(values: Any) -> Any:
  leaves = jax.tree.leaves(values)
  if not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
    return all(not np.any(np.asarray(leaf)) for leaf in leaves)
  return jnp.all(jnp.array([jnp.all(leaf == 0) for leaf in leaves]))


def valid(
  ids: jax.Array, tag: ArrayLike, values: jax.Array, padding: int
) -> tuple[jax.Array, jax.Array]:
  """Ids and values of a gradient, if its ids are unchanged.

  If it was zeroed, ids start at `padding`. If the tag is traced and ids were changed,
  the result has valid ids and NaN.

  Raises:
    UserError: see `is_valid`.

  >>> valid(jnp.array([0, 0]), 0, jnp.zeros(2), padding=9)[0].tolist()
  [9, 10]
  """
  is_right = is_valid(ids, tag, values)
  if not isinstance(tag, jax.core.Tracer) and np.all(np.asarray(tag) == TAG):
    return ids, values
  # Sums of ids may all be outside the table, so valid ids are used instead.
  other = jnp.arange(ids.size, dtype=ids.dtype).reshape(ids.shape)
  other = jnp.where(is_right, padding + other, other)
  is_whole = jnp.all(jnp.asarray(tag) == TAG)
  return jnp.where(is_whole, ids, other), jnp.where(is_right, values, jnp.nan)


def joined(
  ids: Sequence[jax.Array], tags: Sequence[ArrayLike], values: Sequence[Any]
) -> ArrayLike:
  """The tag of several concatenated gradients: invalid if one of them is invalid.

  >>> int(joined([jnp.array([3]), jnp.array([5])], [TAG, TAG], [jnp.ones(1)] * 2))
  1000003
  """
  are_valid = [is_valid(*each) for each in zip(ids, tags, values, strict=True)]
  if all(each is True for each in are_valid):
    return TAG
  return jnp.where(jnp.all(jnp.array(are_valid)), TAG, _CHANGED)
