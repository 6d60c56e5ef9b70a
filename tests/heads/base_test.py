"""When statistics are refreshed, and that heads pass their settings on."""

import jax
import jax.numpy as jnp
import pytest

from largevocab.errors import UserError
from largevocab.heads import Sampled, ShardedHead, Spherical, class_mesh
from largevocab.samplers import IVF

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
  "spherical": (Spherical(stabilize_every=10), EVERY_10),
  "spherical, never": (Spherical(stabilize_every=0), []),
}


@pytest.mark.parametrize("is_over_devices", [False, True])
@pytest.mark.parametrize("name", HEADS)
def test_a_head_is_refreshed_when_its_settings_say(name, is_over_devices):
  head, due = HEADS[name]
  if is_over_devices:
    head = ShardedHead(head, class_mesh(jax.devices()[:1]), num_blocks=2)
  assert [step for step in range(1, 100) if head.refreshes(step)] == due


def test_refreshes_takes_whole_numbers_that_the_host_knows():
  head = Sampled(sampler=IVF(), refresh_every=10)
  assert head.refreshes(jnp.int32(20))
  assert not head.refreshes(jnp.int32(21))
  for refused in (lambda: head.refreshes(2.0), lambda: jax.jit(head.refreshes)(2)):
    with pytest.raises(UserError, match="whole number that the host knows"):
      refused()
