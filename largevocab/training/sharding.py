"""Places the arrays of a run on several devices.

The network processes an equal part of the batch on each device, and every device has a
copy of its parameters. The rows of the head and of the inputs are divided among the
devices. Each process reads only its own rows of a batch.
"""

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from largevocab.data.batches import ALL
from largevocab.training.inputs import Inputs
from largevocab.training.settings import Experiment
from largevocab.training.sharded_inputs import ShardedInputs

PyTree = Any


def mesh_of(exp: Experiment) -> Mesh | None:
  """The devices over which the head is sharded; None if it is not sharded."""
  return getattr(exp.head, "mesh", None)


def inputs_of(exp: Experiment) -> Inputs | ShardedInputs:
  """The inputs of a run, sharded over the devices if the head is."""
  inputs = Inputs(exp.optimizer, exp.model.embed, exp.model.init_scale)
  head: Any = exp.head
  mesh = mesh_of(exp)
  return inputs if mesh is None else ShardedInputs(inputs, mesh, head.num_blocks)


def rows_here(exp: Experiment, batch_size: int) -> slice:
  """The streams or examples of a batch that this process reads.

  These are the ones of its devices, or all if the batch does not divide evenly among
  the devices.
  """
  mesh = mesh_of(exp)
  if mesh is None or batch_size % mesh.size:
    return ALL
  each = batch_size // mesh.size
  here = [i for i, d in enumerate(mesh.devices) if d in mesh.local_devices]
  return slice(here[0] * each, (here[-1] + 1) * each)


def assembled(exp: Experiment, batch: PyTree, batch_size: int) -> PyTree:
  """Assembles a batch from the rows that each process has read; see `rows_here`."""
  mesh, rows = mesh_of(exp), rows_here(exp, batch_size)
  if mesh is None or rows in (ALL, slice(0, batch_size)):
    return batch

  def of_all(x):
    if not np.ndim(x):
      return x
    num = np.shape(x)[0] * batch_size // (rows.stop - rows.start)
    shape = num, *np.shape(x)[1:]
    return jax.make_array_from_process_local_data(_place(mesh, shape), x, shape)

  return jax.tree.map(of_all, batch)


def by_examples(exp: Experiment, batch: PyTree) -> PyTree:
  """Shards the arrays of a batch along their first axis, where that is possible."""
  mesh = mesh_of(exp)
  if mesh is None:
    return batch
  place = lambda x: jax.lax.with_sharding_constraint(x, _place(mesh, np.shape(x)))
  return jax.tree.map(place, batch)


def on_devices(exp: Experiment, state: Any) -> Any:
  """Shards the recurrent states of a `State` by examples and copies its parameters.

  Every device gets a copy of the parameters.
  """
  mesh = mesh_of(exp)
  if mesh is None:
    return state
  whole = NamedSharding(mesh, PartitionSpec())
  copied = state._replace(head=None, inputs=None, carry=None)
  placed = jax.tree.map(lambda x: put(x, whole), copied)
  carry = carry_on_devices(exp, state.carry)
  return placed._replace(head=state.head, inputs=state.inputs, carry=carry)


def carry_on_devices(exp: Experiment, carry: PyTree) -> PyTree:
  """Places recurrent states, [B, ...] each, where a compiled step leaves them."""
  mesh = mesh_of(exp)
  if mesh is None:
    return jax.tree.map(lambda c: jax.device_put(c, c.sharding), carry)
  return jax.tree.map(lambda c: put(c, _place(mesh, c.shape)), carry)


def put(x: jax.Array, place: NamedSharding) -> jax.Array:
  """Places an array that all processes have, of which each then keeps its part."""
  if place.is_fully_addressable:
    return jax.device_put(x, place)
  return jax.make_array_from_callback(x.shape, place, lambda index: x[index])


def places(exp: Experiment, state: PyTree) -> PyTree:
  """The sharding of each array of a state, for `jax.jit`; None on a single device."""
  is_sharded = mesh_of(exp) is not None
  return jax.tree.map(lambda x: x.sharding if is_sharded else None, state)


def _place(mesh: Mesh, shape: tuple[int, ...]) -> NamedSharding:
  is_even = bool(shape) and shape[0] % mesh.size == 0
  split = PartitionSpec(*mesh.axis_names) if is_even else PartitionSpec()
  return NamedSharding(mesh, split)
