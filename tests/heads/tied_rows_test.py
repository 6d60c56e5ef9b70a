"""Class rows that are also inputs of the network: one gradient for both uses."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import config
from largevocab.errors import UserError
from largevocab.heads import Full, Sampled, ShardedHead, class_mesh
from largevocab.labels import Counts, Targets
from largevocab.losses import NCE
from largevocab.rows import SGD, Adagrad, RowGrads, accumulate, sq_norm
from largevocab.samplers import PPS
from tests.long import others_long

V, D, N, K = 13, 4, 6, 3
LR, CLIP = 0.5, 0.3
COUNTS = np.arange(V, 0, -1)


def batch(i):
  """Ids of inputs and labels: repeated and common ones, and padding of both."""
  rng = np.random.default_rng(i)
  x_NK, y_N = rng.integers(0, V - 2, (N, K)), rng.integers(0, V, N)
  x_NK[0], x_NK[1, 0], x_NK[2] = y_N[0], V, (V, V + 3, y_N[1])
  weight_N = np.ones(N)
  y_N[-1], weight_N[-1] = V, 0
  ids_NP, w_NP = jnp.int32(y_N)[:, None], jnp.float32(weight_N)[:, None]
  return jnp.int32(x_NK), Targets(ids_NP, w_NP, jnp.int32(x_NK[:, -1]))


def network(rows_NKD):
  return jnp.tanh(jnp.sum(rows_NKD, axis=1))


def stepper(head, clip=CLIP):
  """A step with tied rows, clipped by the gradient's norm; its loss and norm."""

  @jax.jit
  def step(state, x_NK, y, key):
    rows_RE = head.class_rows(state, x_NK.ravel())
    rows_NKD = rows_RE[:, :D].reshape(*x_NK.shape, D)
    h_ND, pull_back = jax.vjp(network, rows_NKD)
    out = head.backward(state, h_ND, y, key)
    (g_NKD,) = pull_back(out.dh_ND)
    grads, sq = head.add_row_grads(state, out.grads, x_NK.ravel(), g_NKD.reshape(-1, D))
    norm = jnp.sqrt(sq)
    scale = clip / jnp.maximum(norm, clip)
    return head.update(state, grads, LR, scale), out.loss, norm, out.sq_norm

  return step


def reference(w_VE, steps, is_adagrad, clip=CLIP, tied=True):
  """The same in float64, with a dense gradient; E are D columns and the bias."""
  w_VE = np.float64(w_VE)
  sum_sq_VE = np.full_like(w_VE, 0.1)
  first_VD, losses, norms = w_VE[:, :D].copy(), [], []
  for i in range(steps):
    x_NK, y = jax.tree.map(np.asarray, batch(i))
    in_VD = np.append(w_VE[:, :D] if tied else first_VD, np.zeros((4, D)), axis=0)
    h_ND = np.tanh(in_VD[x_NK].sum(axis=1))
    f_NE = np.append(h_ND, np.ones((N, 1)), axis=1)
    o_NV = f_NE @ w_VE.T
    log_p_NV = o_NV - np.log(np.exp(o_NV).sum(axis=1, keepdims=True))
    y_NV = (y.ids_NP == np.arange(V)).astype(float)
    weight_N1 = y.w_NP / y.w_NP.sum()
    losses.append(-np.sum(weight_N1 * y_NV * log_p_NV))
    g_NV = weight_N1 * (np.exp(log_p_NV) - y_NV)
    g_VE = g_NV.T @ f_NE
    g_ND = (g_NV @ w_VE[:, :D]) * (1 - h_ND**2)
    if tied:
      one_hot_NKV = (x_NK[..., None] == np.arange(V)).astype(float)
      g_VE[:, :D] += np.einsum("nkv,nd->vd", one_hot_NKV, g_ND)
    norms.append(np.linalg.norm(g_VE))
    g_VE *= clip / max(clip, norms[-1])
    sum_sq_VE += g_VE**2
    w_VE = w_VE - LR * (g_VE / np.sqrt(sum_sq_VE + 1e-7) if is_adagrad else g_VE)
  return w_VE, losses, norms


# All classes are drawn, with certainty: the exact softmax.
EXACT = {
  "full": Full,
  "sampled": functools.partial(Sampled, sampler=PPS(), num_samples=16),
}


