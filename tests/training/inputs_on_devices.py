"""Looks up and trains input rows on some of the eight devices of a process.

Prints a JSON line for each kind of input; see `sharded_inputs_test.py`.

  python -m tests.training.inputs_on_devices
"""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.data.batches import FeatureBag
from largevocab.heads import class_mesh
from largevocab.rows import Adagrad, sq_norm
from largevocab.training.inputs import Inputs
from largevocab.training.sharded_inputs import ShardedInputs
from tests.heads.on_devices import sent

V, E, N, STEPS, BLOCKS = (
  203,
  16,
  22,
  8,
  8,
)  # V and N are not divisible by the number of devices
LR, CLIP, DECAY = 0.3, 2.0, 0.01
SHAPES = {"words": (N, 5), "item_histories": (N, 3), "bags": (N, 9)}


def batch(kind, i):
  """Ids, values and targets: repeated ids, padding, and never row 0."""
  rng = np.random.default_rng(i)
  ids = np.minimum(rng.zipf(1.3, SHAPES[kind]), V - 1).astype(np.int32)
  values = rng.standard_normal(ids.shape).astype(np.float32)
  if kind == "item_histories":  # the last of few items
    ids[::4, 0], ids[::8, 1] = V, V + 5
  if kind == "bags":  # some have few features, one has none
    ids[1, 4:], ids[2], ids[3, 1] = V, V, ids[3, 0]
    values[ids == V] = 0
  length = 1 if kind == "bags" else ids.shape[1]
  target = rng.standard_normal((N, length, E)).astype(np.float32)
  return FeatureBag(ids, values) if kind == "bags" else ids, target


def trained(kind, num_devices):
  """Looked-up inputs, norms and rows in a few steps of least squares."""
  mesh = class_mesh(jax.devices()[:num_devices])
  optimizer = Adagrad(weight_decay=DECAY)
  inputs = ShardedInputs(Inputs(optimizer, E, init_scale=1.0), mesh, BLOCKS)
  table = inputs.init(jax.random.key(0), V)

  @functools.partial(jax.jit, donate_argnums=0)
  def step(table, x, target):
    rows_BTE = inputs.look_up(table, x)
    grads = inputs.gradient(table, x, rows_BTE - target)
    norm = jnp.sqrt(sq_norm(grads))
    scale = CLIP / jnp.maximum(CLIP, norm)
    return inputs.update(table, grads, LR, scale), rows_BTE, norm

  def by_id(x_VE):
    return np.asarray(x_VE)[table.blocks.row(jnp.arange(V))].tolist()

  def buffers():
    tables = table.rows.w_VD, table.rows.slots["sum_sq_VD"]
    shards = [shard for leaf in tables for shard in leaf.addressable_shards]
    assert {shard.data.shape for shard in shards} == {
      (table.blocks.num_rows // num_devices, E)
    }
    return {shard.data.unsafe_buffer_pointer() for shard in shards}

  program = step.lower(table, *batch(kind, 0)).compile()
  first, before = by_id(table.rows.w_VD), buffers()
  looked_up, norms = [], []
  for i in range(STEPS):
    table, rows_BTE, norm = step(table, *batch(kind, i))
    looked_up.append(np.asarray(rows_BTE).tolist())
    norms.append(float(norm))
  return {
    "first": first,
    "looked_up": looked_up,
    "norms": norms,
    "rows": by_id(table.rows.w_VD),
    "slots": by_id(table.rows.slots["sum_sq_VD"]),
    "in_place": buffers() == before,
    "sent": sent(program),
  }


if __name__ == "__main__":
  for kind in SHAPES:
    results = {n: trained(kind, n) for n in (1, 2, 8)}
    print(json.dumps({"kind": kind, "results": results}), flush=True)
