"""Tests what discriminative losses learn, and what evaluation reports."""

import dataclasses
import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.heads import Sampled
from largevocab.labels import Counts, single_targets
from largevocab.losses import (
  NCE,
  BlackOut,
  Importance,
  NegativeSampling,
  Ranking,
  UpperBound,
)
from largevocab.rows import SGD
from largevocab.samplers import (
  CBNS,
  PPS,
  RECE,
  SCE,
  Bernoulli,
  InBatch,
  LSHLabel,
  TopK,
  Uniform,
  Unigram,
)
from tests.heads.compiled import evaluate, top_k


@dataclasses.dataclass(frozen=True)
class BlackOutWithHits(BlackOut):
  """BlackOut that keeps all draws of the proposal distribution, also the label."""

  keeps_hits: ClassVar[bool] = True


LABELS = np.repeat(np.arange(5), [10, 5, 3, 1, 1])
LAW = np.bincount(LABELS) / len(LABELS)
K = 40


@dataclasses.dataclass(frozen=True)
class NCEWithoutHits(NCE):
  """NCE as in other code: noise that equals the label is left out."""

  keeps_hits: ClassVar[bool] = False


@functools.cache
def learnt(head, steps=600):
  """Scores of all classes after training on one context, a mean over the last steps."""
  h_ND, y = jnp.ones((len(LABELS), 1)), single_targets(LABELS)
  state = head.init(jax.random.key(0), np.bincount(LABELS), 1)

  def step(state, key):
    out = head.backward(state, h_ND, y, key)
    state = head.update(state, out.grads, 0.5, 1.0)
    return state, state

  _, states = jax.lax.scan(step, state, jax.random.split(jax.random.key(1), steps))
  last = jax.tree.map(lambda x: x[-steps // 2 :].mean(0), states)
  return last.table.w_VD[:, 0], last


plain = {"bias": False, "num_samples": K, "init_scale": 0.0}
own = {"sampler": Unigram(per_example=True)}


@pytest.mark.parametrize(
  "head",
  [
    Sampled(loss=NCE(), **plain, **own),
    Sampled(loss=NCE(normalizer="global"), **plain, sampler=PPS(), refresh_every=0),
    pytest.param(
      Sampled(loss=NCE(normalizer="context"), **plain, **own), marks=pytest.mark.long
    ),
    Sampled(loss=BlackOutWithHits(), **plain, **own),
    pytest.param(Sampled(**plain, **own), marks=pytest.mark.long),
  ],
  ids=lambda head: type(head.loss).__name__,
)
def test_many_draws_learn_the_law_of_the_labels(head):
  if isinstance(head.sampler, PPS):  # all of the five classes
    head = dataclasses.replace(head, num_samples=5)
  scores_V, _ = learnt(head)
  np.testing.assert_allclose(jax.nn.log_softmax(scores_V), np.log(LAW), atol=0.12)


def test_nce_normalises_itself_with_z_of_one_and_learns_a_z():
  scores_V, _ = learnt(Sampled(loss=NCE(), **plain, **own))
  np.testing.assert_allclose(jax.nn.logsumexp(scores_V), 0, atol=0.1)
  head = Sampled(loss=NCE(normalizer="global"), **plain, **own)
  scores_V, state = learnt(head)
  log_z = state.log_z.w_VD[0, 0]
  np.testing.assert_allclose(jax.nn.logsumexp(scores_V), log_z, atol=0.1)


def test_upper_bound_learns_the_law_only_if_all_classes_are_drawn():
  """With five draws of five it is the softmax; with fewer, scores near 0 cost least."""
  few = {**plain, "num_samples": 2, "loss": UpperBound()}
  for all_in in ({"num_samples": 5}, {"exact_frequent": 5}, {"exact_batch": True}):
    scores_V, _ = learnt(Sampled(**few | all_in, sampler=PPS()))
    np.testing.assert_allclose(jax.nn.log_softmax(scores_V), np.log(LAW), atol=0.12)
  scores_V, _ = learnt(Sampled(**few, sampler=PPS()))
  log_p_V = np.asarray(jax.nn.log_softmax(scores_V))
  assert np.abs(log_p_V - np.log(LAW)).max() > 0.3
  assert np.ptp(log_p_V) < np.ptp(np.log(LAW))


@pytest.mark.parametrize("loss", [NCEWithoutHits(), BlackOut()])
def test_another_law_is_learnt_without_draws_that_hit_the_label(loss):
  """For BlackOut this is the definition; it matters if draws often hit the label."""
  scores_V, _ = learnt(Sampled(loss=loss, **plain, **own))
  assert np.abs(jax.nn.log_softmax(scores_V) - np.log(LAW)).max() > 0.3


def test_negative_sampling_learns_its_own_optimum_and_not_the_law():
  """Negatives leave the label out: sigma = p / (p + k q (1 - p))."""
  sampler = Uniform(per_example=True)
  scores_V, _ = learnt(Sampled(loss=NegativeSampling(), **plain, sampler=sampler))
  want_V = np.log(LAW / (K / 5 * (1 - LAW)))
  np.testing.assert_allclose(scores_V, want_V, atol=0.12)
  assert np.abs(jax.nn.log_softmax(scores_V) - np.log(LAW)).max() > 0.3


@pytest.mark.parametrize(
  ("sampler", "m", "calibration", "mean"),
  [
    (Uniform(per_example=True), 2, 0.0, False),
    (Unigram(per_example=True), K, 0.0, True),
    (Unigram(per_example=True, power=0.5), 2, 0.6, True),
    (Bernoulli(per_example=True, smoothing=2.0), 3, 0.0, False),
  ],
  ids=lambda value: type(value).__name__,
)
def test_negative_sampling_with_log_q_evaluates_to_the_law(
  sampler, m, calibration, mean
):
  """Tests its optimum, set by hand for each class; scores alone do not give the law."""
  head = Sampled(
    loss=NegativeSampling(calibration=calibration, mean=mean),
    bias=False,
    num_samples=m,
    sampler=sampler,
  )
  state = head.init(jax.random.key(0), np.bincount(LABELS), 1)
  h_ND, y = jnp.ones((5, 1)), single_targets(np.arange(5))
  law = state.stats, state.table.w_VD, h_ND, y, jnp.arange(5)
  expected_V = np.exp(np.float64(jax.jit(sampler.log_expected)(*law)))[0]
  weight = min(1, m / 4) * calibration + 1 - calibration
  weight *= m if mean else 1
  best_V = np.log(weight * LAW / ((1 - LAW) * expected_V))
  table = state.table._replace(w_VD=jnp.asarray(best_V[:, None], jnp.float32))
  state = state._replace(table=table)
  metrics = evaluate(head, state, h_ND, y)
  for name in ("nll", "self_normalised_nll"):
    np.testing.assert_allclose(metrics[name], -np.log(LAW), rtol=1e-5)
  np.testing.assert_allclose(metrics["log_z"], 0, atol=1e-6)
  ids_NK, log_p_NK = top_k(head, state, h_ND[:1], 5)
  assert ids_NK[0, :3].tolist() == [0, 1, 2]
  np.testing.assert_allclose(log_p_NK[0], np.sort(np.log(LAW))[::-1], rtol=1e-5)
  bare = dataclasses.replace(head, loss=NegativeSampling(add_log_q=False))
  nll_N = evaluate(bare, state, h_ND, y)["nll"]
  off_N = nll_N + np.log(LAW)  # and not by a constant
  assert np.ptp(off_N) > 0.1


def test_negative_sampling_with_log_q_learns_the_law():
  """The same by training, with uniform or unigram draws; scores alone do not."""
  for sampler in (Uniform(per_example=True), Unigram(per_example=True)):
    head = Sampled(loss=NegativeSampling(), **plain, sampler=sampler)
    _, state = learnt(head)
    h_ND, y = jnp.ones((5, 1)), single_targets(np.arange(5))
    nll_N = evaluate(head, state, h_ND, y)["nll"]
    np.testing.assert_allclose(nll_N, -np.log(LAW), atol=0.12)
    bare = dataclasses.replace(head, loss=NegativeSampling(add_log_q=False))
    nll_N = evaluate(bare, state, h_ND, y)["nll"]
    assert np.abs(nll_N + np.log(LAW)).max() > 0.3


def test_class_that_is_never_drawn_has_no_probability():
  head = Sampled(loss=NegativeSampling(), num_samples=4, sampler=Unigram(smoothing=0.0))
  state = head.init(jax.random.key(0), np.array([3, 0, 2]), 2)
  y = single_targets([0, 0])
  assert np.isfinite(evaluate(head, state, jnp.ones((2, 2)), y)["nll"]).all()
  ids_NK, log_p_NK = top_k(head, state, jnp.ones((2, 2)), 3)
  assert (ids_NK[:, 2] == 1).all()
  assert (log_p_NK[:, 2] < -1e20).all()
  y = single_targets([0, 1], [1, 0])  # without weight it matters to nobody
  assert np.isfinite(evaluate(head, state, jnp.ones((2, 2)), y)["nll"]).all()


def test_calibrated_negative_sampling_is_as_sure_as_with_all_classes():
  """With all classes as negatives sigma = p, as with few calibrated negatives."""
  sampler = Uniform(per_example=True)
  loss = NegativeSampling(calibration=1.0)
  few = Sampled(loss=loss, **plain | {"num_samples": 2}, sampler=sampler)
  scores_V, _ = learnt(few, 3000)
  # M = 2 of the 4 other classes, as 2/5 of each in expectation: rates 1/2 and 2/5.
  want_V = np.log(0.5 * LAW / (0.4 * (1 - LAW)))
  np.testing.assert_allclose(scores_V, want_V, atol=0.15)


HEADS = [
  Sampled(loss=NCE(), num_samples=8, sampler=Unigram()),
  Sampled(loss=NCE(normalizer="context"), num_samples=8, sampler=Unigram()),
  Sampled(
    loss=NegativeSampling(add_log_q=False), num_samples=8, sampler=Unigram(power=0.75)
  ),
  Sampled(
    loss=NegativeSampling(), num_samples=8, sampler=PPS(power=0.5), absolute=True
  ),
  Sampled(loss=Ranking(), num_samples=8, sampler=Uniform()),
  Sampled(loss=BlackOut(), num_samples=8, absolute=True, sampler=Unigram(power=0.5)),
]


def with_log_q(head, o_NV, counts_V):
  """Scores with the logQ term, if the loss adds one."""
  if not getattr(head.loss, "add_log_q", False):
    return o_NV
  assert isinstance(head.sampler, PPS)
  stats = head.sampler.init(Counts(counts_V), np.zeros((len(counts_V), 1)), 8)
  s_NV = o_NV + np.float64(stats.strata.log_expected_V)
  return -np.log1p(np.exp(-s_NV))


@pytest.mark.parametrize("head", HEADS, ids=lambda head: type(head.loss).__name__)
def test_evaluation_reports_both_losses_and_the_normaliser(head):
  V, D, N = 9, 4, 6
  rng = np.random.default_rng(0)
  h_ND = jnp.asarray(rng.standard_normal((N, D)), jnp.float32)
  y = single_targets(rng.integers(0, V, N))
  y = y._replace(context_N=jnp.asarray(rng.integers(0, V, N)))
  state = head.init(jax.random.key(0), np.arange(V, 0, -1), D)
  w_VD = jnp.asarray(rng.standard_normal(state.table.w_VD.shape), jnp.float32)
  state = state._replace(table=state.table._replace(w_VD=w_VD))
  log_norm_N = np.zeros(N)
  if state.log_z is not None:
    learnt_V = rng.standard_normal(V).astype("f")
    log_z = state.log_z._replace(w_VD=jnp.asarray(learnt_V)[:, None])
    state = state._replace(log_z=log_z)
    log_norm_N = learnt_V[np.asarray(y.context_N)]
  o_NV = np.asarray(head.features(h_ND) @ w_VD.T, np.float64)
  o_NV = np.abs(o_NV) if head.absolute else o_NV
  o_NV = with_log_q(head, o_NV, np.arange(V, 0, -1))
  log_z_N = np.log(np.exp(o_NV).sum(1))
  o_N = o_NV[np.arange(N), np.asarray(y.ids_NP[:, 0])]
  metrics = evaluate(head, state, h_ND, y)
  assert metrics.keys() == {"nll", "self_normalised_nll", "log_z"}
  np.testing.assert_allclose(metrics["nll"], log_z_N - o_N, rtol=1e-5)
  np.testing.assert_allclose(metrics["log_z"], log_z_N - log_norm_N, rtol=1e-5)
  own_N = log_norm_N - o_N
  np.testing.assert_allclose(
    metrics["self_normalised_nll"], own_N, rtol=1e-4, atol=1e-5
  )


def test_nce_starts_normalised_where_it_can():
  """z = V at the start is what makes z = 1 diverge at the rates of other losses."""
  y = single_targets([1, 2, 3])
  for normalizer in ("one", "global", "context"):
    head = Sampled(
      loss=NCE(normalizer=normalizer), num_samples=8, init_scale=0.0, sampler=Unigram()
    )
    state = head.init(jax.random.key(0), np.ones(7, int), 2)
    log_z_N = evaluate(head, state, jnp.ones((3, 2)), y)["log_z"]
    np.testing.assert_allclose(log_z_N, 0, atol=1e-5)


def test_each_context_has_its_own_normaliser():
  """Only contexts of the batch change; contexts share normalisers if there are few."""
  head = Sampled(
    loss=NCE(normalizer="context", num_contexts=5),
    num_samples=8,
    optimizer=SGD(),
    sampler=Unigram(),
  )
  h_ND, y = jnp.ones((3, 2)), single_targets([1, 2, 3])
  y = y._replace(context_N=jnp.array([1, 4, 8]))  # 8 has the last one
  state = head.init(jax.random.key(0), np.ones(7, int), 2)
  np.testing.assert_allclose(state.log_z.w_VD, np.log(7), rtol=1e-6)
  out = jax.jit(head.backward)(state, h_ND, y, jax.random.key(1))
  after = jax.jit(head.update)(state, out.grads, 0.1, 1.0)
  moved = np.flatnonzero(after.log_z.w_VD[:, 0] != state.log_z.w_VD[:, 0])
  assert moved.tolist() == [1, 4]
  assert out.sq_norm > jnp.sum(out.grads.rows.rows_RD**2)


@pytest.mark.parametrize(
  ("make", "message"),
  [
    (lambda: NCE(normalizer="two"), "^NCE.normalizer is 'two'; it must be one of"),
    (lambda: NCE(num_contexts=-1), "^NCE.num_contexts is -1; it must"),
    (
      lambda: NegativeSampling(calibration=1.5),
      "calibration is 1.5; it must be",
    ),
    (
      lambda: Sampled(loss=UpperBound(), sampler=Unigram()),
      "Unigram may draw a class twice, but the loss UpperBound needs",
    ),
    (
      lambda: Ranking(penalty="cubic"),
      "^Ranking.penalty is 'cubic'; it must be one",
    ),
    (
      lambda: Ranking(alpha="log(V)"),
      r"^Ranking.alpha is 'log\(V\)'; it must be a",
    ),
    (lambda: Ranking(alpha=None), "^Ranking.alpha is None; it must be of type"),
    (lambda: Ranking(alpha="inf"), "^Ranking.alpha is 'inf'; it must be at most"),
    (
      lambda: Sampled(loss=NCE(), sampler=LSHLabel()),
      "head.sampler depends on the true classes, but the loss .* noise",
    ),
    *(
      (
        functools.partial(Sampled, loss=NCE(), sampler=sampler),
        f"^{type(sampler).__name__} chooses classes instead of drawing .* noise",
      )
      for sampler in (TopK(), SCE(), RECE())
    ),
    (
      lambda: Sampled(loss=Importance(), sampler=CBNS()),
      "head.sampler draws the true classes of the batch, .* keeps accidental hits",
    ),
    (
      lambda: Sampled(sampler=InBatch(), exact_batch=True),
      "^head.exact_batch sums the classes of the batch",
    ),
    *(
      (
        lambda exact=exact: Sampled(loss=NCE(), **exact),
        "make a likelihood exact, but the loss of this head is not a likelihood",
      )
      for exact in ({"exact_batch": True}, {"exact_frequent": 2}, {"exact_ids": (3,)})
    ),
  ],
)
def test_impossible_settings_are_named(make, message):
  with pytest.raises(UserError, match=message):
    make()
