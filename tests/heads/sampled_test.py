"""Tests specific to the sampled softmax."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.heads import Full, Huffman, Sampled
from largevocab.labels import Counts, Targets, as_counts, single_targets
from largevocab.losses import NCE, Importance, SampledSoftmax
from largevocab.rows import Adagrad
from largevocab.samplers import (
  CBNS,
  PPS,
  SAMPLERS,
  SCE,
  Bernoulli,
  Bigram,
  Block,
  Draw,
  InBatch,
  LSHEmbedding,
  LSHLabel,
  Mixture,
  Quadratic,
  Softmax,
  Uniform,
  Unigram,
)
from tests.heads.compiled import backward
from tests.long import others_long

N, V, D = 7, 30, 5
KEY = jax.random.key(0)
COUNTS = np.arange(V, 0, -1)


def batch(seed=0):
  rng = np.random.default_rng(seed)
  h_ND = jnp.asarray(rng.standard_normal((N, D)), jnp.float32)
  return h_ND, single_targets(rng.integers(0, V, N))


@dataclasses.dataclass(frozen=True)
class ExactSet(PPS):
  """`PPS` that also asks for some classes to be summed exactly."""

  exact: int = 0
  per_example: bool = False

  def sample(self, stats, w_VD, key, h_ND, y):
    draw = super().sample(stats, w_VD, key, h_ND, y)
    exact_S = jnp.append(jnp.arange(self.exact), V)  # some padding
    if self.per_example:
      exact_S = jnp.broadcast_to(exact_S, (len(h_ND), self.exact + 1))
    return draw._replace(exact_ids=exact_S)


@dataclasses.dataclass(frozen=True)
class AlwaysClass(Uniform):
  """A sampler that always draws the same class."""

  target: int = 0

  def sample(self, stats, w_VD, key, h_ND, y):
    m = stats.size.m
    ids_M = jnp.full(m, self.target)
    return Draw(ids_M, jnp.full(m, jnp.log(float(m))), jnp.ones(m, bool))


WHOLE = [
  Sampled(sampler=PPS(), num_samples=V),
  Sampled(sampler=ExactSet(exact=V, per_example=True), num_samples=4),
  Sampled(sampler=Uniform(), exact_frequent=9, exact_ids=tuple(range(5, V))),
  Sampled(sampler=PPS(), num_samples=V + 9),
  Sampled(sampler=PPS(), num_samples=V, absolute=True),
  Sampled(sampler=ExactSet(exact=V), num_samples=4),
  Sampled(sampler=Uniform(), num_samples=4, exact_frequent=V),
]


@pytest.mark.parametrize("head", others_long(WHOLE, WHOLE[:3]))
def test_sum_over_every_class_is_the_full_softmax(head):
  h_ND, y = batch()
  full = Full(absolute=head.absolute, method="reference")
  state, full_state = (x.init(KEY, COUNTS, D) for x in (head, full))
  np.testing.assert_array_equal(state.table.w_VD, full_state.table.w_VD)
  for step in range(5):
    key = jax.random.key(step)
    out = backward(head, state, h_ND, y, key)
    want = backward(full, full_state, h_ND, y, key)
    np.testing.assert_allclose(out.loss, want.loss, rtol=1e-5)
    np.testing.assert_allclose(out.dh_ND, want.dh_ND, atol=1e-6)
    np.testing.assert_allclose(out.sq_norm, want.sq_norm, rtol=1e-4)
    state = head.update(state, out.grads, 0.5, 1.0)
    full_state = full.update(full_state, want.grads, 0.5, 1.0)
    np.testing.assert_allclose(state.table.w_VD, full_state.table.w_VD, atol=1e-5)


@pytest.mark.parametrize(
  ("m", "sets"),
  others_long(
    [
      *((1, {}), (1, {"exact_batch": True}), (1, {"exact_frequent": 4})),
      *((2, {}), (20, {"exact_frequent": 4})),
    ],
    [(1, {"exact_batch": True}), (20, {"exact_frequent": 4})],
  ),
)
def test_every_draw_from_the_softmax_gives_the_full_softmax_loss(m, sets):
  """Theorem 2.1 of Blanc and Rendle; also where all draws hit the exact set, and with
  several labels, padding and repetitions."""
  head, full = (
    Sampled(sampler=Softmax(), num_samples=m, **sets),
    Full(method="reference"),
  )
  h_ND, _ = batch()
  ids_NP = np.random.default_rng(1).integers(0, V, (N, 3))
  ids_NP[0, 1:], ids_NP[1, 1] = V, ids_NP[1, 0]
  w_NP = np.where(ids_NP < V, 0.5, 0).astype(np.float32)
  y = Targets(jnp.asarray(ids_NP), jnp.asarray(w_NP), jnp.zeros(N, jnp.int32))
  state, full_state = (x.init(KEY, COUNTS, D) for x in (head, full))
  w_VD = state.table.w_VD.at[:, :D].multiply(40)  # sure of some classes
  state, full_state = (
    s._replace(table=s.table._replace(w_VD=w_VD)) for s in (state, full_state)
  )
  want = backward(full, full_state, h_ND, y, KEY)
  step = jax.jit(lambda key: head.backward(state, h_ND, y, key))
  outs = [step(jax.random.key(i)) for i in range(10)]
  for out in outs:
    np.testing.assert_allclose(out.loss, want.loss, rtol=1e-5)
  spread = np.std([out.dh_ND for out in outs], axis=0).max()
  assert m == 20 or spread > 1e-3  # the gradient is unbiased, not exact
  monitored = jax.jit(head.monitor)(state, h_ND, y, KEY)
  assert float(monitored["relvar"]) < 1e-9


@pytest.mark.parametrize("m", others_long([1, 2], [2]))
def test_draws_from_the_softmax_have_the_full_gradient_on_average(m):
  """Gradients of h and of the rows, by enumeration of all draws of an example."""

  @jax.jit
  def of_draw(state, ids_NM):
    class Given(Softmax):
      def sample(self, stats, w_VD, key, h_ND, y):
        log_expected_NM = self.log_expected(stats, w_VD, h_ND, y, ids_NM)
        return Draw(ids_NM, log_expected_NM, jnp.ones((1, m), bool))

    return Sampled(sampler=Given(), num_samples=m).backward(state, h_ND, y, KEY)

  few = 4
  h_ND, y = batch()[0][:1], single_targets([1])
  full = Full(method="reference")
  state = full.init(KEY, COUNTS[:few], D)
  w_VD = 20 * state.table.w_VD
  table = state.table._replace(w_VD=w_VD)
  want = backward(full, state._replace(table=table), h_ND, y, KEY)
  p_V = jax.nn.softmax(full.features(h_ND) @ w_VD.T)[0]
  dh_ND, dw_VD = jnp.zeros_like(h_ND), jnp.zeros_like(w_VD)
  head = Sampled(sampler=Softmax(), num_samples=m)
  sampled_state = head.init_state(table, as_counts(COUNTS[:few]))
  for ids in itertools.product(range(few), repeat=m):
    out = of_draw(sampled_state, jnp.array([ids]))
    p = jnp.prod(p_V[jnp.array(ids)])
    dh_ND += p * out.dh_ND
    dw_VD = dw_VD.at[out.grads.rows.ids_R].add(p * out.grads.rows.rows_RD, mode="drop")
  np.testing.assert_allclose(dh_ND, want.dh_ND, atol=1e-6)
  full_dw_VD = full.update(state._replace(table=table), want.grads, -1.0, 1.0)
  np.testing.assert_allclose(dw_VD, full_dw_VD.table.w_VD - w_VD, atol=1e-5)


@pytest.mark.parametrize(
  "sampler",
  others_long(
    [Unigram(per_example=True), Bigram(), Quadratic(), Quadratic(leaf_size=4), Block()],
    [Unigram(per_example=True), Quadratic()],
  ),
)
def test_draws_per_example_vary_less_than_with_their_plain_law(sampler):
  """The draws are weighted by the law given that they miss the true class."""
  plain = type("Plain", (type(sampler),), {"independent": False})
  absolute = getattr(sampler, "absolute", False)
  relvar = {}
  for law in (sampler, plain(**dataclasses.asdict(sampler))):
    head = Sampled(sampler=law, num_samples=20, absolute=absolute, refresh_every=0)
    h_ND, y = batch()
    counts = Counts(COUNTS, tokens=np.random.default_rng(0).integers(0, V, 1000))
    state = head.init(KEY, counts, D)
    w_VD = 20 * state.table.w_VD
    state = state._replace(table=state.table._replace(w_VD=w_VD))
    state = head.refresh(state, KEY)
    keys = jax.random.split(KEY, 20)
    monitor = jax.jit(lambda key: head.monitor(state, h_ND, y, key)["relvar"])  # noqa: B023
    relvar[law.independent] = np.mean([monitor(key) for key in keys])
  assert relvar[True] < relvar[False]


NORMALISERS = [
  Sampled(sampler=Unigram(per_example=True), num_samples=10, exact_frequent=4),
  Sampled(sampler=PPS(), num_samples=10),
  Sampled(sampler=ExactSet(exact=5), num_samples=10, exact_ids=(3, 17)),
  Sampled(sampler=Uniform(), num_samples=10),
  Sampled(sampler=Unigram(per_example=True), num_samples=10),
  Sampled(sampler=ExactSet(exact=5), num_samples=10),
  Sampled(sampler=ExactSet(exact=5, per_example=True), num_samples=10),
  Sampled(sampler=Unigram(), num_samples=10, exact_frequent=4, exact_ids=(2, 17)),
]


@pytest.mark.parametrize("head", others_long(NORMALISERS, NORMALISERS[:3]))
def test_normaliser_is_unbiased(head):
  """Draws that hit the true class or the exact set are masked."""
  h_ND, y = batch()
  state = head.init(KEY, COUNTS, D)
  state = state._replace(table=state.table._replace(w_VD=10 * state.table.w_VD))
  one = lambda h_D, id: head_z(head, state, h_D[None], single_targets(id[None]))
  z_NS = jax.jit(jax.vmap(one))(h_ND, y.ids_NP[:, 0])
  log_z_N = jax.nn.logsumexp(h_ND @ state.table.w_VD[:, :D].T, axis=1)
  ratio_NS = z_NS / jnp.exp(log_z_N)[:, None]
  error_N = ratio_NS.std(axis=1) / np.sqrt(ratio_NS.shape[1])
  assert float(jnp.max(jnp.abs(ratio_NS.mean(axis=1) - 1) / error_N)) < 4.5
  # The test would see the true class counted twice where it is likely enough.
  true_N = jnp.exp(head_true(state, h_ND, y) - log_z_N)
  assert float(jnp.max(true_N / error_N)) > 9


def test_classes_of_the_batch_are_summed_exactly():
  """If only classes of the batch are possible, the loss is that of these classes."""
  h_ND, _ = batch()
  y = single_targets([3, 4, 3, 9, 1, 2, 5])
  y = y._replace(w_NP=y.w_NP.at[-1].set(0))  # 5 is no class of the batch
  head = Sampled(sampler=AlwaysClass(target=3), num_samples=6, exact_batch=True)
  state = head.init(KEY, COUNTS, D)
  o_NV = head.features(h_ND) @ state.table.w_VD.T
  ids_N = np.asarray(y.ids_NP[:, 0])
  few = jnp.array([1, 2, 3, 4, 9])
  log_z_N = jax.nn.logsumexp(o_NV[:, few], axis=1)
  want = np.mean((log_z_N - o_NV[np.arange(N), ids_N])[:-1])
  out = backward(head, state, h_ND, y, KEY)
  np.testing.assert_allclose(out.loss, want, rtol=1e-5)
  touched = {int(i) for i in out.grads.rows.ids_R if i < V}
  assert touched == {1, 2, 3, 4, 9}


def test_frequent_classes_are_those_with_the_largest_counts():
  counts = np.array([1, 5, 3, 9, 0])
  head = Sampled(exact_frequent=2, exact_ids=(4, 3))
  state = head.init(KEY, counts, D)
  assert sorted(state.exact_T.tolist()) == [1, 3, 4]
  assert Sampled().init(KEY, counts, D).exact_T is None


def test_nonexistent_exact_classes_are_named():
  message = f"head.exact_ids contains {V}, but there are 30"
  with pytest.raises(UserError, match=message):
    Sampled(exact_ids=(0, V)).init(KEY, COUNTS, D)
  with pytest.raises(UserError, match=r"exact_ids is \(1, 1\); they must differ"):
    Sampled(exact_ids=(1, 1))
  with pytest.raises(UserError, match=f"head.exact_frequent is {V + 1}, but there are"):
    Sampled(exact_frequent=V + 1).init(KEY, COUNTS, D)


def of_three_draws(name):
  """A head with this sampler, and the shapes of its state."""
  sampler = SAMPLERS[name]()
  absolute = getattr(sampler, "absolute", False)
  head = Sampled(sampler=sampler, num_samples=3, absolute=absolute)
  tokens = np.arange(2 * V, dtype=np.int32) % V
  return head, jax.eval_shape(lambda: head.init(KEY, Counts(np.full(V, 2), tokens), D))


@pytest.mark.parametrize("name", SAMPLERS)
def test_number_of_draws_other_than_at_init_is_named(name):
  """For any sampler, weights and draws would differ in number."""
  head, state = of_three_draws(name)
  more = dataclasses.replace(head, num_samples=4)
  with pytest.raises(UserError, match=r"made for 3 draws, but head\.num_samples is 4"):
    jax.eval_shape(more.backward, state, *batch(), KEY)


@pytest.mark.parametrize(
  "name", others_long(SAMPLERS, ["pps", "bernoulli", "ivf", "quadratic", "mixture"])
)
def test_number_of_draws_as_at_init_is_accepted(name):
  """By default of samplers whose statistics are of different kinds."""
  head, state = of_three_draws(name)
  jax.eval_shape(head.backward, state, *batch(), KEY)


@pytest.mark.parametrize("wrong", [("a",), 5, (1.5,), (0, -1)])
def test_exact_classes_that_are_not_ids_are_named(wrong):
  with pytest.raises(UserError, match=r"^Sampled\.exact_ids is .*; (it|each) must"):
    Sampled(exact_ids=wrong)


def head_true(state, h_ND, y):
  return jnp.sum(h_ND * state.table.w_VD[y.ids_NP[:, 0], :D], axis=1)


def head_z(head, state, h_ND, y, draws=4000):
  """Estimates Z~ over many draws: exp(loss + o_y)."""
  keys = jax.random.split(jax.random.key(1), draws)
  loss_S = jax.lax.map(lambda k: backward(head, state, h_ND, y, k).loss, keys)
  return jnp.exp(loss_S + head_true(state, h_ND, y))


def test_draws_that_all_hit_the_true_class_leave_nothing_to_learn():
  head = Sampled(sampler=AlwaysClass(target=3), num_samples=6)
  h_ND, _ = batch()
  out = backward(head, head.init(KEY, COUNTS, D), h_ND, single_targets([3] * N), KEY)
  assert float(out.loss) == pytest.approx(0, abs=1e-6)
  assert not out.dh_ND.any()
  assert float(out.sq_norm) == 0


def test_corrected_positive_equals_tensorflows_formula():
  head = Sampled(
    loss=SampledSoftmax(correct_positive=True), sampler=Unigram(), num_samples=9
  )
  h_ND, y = batch(3)
  state = head.init(KEY, COUNTS, D)
  key = jax.random.key(5)
  w_VD = state.table.w_VD[:, :D]
  x_ND = head.features(h_ND)
  draw = head.sampler.sample(state.stats, state.table.w_VD, key, x_ND, y)
  q_V = (COUNTS + 1) / (COUNTS + 1).sum()
  ids_N = np.asarray(y.ids_NP[:, 0])
  true_N1 = (jnp.sum(h_ND * w_VD[ids_N], 1) - np.log(9 * q_V[ids_N]))[:, None]
  o_NM = h_ND @ w_VD[draw.ids].T - np.log(9 * q_V[np.asarray(draw.ids)])[None, :]
  o_NM = jnp.where(draw.ids[None, :] == ids_N[:, None], -jnp.inf, o_NM)
  logits = jnp.concatenate([true_N1, o_NM], axis=1)
  want = jnp.mean(-jax.nn.log_softmax(logits)[:, 0])
  loss = backward(head, state, h_ND, y, key).loss
  assert float(loss) == pytest.approx(float(want), rel=1e-4)


def test_label_given_twice_counts_as_that_label():
  h_ND, y = batch()
  twice = y._replace(ids_NP=jnp.repeat(y.ids_NP, 2, axis=1), w_NP=jnp.full((N, 2), 0.5))
  for correct in (False, True):
    head = Sampled(
      loss=SampledSoftmax(correct_positive=correct), sampler=Unigram(), num_samples=9
    )
    state = head.init(KEY, COUNTS, D)
    a, b = (backward(head, state, h_ND, t, KEY) for t in (y, twice))
    np.testing.assert_allclose(a.loss, b.loss, rtol=1e-6)
    np.testing.assert_allclose(a.dh_ND, b.dh_ND, atol=1e-6)


@dataclasses.dataclass(frozen=True)
class FirstClasses(Uniform):
  """Draws per example, with a law of its own, from the first `V` classes of any table.

  Attributes:
    exact: what is summed exactly besides: 'none', 'shared' or 'own' classes.
  """

  exact: str = "none"

  def sample(self, stats, w_VD, key, h_ND, y):
    rng, shape = np.random.default_rng(0), (N, stats.size.m)
    ids_NM = jnp.asarray(rng.integers(0, V, shape), jnp.int32)
    mask_NM = jnp.asarray(rng.random(shape) < 0.8)
    draw = Draw(ids_NM, self.log_expected(stats, w_VD, h_ND, y, ids_NM), mask_NM)
    if self.exact == "none":
      return draw
    exact_S = jnp.array([3, 0, w_VD.shape[0], 8], jnp.int32)
    own_NS = jnp.broadcast_to(exact_S, (N, 4)).at[2:, 1].set(11)
    return draw._replace(exact_ids=exact_S if self.exact == "shared" else own_NS)

  def log_expected(self, stats, w_VD, h_ND, y, ids):
    return jnp.log(0.1 * (1.0 + ids))


PARTIAL = [
  Sampled(sampler=FirstClasses(), num_samples=10),
  Sampled(sampler=FirstClasses(exact="shared"), num_samples=10),
  Sampled(
    loss=SampledSoftmax(correct_positive=True),
    sampler=FirstClasses(exact="own"),
    num_samples=10,
  ),
  Sampled(sampler=FirstClasses(), num_samples=10, absolute=True, bias=False),
  Sampled(
    loss=SampledSoftmax(correct_positive=True), sampler=FirstClasses(), num_samples=10
  ),
  Sampled(sampler=FirstClasses(exact="own"), num_samples=10, dtype="bfloat16"),
]


@pytest.mark.parametrize("head", others_long(PARTIAL, PARTIAL[:3]))
def test_further_classes_that_are_never_drawn_change_nothing(head):
  """With few classes all logits are computed; with many, only the rows needed."""
  h_ND, _ = batch()
  w_NP = jnp.asarray(np.random.default_rng(2).uniform(0.1, 1, (N, 3)), jnp.float32)
  w_NP = w_NP.at[0, 1:].set(0).at[1].set(0)

  def dense_step(num_classes):
    ids_NP = jnp.asarray(np.random.default_rng(1).integers(0, V, (N, 3)), jnp.int32)
    ids_NP = ids_NP.at[0, 1:].set(num_classes).at[2, :2].set(5)  # padding; twice
    y = single_targets(ids_NP[:, 0])._replace(ids_NP=ids_NP, w_NP=w_NP)
    state = head.init(KEY, np.ones(num_classes, int), D)
    rows_VD = jax.random.normal(KEY, (V, state.table.w_VD.shape[1]))
    w_VD = state.table.w_VD.at[:V].set(rows_VD)
    state = state._replace(table=state.table._replace(w_VD=w_VD))
    out = backward(head, state, h_ND, y, KEY)
    ids_R = np.asarray(out.grads.rows.ids_R)
    touched = sorted(ids_R[ids_R < num_classes].tolist())
    dw_VD = jnp.zeros_like(w_VD).at[ids_R].add(out.grads.rows.rows_RD, mode="drop")
    return out, touched, dw_VD[:V]

  (few, few_touched, few_dw_VD), (many, many_touched, many_dw_VD) = map(
    dense_step, (V, 100 * V)
  )
  assert len(few.grads.rows.ids_R) == V < len(many.grads.rows.ids_R) < 100 * V
  tol = {"atol": 2e-3} if head.dtype == "bfloat16" else {"rtol": 1e-4, "atol": 1e-6}
  np.testing.assert_allclose(few.loss, many.loss, rtol=1e-5)
  np.testing.assert_allclose(few.dh_ND, many.dh_ND, **tol)
  np.testing.assert_allclose(few_dw_VD, many_dw_VD, **tol)
  rtol = 1e-2 if head.dtype == "bfloat16" else 1e-5
  np.testing.assert_allclose(few.sq_norm, many.sq_norm, rtol=rtol)
  assert few_touched == many_touched


def test_sampler_of_another_model_is_refused():
  with pytest.raises(UserError, match=r"head\.absolute"):
    Sampled(absolute=True, sampler=Softmax())
  for sampler in (SCE(), LSHEmbedding(family="mips"), Mixture("uniform", "sce")):
    with pytest.raises(UserError, match="follows o and has no setting to follow"):
      Sampled(absolute=True, sampler=sampler)
  with pytest.raises(UserError, match="chooses classes instead of drawing them"):
    Sampled(loss=NCE(), sampler=Mixture("top_k", "sce"))


def test_bfloat16_keeps_rows_and_sums_in_float32():
  head, exact = Sampled(num_samples=16, dtype="bfloat16"), Sampled(num_samples=16)
  h_ND, y = batch()
  state = exact.init(KEY, COUNTS, D)
  a, b = (backward(x, state, h_ND, y, KEY) for x in (head, exact))
  assert a.grads.rows.rows_RD.dtype == a.loss.dtype == jnp.float32
  assert 0 < abs(float(a.loss - b.loss)) < 1e-2 * float(b.loss)
  np.testing.assert_allclose(a.dh_ND, b.dh_ND, atol=2e-3)


# Heads, and the temporary bytes of their step for each class: blocks of 64 have weights
# for each example, and a CPU copies both numbers of a class that the last two samplers
# keep.
INDEPENDENT = {
  "pps": (Sampled(num_samples=64), 0),
  "pps, adagrad": (Sampled(num_samples=64, optimizer=Adagrad()), 0),
  "bigram": (Sampled(num_samples=64, sampler=Bigram()), 0),
  "bernoulli": (Sampled(num_samples=64, sampler=Bernoulli()), 0),
  "importance": (Sampled(num_samples=64, sampler=Uniform(), loss=Importance()), 0),
  "lsh_label": (Sampled(num_samples=16, sampler=LSHLabel(tables=6)), 0),
  # Of so many rows that they are written in parts.
  "lsh_label, parts": (Sampled(num_samples=256, sampler=LSHLabel(tables=6)), 0),
  "block, parts": (Sampled(num_samples=256, sampler=Block(leaf_size=64)), 2),
  "huffman": (Huffman(), 0),
  "in_batch": (Sampled(num_samples=64, sampler=InBatch()), 8),
  "cbns": (Sampled(num_samples=64, sampler=CBNS()), 8),
}


@pytest.mark.parametrize(
  "name",
  others_long(
    INDEPENDENT,
    ["pps", "block, parts"],
  ),
)
def test_step_neither_makes_nor_copies_arrays_of_the_tables_size(name):
  head, bytes_per_class = INDEPENDENT[name]
  dim, y = 16, single_targets(np.arange(16))

  def temp_bytes(num_classes):
    tokens = np.arange(500, dtype=np.int32)
    counts = Counts(np.bincount(tokens, minlength=num_classes) + 1, tokens)
    state = jax.eval_shape(lambda: head.init(KEY, counts, dim))

    def step(state, h_ND, key):
      out = head.backward(state, h_ND, y, key)
      return head.update(state, out.grads, 0.1, 1.0), out.dh_ND

    lowered = jax.jit(step, donate_argnums=0).lower(state, jnp.ones((16, dim)), KEY)
    memory = lowered.compile().memory_analysis()
    assert memory.alias_size_in_bytes >= 4 * num_classes * dim
    return memory.temp_size_in_bytes

  few, many = 20_000, 160_000
  growth = temp_bytes(many) - temp_bytes(few)
  # A tree has three more levels; a vector over classes would be half a megabyte more.
  assert growth <= (many - few) * bytes_per_class + 2**14


def test_uncorrected_loss_is_the_softmax_over_the_active_set():
  """The true classes and the drawn ones, each once, whatever their law; hits count as
  true, and what is not used of a draw not at all."""
  h_ND, _ = batch()
  rng = np.random.default_rng(3)
  ids_NP = np.stack([rng.permutation(V)[:2] for _ in range(N)])
  y = Targets(jnp.asarray(ids_NP), jnp.full((N, 2), 0.5), jnp.zeros(N, jnp.int32))
  drawn_NM = rng.integers(0, 9, (N, 12))  # many repeat, some are true
  used_NM = rng.random((N, 12)) < 0.8

  @dataclasses.dataclass(frozen=True)
  class Given(Uniform):
    """Draws the given classes; its law must not be read."""

    def sample(self, stats, w_VD, key, h_ND, y):
      log_expected = jnp.asarray(rng.normal(size=(N, 12)))
      return Draw(jnp.asarray(drawn_NM), log_expected, jnp.asarray(used_NM))

  head = Sampled(loss=SampledSoftmax(corrected=False), sampler=Given(), num_samples=12)
  state = head.init(KEY, COUNTS, D)
  state = state._replace(table=state.table._replace(w_VD=10 * state.table.w_VD))

  def naive(h_ND):
    o_NV = head.features(h_ND) @ state.table.w_VD.T
    active_NV = np.zeros((N, V), bool)
    active_NV[np.arange(N)[:, None], ids_NP] = True
    for n in range(N):
      active_NV[n, drawn_NM[n, used_NM[n]]] = True
    log_p_NV = jax.nn.log_softmax(jnp.where(active_NV, o_NV, -jnp.inf))
    return -jnp.mean(jnp.take_along_axis(log_p_NV, ids_NP, axis=1))

  out = backward(head, state, h_ND, y, KEY)
  loss, dh_ND = jax.value_and_grad(naive)(h_ND)
  np.testing.assert_allclose(out.loss, loss, rtol=1e-5)
  np.testing.assert_allclose(out.dh_ND, dh_ND, atol=1e-6)
  corrected = dataclasses.replace(head, loss=SampledSoftmax())
  corrected = backward(corrected, state, h_ND, y, KEY)
  assert abs(corrected.loss - out.loss) > 0.1
  with pytest.raises(UserError, match=r"head\.loss\.corrected is False"):
    SampledSoftmax(corrected=False, correct_positive=True)


@pytest.mark.parametrize("loss", [SampledSoftmax(), NCE()])
def test_example_of_negative_weight_has_a_gradient(loss):
  """For example an advantage, or an example to be unlearnt."""
  head = Sampled(loss=loss, num_samples=9, sampler=Unigram())
  h_ND, y = batch()
  y = y._replace(w_NP=y.w_NP.at[2].set(-0.5))
  state = head.init(KEY, COUNTS, D)
  out = backward(head, state, h_ND, y, KEY)
  loss = lambda h_ND: backward(head, state, h_ND, y, KEY).loss
  step = 0.5 * jax.random.normal(KEY, (D,))
  slope = (loss(h_ND.at[2].add(step)) - loss(h_ND.at[2].add(-step))) / 2
  np.testing.assert_allclose(out.dh_ND[2] @ step, slope, rtol=1e-2)
  assert abs(float(slope)) > 1e-6


def test_draw_without_a_key_is_refused():
  head, y = Sampled(num_samples=2), single_targets([1])
  state = head.init(KEY, COUNTS, D)
  with pytest.raises(UserError, match="key is None: pass"):
    head.backward(state, jnp.ones((1, D)), y, None)


@pytest.mark.parametrize("head", [Sampled(num_samples=4), Huffman()], ids=repr)
def test_gradients_leave_out_the_example_of_an_invalid_label(head):
  """The loss is NaN, but gradients equal those of a batch that ignores the example."""
  h_ND, y = batch()
  state = head.init(KEY, COUNTS, D)
  invalid = y._replace(ids_NP=y.ids_NP.at[2].set(-1))
  ignored = invalid._replace(w_NP=y.w_NP.at[2].set(0))
  got, want = (backward(head, state, h_ND, y, KEY) for y in (invalid, ignored))
  assert np.isnan(got.loss)
  assert np.isfinite(want.loss)
  others = np.arange(N) != 2
  np.testing.assert_allclose(got.dh_ND[others], want.dh_ND[others], rtol=1e-6)
  np.testing.assert_allclose(got.sq_norm, want.sq_norm, rtol=1e-6)
