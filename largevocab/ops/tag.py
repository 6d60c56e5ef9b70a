"""A tag leaf on gradients that hold ids, to detect sums made leaf by leaf.

The tag is the integer 1. Adding gradients with `jax.tree.map(jnp.add, a, b)` would add
their ids as well, and so refer to other classes; the tags then add up to 2. Scaling
leaf by leaf makes the ids non-integers.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largevocab.errors import UserError

TAG = np.int32(1)


def is_whole(ids: jax.Array, tag: ArrayLike) -> bool | jax.Array:
  """Whether ids are unchanged: True, or bool[] if the tag is traced.

  Raises:
    UserError: they were changed; if the tag is traced, only for ids of a float type.

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
  """The tag of several concatenated gradients: invalid if one of them is invalid.

  >>> int(joined([jnp.array([3]), jnp.array([5])], [TAG, TAG]))
  1
  """
  are_whole = [is_whole(i, tag) for i, tag in zip(ids, tags, strict=True)]
  if all(whole is True for whole in are_whole):
    return TAG
  return jnp.all(jnp.array(are_whole)).astype(TAG.dtype)
