"""Rows of many classes, and combining over large TPU meshes in two steps."""

import numpy as np
import pytest

from largevocab.ops.class_blocks import Blocks

PROGRAM = """
import os
os.environ["XLA_FLAGS"] = os.environ["XLA_FLAGS"].replace("count=4", "count=24")
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
from largevocab.heads import class_mesh
from largevocab.ops import shards
from largevocab.ops.class_blocks import Blocks
from largevocab.ops.shards import AXIS

C, D = 24, 3  # not a square
x_ND = jnp.asarray(np.random.default_rng(0).standard_normal((2 * C, D)), jnp.float32)
ids_N = jnp.arange(2 * C)

def results(backend):
  def local(x_ND, own_ND, ids_n):
    mine_ND = x_ND * (1 + lax.axis_index(AXIS))
    summed = shards.sum_for_own_examples(mine_ND)
    with_ids = shards.all_examples((own_ND, ids_n))
    return summed, jax.tree.map(lambda a: a[None], with_ids)

  def traced(*args):
    with shards.over(Blocks(2 * C, C)):
      return local(*args)

  jax.default_backend = lambda: backend
  specs = dict(in_specs=(P(), P(AXIS), P(AXIS)), out_specs=P(AXIS), check_vma=False)
  f = jax.jit(jax.shard_map(traced, mesh=class_mesh(), **specs))
  text = f.lower(x_ND, x_ND, ids_N).as_text()
  return f(x_ND, x_ND, ids_N), text.count("reduce_scatter"), text.count("all_gather")

(summed, (all_CND, ids_CN)), scatters, gathers = results("tpu")
plain, plain_scatters, plain_gathers = results("cpu")
assert (scatters, gathers) == (2 * plain_scatters, 2 * plain_gathers)
np.testing.assert_allclose(summed, x_ND * C * (C + 1) / 2, rtol=1e-5)
np.testing.assert_allclose(summed, plain[0], rtol=1e-5)
for c in range(C):
  np.testing.assert_array_equal(all_CND[c], x_ND)
  np.testing.assert_array_equal(ids_CN[c], ids_N)
"""


@pytest.mark.long
def test_columns_and_rows_combine_like_all_devices_at_once(on_four_devices):
  on_four_devices(PROGRAM)


@pytest.mark.parametrize("num_classes", [10**9, 2**31 - 2**13])
@pytest.mark.parametrize("num_blocks", [1, 256, 4096])
def test_rows_of_many_classes_fit_32_bits(num_classes, num_blocks):
  blocks = Blocks(num_classes, num_blocks)
  last = np.arange(num_classes - 9, num_classes, dtype=np.int32)
  ids = np.concatenate([np.arange(9, dtype=np.int32), last])
  wide = ids.astype(np.int64)
  want = wide % num_blocks * blocks.size + wide // num_blocks
  row = blocks.row(ids)
  assert row.dtype == np.int32
  np.testing.assert_array_equal(row, want)
  np.testing.assert_array_equal(blocks.class_of(row), ids)
