"""What the fields of every network must be."""

from typing import Any

from largevocab.errors import UserError


def check_sizes(model: Any, *sizes: str) -> None:
  """Sizes are positive.

  Raises:
    UserError: names the key.
  """
  for name in sizes:
    if getattr(model, name) < 1:
      raise UserError(f"model.{name} is {getattr(model, name)}; it must be at least 1")


def check_fields(model: Any, *sizes: str) -> None:
  """Sizes are positive, dropout is a probability below 1, dtype, if there is
  one, is one that we compute.

  Raises:
    UserError: names the key.
  """
  check_sizes(model, *sizes)
  if not 0 <= model.dropout < 1:
    raise UserError(f"model.dropout is {model.dropout}; it must be in [0, 1)")
  if getattr(model, "dtype", "float32") not in ("float32", "bfloat16"):
    raise UserError(f"model.dtype is {model.dtype!r}; use 'float32' or 'bfloat16'")