@pytest.mark.parametrize(
  ("name", "blocks", "optimizer"),
  others_long(
    [
      ("full", 1, SGD()),
      ("full", 4, Adagrad()),
      ("sampled", 1, Adagrad()),
      ("sampled", 4, SGD()),
    ],
    [("full", 1, SGD()), ("sampled", 1, Adagrad()), ("sampled", 4, SGD())],
  ),
)
def test_steps_equal_those_of_a_dense_table_for_both_uses(name, blocks, optimizer):
  head = EXACT[name](optimizer=optimizer, init_scale=1.0)
  if blocks > 1:
    head = ShardedHead(head, class_mesh(jax.devices()[:1]), blocks)
  state, step = head.init(jax.random.key(0), COUNTS, D), stepper(head)
  all_rows = lambda state: np.asarray(head.class_rows(state, jnp.arange(V)))[:, : D + 1]
  first_VE, losses, norms, apart = all_rows(state), [], [], []
  for i in range(4):
    state, loss, norm, sq_norm_of_classes = step(state, *batch(i), jax.random.key(i))
    losses.append(float(loss))
    norms.append(float(norm))
    apart.append(float(sq_norm_of_classes))
  is_adagrad = optimizer == Adagrad()
  want_VE, want_losses, want_norms = reference(first_VE, 4, is_adagrad)
  np.testing.assert_allclose(losses, want_losses, rtol=1e-5)
  np.testing.assert_allclose(norms, want_norms, rtol=1e-5)
  np.testing.assert_allclose(all_rows(state), want_VE, rtol=1e-4, atol=1e-5)
  assert min(want_norms) > 1.01 * CLIP  # it is clipped
  assert not np.allclose(norms, np.sqrt(apart), rtol=1e-2)  # the classes' alone
  for changed in ({"tied": False}, {"clip": 100.0}):
    other_VE = reference(first_VE, 4, is_adagrad, **changed)[0]
    assert np.abs(other_VE - want_VE).max() > 0.01


PATHS = {
  "full": {},
  "sampled/pps": {"exact_frequent": 2},
  "sampled/quadratic": {},
  "nce/unigram": {"loss": {"normalizer": "global"}},
  "negative_sampling/unigram": {},
  "ranking/uniform": {},
  "blackout/unigram": {},
  "upper_bound/pps": {},
  "importance/unigram": {},
  "full/cosine": {},
  "sampled/uniform/cosine": {},
}


FIRST = (
  *("full", "sampled/pps", "sampled/quadratic", "nce/unigram"),
  "sampled/uniform/cosine",
)


@pytest.mark.parametrize("path", others_long(PATHS, FIRST))
def test_gradient_of_any_loss_equals_that_of_one_dense_table(path):
  head = config.head(path, num_samples=4, init_scale=1.0, **PATHS[path])
  counts = Counts(COUNTS, np.repeat(np.arange(V), COUNTS))
  state = head.init(jax.random.key(0), counts, D)
  (x_NK, y), key = batch(1), jax.random.key(2)

  def with_rows(w_VE):
    return state._replace(table=state.table._replace(w_VD=w_VE))

  def looked_up(w_VE):  # of cosines, rows of length 1
    rows_RE = head.class_rows(with_rows(w_VE), x_NK.ravel())
    return rows_RE[:, :D].reshape(*x_NK.shape, D)

  def loss(w_VE):
    of_table = with_rows(w_VE)
    return head.backward(of_table, network(looked_up(w_VE)), y, key).loss

  @jax.jit
  def both(w_VE):
    h_ND, pull_back = jax.vjp(network, looked_up(w_VE))
    out = head.backward(state, h_ND, y, key)
    (g_NKD,) = pull_back(out.dh_ND)
    args = state, out.grads, x_NK.ravel(), g_NKD.reshape(-1, D)
    return head.add_row_grads(*args), out.sq_norm, jax.grad(loss)(w_VE)

  (grads, sq), sq_of_classes, want_VE = both(state.table.w_VD)
  got_VE, of_log_z = grads, 0.0
  if isinstance(head, Sampled):
    assert isinstance(grads.rows, RowGrads)
    at = jnp.zeros_like(want_VE).at[grads.rows.ids_R]
    got_VE = at.add(grads.rows.rows_RD, mode="drop")
    of_log_z = float(sq_norm(grads.log_z))
    assert bool(of_log_z) == (head.loss == NCE(normalizer="global"))
  np.testing.assert_allclose(got_VE, want_VE, rtol=1e-4, atol=1e-6)
  np.testing.assert_allclose(sq, np.sum(np.square(want_VE)) + of_log_z, rtol=1e-5)
  assert abs(float(sq / sq_of_classes) - 1) > 0.01


def test_gradients_of_several_batches_add_up():
  head, (_, y) = EXACT["sampled"](init_scale=1.0), batch(0)
  state = head.init(jax.random.key(0), COUNTS, D)
  ids_R, g_RD = jnp.array([3, 3, V]), jnp.ones((3, D))

  @jax.jit
  def tables(state):
    of_classes = head.backward(state, jnp.ones((N, D)), y, jax.random.key(1)).grads
    one, _ = head.add_row_grads(state, of_classes, ids_R, g_RD)
    twice, _ = head.add_row_grads(state, of_classes + of_classes, ids_R, 2 * g_RD)
    each = accumulate([one, one]), twice, of_classes + of_classes
    return [head.update(state, grads, LR, 1.0).table.w_VD for grads in each]

  added, at_once, of_classes = map(np.asarray, tables(state))
  np.testing.assert_allclose(added, at_once, rtol=1e-5)
  assert np.flatnonzero(np.any(added != of_classes, axis=1)).tolist() == [3]


