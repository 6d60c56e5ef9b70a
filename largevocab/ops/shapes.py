"""Shape checks by the letters in array names: `h_ND` has axes N and D."""

import jax
import numpy as np

from largevocab.errors import UserError


def check_shapes(**arrays: jax.Array | np.ndarray) -> dict[str, int]:
  """Checks that arrays agree with the shape letters of their names and each other.

  The part of a name after its last underscore holds one letter per axis. A letter
  that appears twice must have the same size both times.

  Args:
    **arrays: arrays named like `h_ND` or `ids_NP`; a scalar has no suffix.

  Returns:
    The size of each letter.

  Raises:
    UserError: one of them is not an array.
    ValueError: a rank or a size disagrees; the message names both arrays.

  >>> check_shapes(h_ND=np.zeros((3, 2)), w_VD=np.zeros((5, 2)))
  {'N': 3, 'D': 2, 'V': 5}
  >>> check_shapes(h_ND=np.zeros((3, 2)), w_VD=np.zeros((5, 4)))
  Traceback (most recent call last):
  ...
  ValueError: w_VD has shape (5, 4), but D = 2 in h_ND
  """
  sizes: dict[str, int] = {}
  owner: dict[str, str] = {}
  for name, array in arrays.items():
    _, _, letters = name.rpartition("_")
    if not hasattr(array, "ndim"):
      raise UserError(
        f"{name} is of type {type(array).__name__}: pass an array, as from jnp.asarray"
      )
    if len(letters) != array.ndim:
      raise ValueError(
        f"{name} has shape {array.shape}; it must have the axes "
        f"[{', '.join(letters)}]{_flattened(letters, array.shape)}"
      )
    for letter, size in zip(letters, array.shape, strict=True):
      if sizes.setdefault(letter, size) != size:
        raise ValueError(
          f"{name} has shape {array.shape}, but {letter} = {sizes[letter]} in "
          f"{owner[letter]}"
        )
      owner.setdefault(letter, name)
  return sizes


def _flattened(letters: str, shape: tuple[int, ...]) -> str:
  """What to do with the axes of a sequence, which together are those of examples."""
  more = len(shape) - len(letters)
  if more <= 0 or not letters.startswith("N"):
    return ""
  flat = ", ".join(map(str, (-1, *shape[more + 1 :])))
  return f": flatten the first {more + 1}, as reshape({flat}) does"


def check_broadcast(sizes: dict[str, int], **arrays: jax.Array) -> None:
  """Checks that each axis of the arrays has the size of its letter, or 1.

  Args:
    sizes: sizes of the letters, from `check_shapes`.
    **arrays: named as for `check_shapes`.

  Raises:
    ValueError: an axis is missing, or has another size.

  >>> check_broadcast({"N": 3, "M": 2}, log_expected_NM=np.zeros((1, 2)))
  >>> check_broadcast({"N": 3, "M": 2}, log_expected_NM=np.zeros(2))
  Traceback (most recent call last):
  ...
  ValueError: log_expected_NM has shape (2,); it must be (3, 2), where each \
size may also be 1: add axes with [None]
  """
  for name, array in arrays.items():
    _, _, letters = name.rpartition("_")
    shape, full = np.shape(array), tuple(sizes[letter] for letter in letters)
    fits = map(lambda size, want: size in (1, want), shape, full)
    if len(shape) != len(full) or not all(fits):
      raise ValueError(
        f"{name} has shape {shape}; it must be {full}, where each size may also be 1: "
        "add axes with [None]"
      )
