"""Passes over live entries, and steps of devices with few or all of the labels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.ops.passes import capacity, over_live, sum_over_live

A = 7
PROGRAM = """
import os
os.environ["XLA_FLAGS"] = os.environ["XLA_FLAGS"].replace("count=4", "count=8")
import re, jax, jax.numpy as jnp, numpy as np
from largevocab.heads import ShardedHead, Sampled, class_mesh
from largevocab.labels import Targets
from largevocab.rows import Adagrad

N, P, V, D, B = 2048, 2, 5003, 8, 8
counts = (1e6 / np.arange(1, V + 1) ** 1.3).astype(np.int64) + 1
rng = np.random.default_rng(0)
w_NP = rng.random((N, P)).astype(np.float32)
w_NP[::5] = 0
zipf_NP = rng.choice(V, (N, P), p=counts / counts.sum())
zipf_NP[3, 1], zipf_NP[4] = V, 17  # padding, and a class twice
every = {
  "spread evenly": rng.permutation(N * P).reshape(N, P),
  "some frequent": zipf_NP,
  "all of one class": np.full((N, P), 8),
  "no class": np.full((N, P), V),
}
h_ND = rng.standard_normal((N, D)).astype(np.float32)

def results(C):
  head = ShardedHead(Sampled(num_samples=64, optimizer=Adagrad()), *mesh_of(C))
  @jax.jit
  def step(state, h_ND, y, key):
    out = head.backward(state, h_ND, y, key)
    return head.update(state, out.grads, 0.1, 1.0), out._replace(grads=None)
  state, key = head.init(jax.random.key(0), counts, D), jax.random.key(1)
  of = lambda ids_NP: Targets(ids_NP.astype(np.int32), w_NP, np.zeros(N, np.int32))
  lowered = jax.jit(step, donate_argnums=0).lower(state, h_ND, of(zipf_NP), key)
  program = lowered.compile()
  memory = program.memory_analysis()
  table_bytes = state.parts.table.w_VD.nbytes // C
  assert memory.alias_size_in_bytes >= 2 * table_bytes  # rows and Adagrad's sums
  if C == B:  # the loops over passes take the table along, and copy nothing
    rows, width = state.parts.table.w_VD.shape
    copy = rf"f32\\[{rows // C},{width}\\]\\S* copy\\("
    copies = re.findall(copy, program.as_text())
    assert not copies, copies
  out = {}
  for name, ids_NP in every.items():
    new, step_out = step(state, h_ND, of(ids_NP), key)
    out[name] = [np.asarray(x) for x in jax.tree.leaves((step_out, new.parts.table))]
  return out

def mesh_of(C):
  return class_mesh(jax.devices()[:C]), B

# What one device has of the classes, of which 8 would go through in a pass.
on_fullest = lambda ids_NP: np.bincount(ids_NP[ids_NP < V] % B, minlength=B).max()
at_once = 1024
assert on_fullest(every["spread evenly"]) < at_once
assert on_fullest(zipf_NP) > at_once
assert on_fullest(every["all of one class"]) == N * P == 4 * at_once
want = results(1)
for C in (2, 4, 8):
  for name, arrays in results(C).items():
    for got, one in zip(arrays, want[name], strict=True):
      np.testing.assert_allclose(got, one, rtol=2e-5, atol=2e-6, err_msg=f"{name}, {C}")
assert not np.array_equal(want["some frequent"][0], want["all of one class"][0])
"""


@pytest.mark.parametrize("at_once", [1, 3, A, 2 * A])
def test_passes_go_through_the_live_entries_in_order(at_once):
  @jax.jit
  def visited(live_A):
    def note(carry, at_K):
      at_Q, num = carry
      places_K = jnp.where(at_K < A, num + jnp.arange(at_once), A)
      return at_Q.at[places_K].set(at_K, mode="drop"), num + jnp.sum(at_K < A)

    return over_live(note, (jnp.full(A, -1), 0), live_A, at_once)

  rng = np.random.default_rng(0)
  for live_A in (np.zeros(A, bool), np.ones(A, bool), *(rng.random((4, A)) < 0.5)):
    at_Q, num = visited(live_A)
    assert at_Q[:num].tolist() == np.flatnonzero(live_A).tolist()


@pytest.mark.parametrize("at_once", [1, 3, A, 2 * A])
def test_sums_over_passes_count_every_live_entry_once(at_once):
  rng = np.random.default_rng(1)
  x_A = jnp.asarray(rng.integers(0, 9, A))

  @jax.jit
  def sums(live_A):
    take = lambda at_K: {"all": jnp.sum(x_A.at[at_K].get(mode="fill", fill_value=0))}
    return sum_over_live(take, {"all": jnp.zeros((), x_A.dtype)}, live_A, at_once)

  for live_A in (np.zeros(A, bool), np.ones(A, bool), *(rng.random((4, A)) < 0.5)):
    assert sums(live_A)["all"] == x_A[live_A].sum()


def test_one_device_takes_all_at_once():
  assert [capacity(num) for num in (0, 1, 5000, 10**7)] == [0, 1, 5000, 10**7]


@pytest.mark.long
def test_steps_do_not_depend_on_how_many_labels_a_device_has(on_four_devices):
  on_four_devices(PROGRAM)
