"""Any head on several devices, each of which keeps some of the class rows.

The letters C, B and n stand for the number of devices, the number of blocks, and the
number of examples of a device, n = N / C.
"""

import functools
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jax.typing import ArrayLike

from largevocab.errors import UserError
from largevocab.heads.base import BLOCKS, ROWS, SUM, WHOLE, Head, HeadStep, check_grads
from largevocab.labels import Counts, Targets, as_counts
from largevocab.ops import shards
from largevocab.ops.activations import check_mesh
from largevocab.ops.class_blocks import Blocks, check_devices
from largevocab.ops.shards import AXIS
from largevocab.rows import DeviceGrads

PyTree = Any


class ShardedState(NamedTuple):
  """State of `ShardedHead`.

  Attributes:
    blocks: blocks of classes. Static.
    parts: the state of the head, whose arrays are sharded over the devices.
  """

  blocks: Blocks
  parts: PyTree


def class_mesh(devices: list[jax.Device] | None = None) -> Mesh:
  """A mesh of these devices, by default all, with the one axis `AXIS`.

  Devices of a process are neighbours, so that its examples are neighbours too.

  >>> class_mesh().axis_names
  ('classes',)
  """
  found = sorted(devices or jax.devices(), key=lambda device: device.process_index)
  return Mesh(np.array(found), (AXIS,))


