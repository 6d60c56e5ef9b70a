"""What a compiled program depends on of its arguments."""

from typing import Any

import jax


def kinds(tree: Any) -> Any:
  """Structure, and of each leaf shape, type and whether the type is weak: where these
  stay the same from step to step, nothing is compiled anew."""
  leaves, structure = jax.tree.flatten(tree)
  of_each = [jax.typeof(x) if isinstance(x, jax.Array) else x for x in leaves]
  return structure, [(x.shape, x.dtype, x.weak_type) for x in of_each]
