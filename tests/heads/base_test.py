"""Tests when statistics are refreshed, and that heads pass on their settings."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import single_targets
from largevocab.errors import UserError
from largevocab.heads import (
  Adaptive,
  Hierarchical,
  Huffman,
  Sampled,
  ShardedHead,
  Spherical,
  class_mesh,
)
from largevocab.rows import SGD, AdamW
from largevocab.samplers import IVF, Block, InBatch
from tests.heads.compiled import backward, init, update

EVERY_10 = [1, 2, 4, 8, *range(10, 100, 10)]
GROWING = [1, 2, 4, 8, 10, 30, 70]
HEADS = {
  "sampled": (Sampled(sampler=IVF(), refresh_every=10), EVERY_10),
  "sampled, growing gaps": (
    Sampled(sampler=IVF(), refresh_every=10, refresh_growth=2.0),
    GROWING,
  ),
  "sampled, never": (Sampled(sampler=IVF(), refresh_every=0), []),
  "sampled, nothing to rebuild": (Sampled(refresh_every=10), []),
  "sampled, counts of batches": (Sampled(sampler=InBatch(), refresh_every=10), []),
  "sampled, masses by counts": (
    Sampled(sampler=Block(mass="unigram"), refresh_every=10),
    [],
  ),
  "sampled, rows to decay": (Sampled(optimizer=AdamW(), refresh_every=10), EVERY_10),
  "spherical": (Spherical(stabilize_every=10), EVERY_10),
  "spherical, never": (Spherical(stabilize_every=0), []),
}


@pytest.mark.parametrize("is_over_devices", [False, True])
@pytest.mark.parametrize("name", HEADS)
def test_head_is_refreshed_as_its_settings_say(name, is_over_devices):
  head, due = HEADS[name]
  if is_over_devices:
    head = ShardedHead(head, class_mesh(jax.devices()[:1]), num_blocks=2)
  assert [step for step in range(1, 100) if head.refreshes(step)] == due


def test_refreshes_takes_whole_numbers_known_on_the_host():
  head = Sampled(sampler=IVF(), refresh_every=10)
  assert head.refreshes(jnp.int32(20))
  assert not head.refreshes(jnp.int32(21))
  for refused in (lambda: head.refreshes(2.0), lambda: jax.jit(head.refreshes)(2)):
    with pytest.raises(UserError, match="whole number whose value is known on"):
      refused()


@pytest.mark.parametrize(
  ("head", "table"),
  [
    (Huffman(), lambda state: state.nodes),
    (Hierarchical(), lambda state: state.leaves),
    (Adaptive(cutoffs=(2,), align=1), lambda state: state.tails[0]),
  ],
)
def test_refresh_decays_rows_that_no_step_touched(head, table):
  head = dataclasses.replace(head, optimizer=SGD(decoupled_decay=0.5))
  state = init(head, jax.random.key(0), [8, 4, 2, 1, 1, 1, 1, 1], 4)
  y = single_targets([0, 0])
  grads = backward(head, state, jnp.ones((2, 4)), y, jax.random.key(1)).grads
  new = update(head, state, jax.tree.map(jnp.zeros_like, grads), 1.0)
  settled = table(jax.jit(head.refresh)(new, jax.random.key(2))).w_VD
  np.testing.assert_allclose(settled, table(state).w_VD / 2, rtol=1e-5)
  assert not np.allclose(table(new).w_VD, settled)