@dataclass(frozen=True)
class ShardedHead:
  """A head whose class rows are sharded over the devices of a mesh.

  The optimiser states and statistics of the rows are sharded with them.

  A device gathers the activations and labels of the batch, computes with its own rows,
  and combines a few numbers for each example with the other devices. Rows are sent only
  if `class_rows` or a sampler's `queries` ask for those of some classes. What is sent
  thus depends neither on the number of classes nor on the number of candidates.
  Activations and `dh_ND` are sharded by examples; losses and metrics are the same on
  all devices.

  The model depends on the number of blocks, not on the number of devices: losses are
  equal up to rounding, and a state can be restored on any number of devices that
  divides the number of blocks. With one block, the model is that of the head itself.

  Attributes:
    head: the head, as for one device.
    mesh: mesh with one axis, see `class_mesh`.
    num_blocks: B, the number of blocks of classes.

  Raises:
    UserError: the mesh has other axes or Explicit ones, or its number of devices does
      not divide the number of blocks.

  Cost: the head's for V / C classes and N examples; a device sends (C - 1) / C times N
    (D + 1) numbers for activations, N D for their gradient and some N (P + 2) for sums.

  >>> from largevocab.heads import Full
  >>> head = ShardedHead(Full(), class_mesh(jax.devices()[:1]), num_blocks=2)
  >>> state = head.init(jax.random.key(0), [3, 2, 1, 1, 1], 4)
  >>> state.parts.table.w_VD.shape  # two blocks of three rows, one of them unused
  (6, 8)
  >>> head.top_k(state, jnp.ones((1, 4)), 5)[0].sort().tolist()
  [[0, 1, 2, 3, 4]]
  """

  head: Head
  mesh: Mesh
  num_blocks: int

  def __post_init__(self):
    if self.mesh.axis_names != (AXIS,):
      raise UserError(
        f"ShardedHead: the mesh has the axes {self.mesh.axis_names}, but must have "
        f"{AXIS!r} only: pass class_mesh(devices), even beside another mesh of them"
      )
    if self.mesh.axis_types != (AxisType.Auto,):
      raise UserError(
        f"ShardedHead: the axis {AXIS!r} of the mesh is not Auto: pass "
        "class_mesh(devices)"
      )
    check_devices(self.num_blocks, self.mesh.size)

  @property
  def row_sparse(self) -> bool:
    return getattr(self.head, "row_sparse", False)

  @property
  def counts_batches(self) -> bool:
    return getattr(self.head, "counts_batches", False)

  def refreshes(self, step: int) -> bool:
    return self.head.refreshes(step)

  def init(self, key: jax.Array, counts: Counts | ArrayLike, dim: int) -> ShardedState:
    """The initial state, of which no device or process holds more than its part.

    The initial state of a block depends only on the block's number.
    """
    counts, num_devices = as_counts(counts), self.mesh.size
    blocks = Blocks(counts.num_classes, self.num_blocks)
    if blocks.num > blocks.num_classes:
      raise UserError(
        f"mesh.blocks is {blocks.num}, but there are only {blocks.num_classes} "
        f"classes: set it to {blocks.num_classes} or less"
      )
    numbers = np.arange(blocks.num).reshape(num_devices, -1).tolist()
    of_block = self._here.init_blocks(key, counts, dim, blocks)
    parts = []
    for i, device in enumerate(self.mesh.devices):
      if device.process_index == jax.process_index():
        with jax.default_device(device):
          of_device = self._joined_blocks(of_block, blocks, numbers[i])
        parts.append(jax.device_put(of_device, device))
    of_all = {device.process_index for device in self.mesh.devices}
    self._check_equal(parts, with_others=len(of_all) == jax.process_count())

    def assembled(kind, *each):
      if kind == SUM:
        terms = assembled(ROWS, *(x[None] for x in each))
        whole = NamedSharding(self.mesh, shards.WHOLE)
        return jax.jit(lambda x: jnp.sum(x, axis=0), out_shardings=whole)(terms)
      spec, shape = _spec(kind), each[0].shape
      if spec == shards.SPLIT:
        shape = (len(each[0]) * num_devices, *shape[1:])
      place = NamedSharding(self.mesh, spec)
      return jax.make_array_from_single_device_arrays(shape, place, list(each))

    return ShardedState(
      blocks, jax.tree.map(assembled, self.head.sharding(parts[0]), *parts)
    )

  def abstract_state(self, counts: Counts | ArrayLike, dim: int) -> ShardedState:
    """The shapes of the initial state and the places of its parts; makes no arrays.

    Use it to restore a state, or to compile programs for other devices. All blocks are
    assumed to have the sizes of the first.
    """
    counts, B = as_counts(counts), self.num_blocks
    blocks = Blocks(counts.num_classes, B)
    of_block = self._here.init_blocks(jax.random.key(0), counts, dim, blocks)
    with shards.over(blocks):
      block = jax.eval_shape(lambda: of_block(0))
    joined = {
      ROWS: lambda shape: (B * shape[0], *shape[1:]),
      BLOCKS: lambda shape: (B, *shape),
      WHOLE: lambda shape: shape,
      SUM: lambda shape: shape,
    }

    def placed(kind, spec, leaf):
      sharding = NamedSharding(self.mesh, spec)
      return jax.ShapeDtypeStruct(
        joined[kind](leaf.shape), leaf.dtype, sharding=sharding
      )

    parts = jax.tree.map(placed, self.head.sharding(block), self._specs(block), block)
    return ShardedState(blocks, parts)

  def backward(
    self, state: ShardedState, h_ND: jax.Array, y: Targets, key: jax.Array
  ) -> HeadStep:
    def local(parts, h_ND, y, key):
      out = self._here.backward(parts, h_ND, y, key)
      return out._replace(grads=shards.add_device_axis(out.grads))

    split: Any = shards.SPLIT
    whole: Any = shards.WHOLE
    result = HeadStep(loss=whole, dh_ND=split, grads=split, sq_norm=whole)
    out = self._run(local, result, state, *self._even((h_ND, y)), key=key)
    grads = DeviceGrads(out.grads, self.mesh)
    return out._replace(dh_ND=out.dh_ND[: len(h_ND)], grads=grads)

  def add_row_grads(
    self, state: ShardedState, grads: DeviceGrads, ids_R: jax.Array, g_RD: jax.Array
  ) -> tuple[DeviceGrads, jax.Array]:
    """The head's `add_row_grads`, if it has one; each device adds to its own rows."""
    head: Any = self._here

    def local(parts, grads, ids_R, g_RD):
      grads = shards.drop_device_axis(grads)
      grads, sq_norm = head.add_row_grads(parts, grads, ids_R, g_RD)
      return shards.add_device_axis(grads), sq_norm

    looked_up = {"ids_R": jnp.asarray(ids_R), "g_RD": g_RD}
    result = (shards.SPLIT, shards.WHOLE)
    parts, sq_norm = self._run(local, result, state, grads.parts, **looked_up)
    return DeviceGrads(parts, self.mesh), sq_norm

  def update(
    self, state: ShardedState, grads: DeviceGrads, lr: ArrayLike, scale: ArrayLike = 1.0
  ) -> ShardedState:
    check_grads(grads, DeviceGrads)

    def local(parts, grads, lr, scale):
      grads = shards.drop_device_axis(grads)
      return self._here.update(parts, grads, lr, scale)

    rates = {"lr": jnp.asarray(lr), "scale": jnp.asarray(scale)}
    parts = self._run(local, self._specs(state.parts), state, grads.parts, **rates)
    return state._replace(parts=parts)

  def sq_norm(self, state: ShardedState, grads: DeviceGrads) -> jax.Array:
    def local(parts, grads):
      return self._here.sq_norm(parts, shards.drop_device_axis(grads))

    return self._run(local, shards.WHOLE, state, grads.parts)

  def refresh(self, state: ShardedState, key: jax.Array) -> ShardedState:
    parts = self._run(self._here.refresh, self._specs(state.parts), state, key=key)
    return state._replace(parts=parts)

  def evaluate(
    self, state: ShardedState, h_ND: jax.Array, y: Targets
  ) -> dict[str, jax.Array]:
    of_all = self._run(self._here.evaluate, shards.WHOLE, state, *self._even((h_ND, y)))
    return {name: x_N[: len(h_ND)] for name, x_N in of_all.items()}

  def monitor(
    self, state: ShardedState, h_ND: jax.Array, y: Targets, key: jax.Array
  ) -> dict[str, jax.Array]:
    batch = self._even((h_ND, y))
    return self._run(self._here.monitor, shards.WHOLE, state, *batch, key=key)

  def top_k(
    self, state: ShardedState, h_ND: jax.Array, k: int
  ) -> tuple[jax.Array, jax.Array]:
    def local(parts, h_ND):
      return self._here.top_k(parts, shards.all_examples(h_ND), k)

    best = self._run(local, shards.WHOLE, state, *self._even((h_ND,)))
    return jax.tree.map(lambda x_NK: x_NK[: len(h_ND)], best)

  def class_rows(self, state: ShardedState, ids_R: jax.Array) -> jax.Array:
    ids_R = jnp.asarray(ids_R)
    return self._run(self._here.class_rows, shards.WHOLE, state, ids_R=ids_R)

  @functools.cached_property
  def _here(self) -> Head:
    """The head as it computes on each device."""
    return self.head.in_blocks()

  def _run(
    self,
    local: Callable,
    result: PyTree,
    state: ShardedState,
    *split: Any,
    **whole: Any,
  ) -> Any:
    """Calls `local` on every device.

    A device gets its part of the state, an equal part of each of `split` along the
    first axis, and all of `whole`.
    """

    mapped = shards.on_each_device(
      lambda parts, split, whole: local(parts, *split, **whole),
      *(self.mesh, state.blocks),
      (self._specs(state.parts), shards.SPLIT, shards.WHOLE),
      result,
    )
    return mapped(state.parts, split, whole)

  def _specs(self, parts: PyTree) -> PyTree:
    """How each leaf of the head's state is sharded."""
    return jax.tree.map(_spec, self.head.sharding(parts))

  def _even(self, batch: PyTree) -> PyTree:
    """Pads a batch with examples of weight 0, so that devices have equally many.

    Draws have the shape of the batch, which must not depend on the number of devices.
    """
    jax.tree.map(check_mesh, batch)
    fill = -len(jax.tree.leaves(batch)[0]) % self.num_blocks
    pad = lambda x: jnp.pad(x, [(0, fill)] + [(0, 0)] * (jnp.ndim(x) - 1))
    return jax.tree.map(pad, batch) if fill else batch

  def _joined_blocks(
    self, of_block: Callable[[int], PyTree], blocks: Blocks, numbers: list[int]
  ) -> PyTree:
    """The part of a state that has these blocks."""
    with shards.over(blocks):
      states = [of_block(b) for b in numbers]
    self._check_equal(states)
    join: dict[str, Callable] = {ROWS: jnp.concatenate, BLOCKS: jnp.stack, SUM: sum}
    join[WHOLE] = lambda each: each[0]
    kinds, structure = jax.tree.flatten(self.head.sharding(states[0]))
    each_of = [structure.flatten_up_to(state) for state in states]
    states.clear()  # so that a leaf of the blocks is freed as soon as it is joined
    joined = (join[kind]([leaves.pop(0) for leaves in each_of]) for kind in kinds)
    return structure.unflatten(joined)

  def _check_equal(self, states: list[PyTree], with_others: bool = False) -> None:
    """Checks that arrays of states have the same shapes.

    With `with_others`, the states include those of other processes, which then call
    this method too.

    Raises:
      UserError: their shapes differ.
    """
    shapes = [repr(jax.tree.map(jnp.shape, state)).encode() for state in states]
    digests = [zlib.crc32(shape) for shape in shapes]
    if with_others:
      digests += _of_all_processes(digests[0])
    if len(set(digests)) > 1:
      raise UserError(
        f"statistics of {type(self.head).__name__} differ in size between blocks of "
        "classes, but devices need equal sizes: choose another sampler, or set "
        "mesh.blocks to 1"
      )


def _of_all_processes(number: int) -> list[int]:
  """The numbers of all processes, each below 2^32, given the number of this process.

  >>> _of_all_processes(7)
  [7]
  """
  return np.ravel(multihost_utils.process_allgather(np.uint32(number))).tolist()


def _spec(kind: str) -> PartitionSpec:
  return shards.WHOLE if kind in (WHOLE, SUM) else shards.SPLIT
