"""A mark on gradients that hold ids, by which a sum made leaf by leaf is found out.

Such a gradient has one more leaf, the integer 1. Gradients that were added with
`jax.tree.map(jnp.add, a, b)` have added their ids as well, which makes them the ids of
other classes; their tags add up to 2. A scaled one has ids that are no integers.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largevocab.errors import UserError

TAG = np.int32(1)
_REMEDY = "use `a + b`, or largevocab.accumulate([a, b])"


def is_whole(ids: jax.Array, tag: ArrayLike) -> bool | jax.Array:
  """Whether ids are still ids: True, or bool[] where the tag is traced.

  Raises:
    UserError: they are not; where the tag is traced, only if they are no integers.

  >>> is_whole(jnp.array([3, 5]), TAG)
  True
  """
  if not jnp.issubdtype(ids.dtype, jnp.integer):
    raise UserError(
      f"the ids of a gradient are {ids.dtype}: it was scaled with its ids; give "
      "`weights` to largevocab.accumulate, or `scale` to update"
    )
  if isinstance(tag, jax.core.Tracer):
    return jnp.all(tag == TAG)
  if np.any(np.asarray(tag) != TAG):
    raise UserError(
      "gradients were added leaf by leaf, and with them ids: use "
      "largevocab.accumulate([a, b])"
    )
  return True


def joined(ids: Sequence[jax.Array], tags: Sequence[ArrayLike]) -> ArrayLike:
  """The tag of several gradients made one: wrong if one of them is wrong.

  >>> int(joined([jnp.array([3]), jnp.array([5])], [TAG, TAG]))
  1
  """
  are_whole = [is_whole(i, tag) for i, tag in zip(ids, tags, strict=True)]
  if all(whole is True for whole in are_whole):
    return TAG
  return jnp.all(jnp.array(are_whole)).astype(TAG.dtype)
