"""The properties of arguments on which a compiled program depends."""

from typing import Any

import jax


def kinds(tree: Any) -> Any:
  """The structure, and the shape, type and weakness of the type of each leaf.

  If these stay the same from step to step, nothing is compiled again.
  """
  leaves, structure = jax.tree.flatten(tree)
  of_each = [jax.typeof(x) if isinstance(x, jax.Array) else x for x in leaves]
  return structure, [(x.shape, x.dtype, x.weak_type) for x in of_each]
