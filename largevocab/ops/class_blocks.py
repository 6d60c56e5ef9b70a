"""Blocks of classes, which are sharded over devices: where the row of a class is.

Here B is the number of blocks, and C the number of devices.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.errors import UserError
from largevocab.labels import is_class


@jax.tree_util.register_static
@dataclass(frozen=True)
class Blocks:
  """V classes in B blocks of ceil(V / B) rows each; a device has B / C of them.

  Class c is row c // B of block c % B, so that blocks have equally many frequent
  classes if ids are ordered by count. Blocks, and not devices, are part of a model, so
  that the model is the same on any number of devices that divides B.

  Attributes:
    num_classes: V.
    num: B.
  """

  num_classes: int
  num: int = 1

  @property
  def size(self) -> int:
    """Rows of a block. The last row is unused in some blocks if B does not divide V."""
    return -(-self.num_classes // self.num)

  @property
  def num_rows(self) -> int:
    """Rows of the whole table, including unused ones."""
    return self.num * self.size

  def row(self, ids: jax.Array) -> jax.Array:
    """The row of each class; `num_rows` for ids outside 0 ... V - 1.

    >>> Blocks(5, 2).row(jnp.arange(6)).tolist()
    [0, 3, 1, 4, 2, 6]
    """
    row = ids % self.num * self.size + ids // self.num
    return jnp.where(is_class(ids, self.num_classes), row, self.num_rows)

  def class_of(self, row: jax.Array) -> jax.Array:
    """The class of each row; at least V for unused rows.

    >>> Blocks(5, 2).class_of(jnp.arange(6)).tolist()
    [0, 2, 4, 1, 3, 5]
    """
    return row % self.size * self.num + row // self.size

  def classes(self, block: int) -> np.ndarray:
    """The classes of a block, without unused rows.

    >>> Blocks(5, 2).classes(1).tolist()
    [1, 3]
    """
    return np.arange(block, self.num_classes, self.num)


def check_devices(num_blocks: int, num_devices: int) -> None:
  """Checks that all devices have equally many blocks.

  >>> check_devices(8, 3)
  Traceback (most recent call last):
  ...
  largevocab.errors.UserError: mesh.blocks is 8, which is not a multiple of the number \
of devices, 3: set mesh.blocks to 6 or 9, or mesh.num to 2
  """
  B, C = num_blocks, num_devices
  if B < 1:
    raise UserError(f"mesh.blocks is {B}: set it to {C}, or a multiple of that")
  if B % C == 0:
    return
  near = sorted({max(B // C * C, C), (B // C + 1) * C})
  fewer = max(c for c in range(1, C) if B % c == 0)
  # All devices take part if there are several processes.
  other = "" if jax.process_count() > 1 else f", or mesh.num to {fewer}"
  raise UserError(
    f"mesh.blocks is {B}, which is not a multiple of the number of devices, {C}: set "
    f"mesh.blocks to {' or '.join(map(str, near))}{other}"
  )
