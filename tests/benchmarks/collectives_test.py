"""Bytes that devices send, counted in compiled programs and in single lines."""

import pytest

from benchmarks.collectives import sent_bytes

PROGRAM = """
import jax, jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P
from benchmarks.collectives import sent_bytes
from largevocab.heads import class_mesh
from largevocab.ops.shards import AXIS

mesh = class_mesh()
C, N, D = 4, 16, 6

def sent(local, out_specs):
  how = dict(in_specs=P(), out_specs=out_specs, check_vma=False)
  f = jax.jit(jax.shard_map(local, mesh=mesh, **how))
  return sent_bytes(f.lower(jnp.ones((N, D))).compile().as_text(), C)

def own(x):  # differs between devices, so that nothing is simplified
  return x + lax.axis_index(AXIS)

size = 4 * N * D
got = sent(lambda x: lax.psum(own(x), AXIS), P())
assert got == {"all-reduce": 2 * size * 3 / 4}, got
got = sent(lambda x: lax.psum_scatter(own(x), AXIS, tiled=True), P(AXIS))
assert got == {"reduce-scatter": size * 3 / 4}, got
got = sent(lambda x: lax.all_gather(own(x)[:4], AXIS, tiled=True), P())
assert got == {"all-gather": size * 3 / 4}, got
pairs = [[0, 1], [2, 3]]
got = sent(lambda x: lax.psum(own(x), AXIS, axis_index_groups=pairs), P(AXIS))
assert got == {"all-reduce": size}, got

def often(x):
  turn = lambda i, x: lax.psum(jnp.sin(x), AXIS)
  return lax.fori_loop(0, 5, turn, own(x))

got = sent(often, P(AXIS))
assert got == {"all-reduce": 5 * 2 * size * 3 / 4}, got
"""


@pytest.mark.long
def test_bytes_of_compiled_programs(on_four_devices):
  on_four_devices(PROGRAM)


def program(*lines, body=()):
  return "\n".join(
    [
      "%all-reduce-scatter.1 (x: f32[16,8]) -> f32[4,8] {",
      *body,
      "}",
      "",
      "ENTRY %main (x: f32[16,8]) -> f32[16,8] {",
      *(f"  {line}" for line in lines),
      "}",
    ]
  )


GROUP = "replica_groups={{0,1,2,3}}"


BEGUN = {
  "all-gather": "((f32[4,8], s32[4]), (f32[16,8], s32[16])) all-gather-start",
  "reduce-scatter": "((f32[16,8]{1,0}), f32[4,8]{1,0}) reduce-scatter-start",
  "all-reduce": "bf16[16,8] all-reduce-start",
  "collective-permute": "(f32[2,8], f32[2,8], u32[], u32[]) collective-permute-start",
}
BYTES = {
  "all-gather": 4 * (16 * 8 + 16) * 3 / 4,
  "reduce-scatter": 4 * 4 * 8 * 3,
  "all-reduce": 2 * 2 * 16 * 8 * 3 / 4,
  "collective-permute": 4 * 2 * 8,
}


@pytest.mark.parametrize("kind", BEGUN)
@pytest.mark.parametrize("group", [GROUP, "replica_groups=[2,4]<=[8]"])
def test_bytes_of_started_collectives(kind, group):
  line = f"%y = {BEGUN[kind]}(%x), channel_id=1, {group}"
  assert sent_bytes(program(line), 8) == {kind: pytest.approx(BYTES[kind])}


def test_slice_of_an_all_reduce_is_a_reduce_scatter():
  body = (
    f"  %s = f32[16,8] all-reduce(%x), {GROUP}, to_apply=%add",
    "  ROOT %o = f32[4,8] dynamic-slice(%s, %i)",
  )
  fused = "%y = f32[4,8] fusion(%x), kind=kCustom, calls=%all-reduce-scatter.1"
  assert sent_bytes(program(fused, body=body), 4) == {"reduce-scatter": 4 * 8 * 4 * 3}


def test_parts_of_a_chain_count_once():
  part = f'all-gather(%x), {GROUP}, frontend_attributes={{chain_id="0"}}'
  lines = [f"%a = f32[16,8] {part}", f"%b = f32[16,8] {part}"]
  assert sent_bytes(program(*lines), 4) == {"all-gather": 16 * 8 * 4 * 3 / 4}


def test_uncountable_collectives_are_an_error():
  inside = [f"  %s = f32[16,8] all-reduce(%x), {GROUP}, to_apply=%add"]
  loop = "%y = f32[16,8] while(%x), body=%all-reduce-scatter.1, condition=%c"
  with pytest.raises(ValueError, match="loop of unknown length has a collective"):
    sent_bytes(program(loop, body=[*inside, "  ROOT %o = f32[4,8] slice(%s)"]), 4)
  with pytest.raises(ValueError, match="ragged-all-to-all"):
    sent_bytes(program("%y = f32[16,8] ragged-all-to-all(%x)"), 4)
