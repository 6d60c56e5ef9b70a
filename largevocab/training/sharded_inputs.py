"""Inputs on several devices, each of which holds some of the rows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh
from jax.typing import ArrayLike

from largevocab.data.batches import FeatureBag
from largevocab.ops import shards
from largevocab.ops.class_blocks import Blocks
from largevocab.ops.shards import SPLIT, WHOLE
from largevocab.rows import DeviceGrads, Table
from largevocab.training.inputs import Inputs

PyTree = Any


class DividedTable(NamedTuple):
  """A table of input rows that is sharded over devices.

  Attributes:
    blocks: the blocks of input ids; static.
    rows: the rows of all devices, in order of their blocks, including unused rows.
  """

  blocks: Blocks
  rows: Table


@dataclass(frozen=True)
class ShardedInputs:
  """`Inputs` whose rows and optimiser states are sharded over the devices of a mesh.

  Each device gathers the ids of the batch and looks up the rows that it holds or, for a
  bag, their weighted sum. The sums over devices are the inputs, sharded by examples.
  The gradient of the inputs is gathered, and each device updates its own rows. Rows of
  the table are never sent. As with classes, the blocks are part of the model and the
  devices are not.

  Attributes:
    inputs: the inputs as for one device.
    mesh: a mesh whose only axis is `shards.AXIS`.
    num_blocks: number of blocks of ids, a multiple of the number of devices.

  Cost: that of `Inputs` for all examples, on each device. For C devices and B examples,
    each device sends (C - 1) / C times B T E numbers for the inputs and as many for
    their gradient, besides B T ids; for bags, where T is 1, it sends B F ids and
    values.

  >>> import numpy as np
  >>> from largevocab.rows import SGD
  >>> mesh = Mesh(np.array(jax.devices()[:1]), (shards.AXIS,))
  >>> inputs = ShardedInputs(Inputs(SGD(), width=4), mesh, num_blocks=2)
  >>> table = inputs.init(jax.random.key(0), num_inputs=5)
  >>> table.rows.w_VD.shape  # two blocks of three rows, one of them unused
  (6, 4)
  >>> inputs.look_up(table, jnp.array([[0, 4, 5]]))[0].any(axis=1).tolist()
  [True, True, False]
  """

  inputs: Inputs
  mesh: Mesh
  num_blocks: int

  def init(self, key: jax.Array, num_inputs: int) -> DividedTable | None:
    """Makes the initial table; no device or process holds more than its part.

    The rows of a block depend only on the block's number.
    """
    if not num_inputs:
      return None
    blocks = Blocks(num_inputs, self.num_blocks)

    def local(key):
      rows_of = lambda number: self.inputs.initial_rows(
        jax.random.fold_in(key, number), blocks.size
      )
      w_BSE = lax.map(rows_of, shards.blocks_here())
      return self.inputs.optimizer.init(w_BSE.reshape(-1, w_BSE.shape[-1]))

    make = jax.jit(self._on_each(blocks, local, (WHOLE,), self._places))
    return DividedTable(blocks, make(key))

  def look_up(self, table: DividedTable | None, x: ArrayLike | FeatureBag) -> jax.Array:
    """As `Inputs.look_up`, sharded by examples."""
    if table is None:
      return self.inputs.look_up(None, x)
    places = self._places, SPLIT
    run = self._on_each(table.blocks, self.inputs.look_up, places, SPLIT)
    num_examples = len(jax.tree.leaves(x)[0])
    return run(table.rows, self._even(x, table))[:num_examples]

  def gradient(
    self, table: DividedTable | None, x: ArrayLike | FeatureBag, g_BTE: jax.Array
  ) -> DeviceGrads | None:
    """The gradient of the table; each device holds the part of its own rows."""
    if table is None:
      return None

    def local(rows, x, g_BTE):
      grads = self.inputs.gradient(rows, x, g_BTE)
      return shards.add_device_axis(grads)

    run = self._on_each(table.blocks, local, (self._places, SPLIT, SPLIT), SPLIT)
    parts = run(table.rows, self._even(x, table), self._even(g_BTE, table))
    return DeviceGrads(parts, self.mesh)

  def update(
    self,
    table: DividedTable | None,
    grads: DeviceGrads | None,
    lr: ArrayLike,
    scale: ArrayLike,
  ) -> DividedTable | None:
    """The table after a step with scale * grads at learning rate lr."""
    if table is None or grads is None:
      return None

    def local(rows, grads, lr, scale):
      grads = shards.drop_device_axis(grads)
      return self.inputs.update(rows, grads, lr, scale)

    places = (self._places, SPLIT, WHOLE, WHOLE)
    run = self._on_each(table.blocks, local, places, self._places)
    rows = run(table.rows, grads.parts, jnp.asarray(lr), jnp.asarray(scale))
    return table._replace(rows=rows)

  @property
  def _places(self) -> Table:
    """The placement of each array of a table: all but scalars are sharded by rows."""
    row = jax.ShapeDtypeStruct((1, self.inputs.width), jnp.float32)
    table = jax.eval_shape(self.inputs.optimizer.init, row)
    return jax.tree.map(lambda leaf: SPLIT if leaf.ndim else WHOLE, table)

  def _on_each(self, blocks: Blocks, local: Callable, places: Any, result: Any) -> Any:
    return shards.on_each_device(local, self.mesh, blocks, places, result)

  def _even(self, batch: PyTree, table: DividedTable) -> PyTree:
    """Pads arrays of examples so that all devices have the same number of examples."""
    missing = table.blocks.num_classes

    def padded(x):
      fill = -len(x) % self.mesh.size
      is_ids = jnp.issubdtype(x.dtype, jnp.integer)
      widths = [(0, fill)] + [(0, 0)] * (x.ndim - 1)
      return jnp.pad(x, widths, constant_values=missing if is_ids else 0) if fill else x

    return jax.tree.map(padded, jax.tree.map(jnp.asarray, batch))
