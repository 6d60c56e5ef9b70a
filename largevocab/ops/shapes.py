"""Shape checks by the letters in array names: `h_ND` has axes N and D."""

import jax


def check_shapes(**arrays: jax.Array) -> dict[str, int]:
  """Checks that arrays agree with the shape letters of their names and each other.

  The part of a name after its last underscore holds one letter per axis. A letter
  that appears twice must have the same size both times.

  Args:
    **arrays: arrays named like `h_ND` or `ids_NP`; a scalar has no suffix.

  Returns:
    The size of each letter.

  Raises:
    ValueError: a rank or a size disagrees; the message names both arrays.

  >>> import numpy as np
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
    if len(letters) != array.ndim:
      raise ValueError(
        f"{name} has shape {array.shape}, but its name asks for {len(letters)} axes"
      )
    for letter, size in zip(letters, array.shape, strict=True):
      if sizes.setdefault(letter, size) != size:
        raise ValueError(
          f"{name} has shape {array.shape}, but {letter} = {sizes[letter]} in "
          f"{owner[letter]}"
        )
      owner.setdefault(letter, name)
  return sizes
