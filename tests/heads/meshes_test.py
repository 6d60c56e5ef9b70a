"""Meshes of the caller: heads refuse those that they cannot compute on."""

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from largevocab import single_targets
from largevocab.errors import UserError
from largevocab.heads import Adaptive, Full, Sampled, ShardedHead, Spherical, class_mesh
from tests.heads.compiled import backward, init
from tests.long import others_long

V, D, N = 20, 4, 6
COUNTS, KEY = np.arange(V, 0, -1), jax.random.key(0)
H_ND = jax.random.normal(KEY, (N, D))
Y = single_targets(np.arange(N))
HEADS = [Full(), Sampled(num_samples=8), Adaptive(), Spherical()]
SPLIT = PartitionSpec("data")


def mesh_of(kind):
  return jax.make_mesh((1,), ("data",), axis_types=(kind,))


@pytest.mark.parametrize(
  ("head", "name"),
  others_long(
    [(head, name) for head in HEADS for name in ("h_ND", "y")],
    [(head, "h_ND") for head in HEADS[:2]],
  ),
  ids=lambda x: x if isinstance(x, str) else type(x).__name__,
)
def test_explicit_axes_are_refused_and_auto_axes_accepted(head, name):
  one = ShardedHead(head, class_mesh(jax.devices()[:1]), num_blocks=1)
  for each in (head, one):
    state, compiled = each.init(KEY, COUNTS, D), jax.jit(each.backward)

    def batch(kind):
      where = NamedSharding(mesh_of(kind), SPLIT)
      whole = {"h_ND": H_ND, "y": Y}
      return {**whole, name: jax.device_put(whole[name], where)}

    for call in (each.backward, compiled):
      with pytest.raises(UserError, match=r"Explicit axes \['data'\]: make the mesh"):
        call(state, **batch(AxisType.Explicit), key=KEY)
    want = compiled(state, H_ND, Y, KEY).loss
    got = compiled(state, **batch(AxisType.Auto), key=KEY).loss
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("name", ["h_ND", "y"])
@pytest.mark.parametrize("head", HEADS, ids=lambda head: type(head).__name__)
def test_auto_axes_work_without_jit(head, name):
  where = NamedSharding(mesh_of(AxisType.Auto), SPLIT)
  batch = {"h_ND": H_ND, "y": Y}
  batch[name] = jax.device_put(batch[name], where)
  for each in (head, ShardedHead(head, class_mesh(jax.devices()[:1]), num_blocks=1)):
    state = each.init(KEY, COUNTS, D)
    want = each.backward(state, H_ND, Y, KEY).loss
    got = each.backward(state, **batch, key=KEY).loss
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize(
  "head", others_long(HEADS, HEADS[:2]), ids=lambda head: type(head).__name__
)
def test_heads_work_in_the_callers_shard_map(head):
  state = init(head, KEY, COUNTS, D)
  want = backward(head, state, H_ND, Y, KEY).loss

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


def test_mesh_with_an_explicit_class_axis_is_refused():
  with pytest.raises(UserError, match="'classes' of the mesh is not Auto"):
    ShardedHead(Full(), jax.make_mesh((1,), ("classes",)), num_blocks=1)


ON_TWO = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from largevocab import single_targets
from largevocab.heads import Full, ShardedHead, class_mesh

h_ND, key = jax.random.normal(jax.random.key(0), (6, 4)), jax.random.key(1)
y, counts = single_targets(np.arange(6)), np.arange(20, 0, -1)
mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,))
split = jax.device_put((h_ND, y), NamedSharding(mesh, P("data")))
for head in (Full(), ShardedHead(Full(), class_mesh(), num_blocks=2)):
  state = head.init(key, counts, 4)
  print(head.backward(state, h_ND, y, key).loss)
  print(jax.jit(head.backward)(state, *split, key).loss)
state = Full().init(key, counts, 4)
loss = lambda h_ND, y: jax.lax.pmean(Full().backward(state, h_ND, y, key).loss, "data")
same = {"in_specs": P("data"), "out_specs": P(), "check_vma": False}
print(jax.jit(jax.shard_map(loss, mesh=mesh, **same))(h_ND, y))
"""


@pytest.mark.long
def test_batch_split_over_auto_axes_has_the_same_loss(on_devices):
  one, of_mesh, sharded, of_both, mapped = map(
    float, on_devices(2, "-c", ON_TWO).split()
  )
  np.testing.assert_allclose([of_mesh, mapped], one, rtol=1e-5)
  np.testing.assert_allclose(of_both, sharded, rtol=1e-5)
