"""Arrays that a program makes before it goes on.

Use it for what is read from a table before the table is written. Without it, this may
take a copy of the table.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def together(arrays: Any) -> Any:
  """The arrays of a pytree, none of which is used before all of them are made.

  On a CPU this is a branch: its compiler drops a barrier before it decides where to
  compute what is read much later, as in a loop over parts of the rows.

  >>> together((jnp.ones(2), jnp.int32(3)))[1].item()
  3
  """
  zeros = lambda arrays: jax.tree.map(jnp.zeros_like, arrays)
  is_any = lambda arrays: jnp.stack([jnp.any(x) for x in jax.tree.leaves(arrays)]).any()
  return lax.platform_dependent(
    arrays,
    cpu=lambda arrays: lax.cond(is_any(arrays), lambda x: x, zeros, arrays),
    default=lax.optimization_barrier,
  )