def test_sampler_sees_rows_that_only_the_inputs_moved():
  head, (_, y) = config.head("sampled/quadratic", num_samples=4), batch(0)
  state = head.init(jax.random.key(0), np.ones(600, int), D)
  assert state.stats.tree.top_CF.shape[0] > 1
  y = y._replace(w_NP=jnp.zeros_like(y.w_NP))  # no class row has a gradient

  @jax.jit
  def sums_by_node(state):
    grads = head.backward(state, jnp.ones((N, D)), y, jax.random.key(1)).grads
    grads, _ = head.add_row_grads(state, grads, jnp.array([3]), jnp.full((1, D), 5.0))
    new = head.update(state, grads, LR, 1.0)
    rebuilt = head.refresh(new, jax.random.key(2))
    return [each.stats.tree.top_CF for each in (new, rebuilt, state)]

  updated, rebuilt, before = map(np.asarray, sums_by_node(state))
  np.testing.assert_allclose(updated, rebuilt, rtol=1e-4, atol=1e-4)
  assert np.abs(before - rebuilt).max() > 1


@pytest.mark.parametrize(
  ("name", "blocks"),
  others_long(
    itertools.product(["in_batch", "cbns"], [1, 2]), [("in_batch", 2), ("cbns", 1)]
  ),
)
def test_counting_samplers_see_only_the_classes_of_the_loss(name, blocks):
  head, (_, y) = config.head(f"sampled/{name}", num_samples=4), batch(0)
  if blocks > 1:
    head = ShardedHead(head, class_mesh(jax.devices()[:1]), blocks)
  state = head.init(jax.random.key(0), COUNTS, D)
  own = lambda state: state.parts if blocks > 1 else state
  others = np.setdiff1d(np.arange(V), y.ids_NP)[:2]

  @jax.jit
  def seen(state):
    grads = head.backward(state, jnp.ones((N, D)), y, jax.random.key(1)).grads
    tied = grads
    for other in others:  # in two calls
      tied, _ = head.add_row_grads(state, tied, jnp.array([other]), jnp.ones((1, D)))
    both = head.update(state, grads, LR, 1.0), head.update(state, tied, LR, 1.0)
    return [own(new).stats for new in both], head.class_rows(both[1], others)

  (want, got), rows_RE = seen(state)
  jax.tree.map(np.testing.assert_array_equal, got, want)
  moved_RE = np.abs(rows_RE - head.class_rows(state, others))
  assert (moved_RE.max(axis=1) > 0).all()


@pytest.mark.parametrize(
  ("name", "blocks"),
  others_long(itertools.product(EXACT, [1, 4]), [("full", 1), ("sampled", 4)]),
)
def test_ids_that_are_not_classes_have_no_row(name, blocks):
  head = EXACT[name](init_scale=1.0)
  if blocks > 1:
    head = ShardedHead(head, class_mesh(jax.devices()[:1]), blocks)
  state, (_, y) = head.init(jax.random.key(0), COUNTS, D), batch(0)
  ids_R = jnp.array([-1, V, V + 3, -V])
  np.testing.assert_array_equal(head.class_rows(state, ids_R)[:, :D], 0)

  @jax.jit
  def tables(state):
    grads = head.backward(state, jnp.ones((N, D)), y, jax.random.key(1)).grads
    more, _ = head.add_row_grads(state, grads, ids_R, jnp.ones((4, D)))
    after = [head.update(state, each, LR, 1.0) for each in (grads, more)]
    return [head.class_rows(each, jnp.arange(V)) for each in after]

  np.testing.assert_array_equal(*tables(state))


@pytest.mark.parametrize("name", EXACT)
def test_rows_of_the_wrong_width_or_number_are_named(name):
  head, (_, y) = EXACT[name](), batch(0)
  state = head.init(jax.random.key(0), COUNTS, D)
  step = jax.jit(head.backward)(state, jnp.ones((N, D)), y, jax.random.key(1))
  grads = step.grads
  for width in (D - 1, D + 1, 8, 9):
    with pytest.raises(UserError, match=f"g_RD has {width} columns, .* dim={D}"):
      head.add_row_grads(state, grads, jnp.arange(2), jnp.ones((2, width)))
  with pytest.raises(ValueError, match=r"g_RD has shape \(2, 4\), but R = 3 in ids_R"):
    head.add_row_grads(state, grads, jnp.arange(3), jnp.ones((2, D)))
