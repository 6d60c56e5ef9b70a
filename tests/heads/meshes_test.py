"""Meshes of the caller's own: those that heads cannot compute on are refused."""

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from largevocab import single_targets
from largevocab.errors import UserError
from largevocab.heads import Adaptive, Full, Sampled, ShardedHead, Spherical, class_mesh

V, D, N = 20, 4, 6
COUNTS, KEY = np.arange(V, 0, -1), jax.random.key(0)
H_ND = jax.random.normal(KEY, (N, D))
Y = single_targets(np.arange(N))
HEADS = [Full(), Sampled(num_samples=8), Adaptive(), Spherical()]
SPLIT = PartitionSpec("data")


def mesh_of(kind):
  return jax.make_mesh((1,), ("data",), axis_types=(kind,))


@pytest.mark.parametrize("name", ["h_ND", "y"])
@pytest.mark.parametrize("head", HEADS, ids=lambda head: type(head).__name__)
def test_explicit_axes_are_refused_and_auto_ones_are_not(head, name):
  one = ShardedHead(head, class_mesh(jax.devices()[:1]), num_blocks=1)
  for each in (head, one):
    state = each.init(KEY, COUNTS, D)
    want = each.backward(state, H_ND, Y, KEY).loss
    for kind in (AxisType.Explicit, AxisType.Auto):
      where = NamedSharding(mesh_of(kind), SPLIT)
      batch = {"h_ND": H_ND, "y": Y}
      batch[name] = jax.device_put(batch[name], where)
      for backward in (each.backward, jax.jit(each.backward)):
        if kind == AxisType.Auto:
          got = backward(state, **batch, key=KEY).loss
          np.testing.assert_allclose(got, want, rtol=1e-6)
          continue
        with pytest.raises(UserError, match=r"Explicit axes \['data'\]: make it by"):
          backward(state, **batch, key=KEY)


@pytest.mark.parametrize("head", HEADS, ids=lambda head: type(head).__name__)
def test_in_a_shard_map_of_the_callers_own(head):
  state = head.init(KEY, COUNTS, D)
  want = head.backward(state, H_ND, Y, KEY).loss

  def loss(h_ND, y):
    return jax.lax.pmean(head.backward(state, h_ND, y, KEY).loss, "data")

  def run(check_vma):
    spread = jax.shard_map(
      loss,
      mesh=mesh_of(AxisType.Auto),
      in_specs=SPLIT,
      out_specs=PartitionSpec(),
      check_vma=check_vma,
    )
    return jax.jit(spread)(H_ND, Y)

  np.testing.assert_allclose(run(check_vma=False), want, rtol=1e-6)
  with pytest.raises(UserError, match=r"varies over \['data'\] .* check_vma=False"):
    run(check_vma=True)


def test_a_mesh_of_explicit_classes_is_refused():
  with pytest.raises(UserError, match="'classes' of the mesh is not Auto"):
    ShardedHead(Full(), jax.make_mesh((1,), ("classes",)), num_blocks=1)
