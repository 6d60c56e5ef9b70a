"""Ranking metrics, compared with a loop over examples."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import config as c
from largevocab.data import EvaluationBatches
from largevocab.errors import UserError
from largevocab.evaluation import retrieval
from largevocab.evaluation.evaluate import Evaluate
from largevocab.labels import Counts, Targets
from largevocab.training.state import init_state

V = 30


def naive(score_NV, ids_NP, w_NP, k):
  """Recall and reciprocal rank of each example, with ties in order of id."""
  recall, mrr = [], []
  for score_V, ids_P, w_P in zip(score_NV, ids_NP, w_NP, strict=True):
    best = sorted(range(len(score_V)), key=lambda c: (-score_V[c], c))[:k]
    true = {i: w for i, w in zip(ids_P.tolist(), w_P.tolist(), strict=True) if w}
    recall.append(sum(w for i, w in true.items() if i in best) / sum(true.values()))
    ranks = [1 + best.index(i) for i in true if i in best]
    mrr.append(1 / min(ranks) if ranks else 0.0)
  return recall, mrr


@pytest.mark.parametrize("k", [1, 4, V])
def test_metrics_of_several_true_classes_equal_a_loop(k):
  rng = np.random.default_rng(0)
  score_NV = rng.integers(0, 8, (40, V)).astype(np.float32)  # with many ties
  ids_NP = np.stack([rng.permutation(V)[:3] for _ in range(40)]).astype(np.int32)
  w_NP = rng.integers(0, 3, (40, 3)).astype(np.float32)
  w_NP[:, 0] = 1
  ids_NP[w_NP == 0] = V  # padding
  order_NV = np.argsort(-score_NV, axis=1, kind="stable")
  y = Targets(jnp.asarray(ids_NP), jnp.asarray(w_NP), jnp.zeros(40, jnp.int32))
  metrics = retrieval.at_k(jnp.asarray(order_NV[:, :k], jnp.int32), y)
  recall_N, mrr_N = naive(score_NV, ids_NP, w_NP, k)
  np.testing.assert_allclose(metrics[f"recall@{k}"], recall_N, rtol=1e-6)
  np.testing.assert_allclose(metrics[f"mrr@{k}"], mrr_N, rtol=1e-6)
  assert 0 < np.mean(recall_N) <= 1


def test_example_without_weight_has_zero_metrics():
  y = Targets(jnp.array([[3]]), jnp.zeros((1, 1)), jnp.zeros(1, jnp.int32))
  metrics = retrieval.at_k(jnp.array([[3, 1]]), y)
  assert {key: float(v_N[0]) for key, v_N in metrics.items()} == {
    "recall@2": 0,
    "mrr@2": 0,
  }


def naive_of_labels(score_V, true, worth_V, k):
  """p@k, ndcg@k, and gain and ideal of psp@k of one example."""
  best = sorted(range(len(score_V)), key=lambda c: (-score_V[c], c))[:k]
  discounts = [1 / np.log2(rank + 1) for rank in range(1, k + 1)]
  dcg = sum(d for d, c in zip(discounts, best, strict=True) if c in true)
  ideal = sum(discounts[: len(true)])
  gain = sum(worth_V[c] for c in best if c in true)
  most = sum(sorted((worth_V[c] for c in true), reverse=True)[:k])
  return sum(c in true for c in best) / k, dcg / ideal, gain, most


def test_metrics_of_labels_equal_a_loop():
  rng = np.random.default_rng(1)
  score_NV = rng.integers(0, 8, (40, V)).astype(np.float32)
  ids_NP = np.stack([rng.permutation(V)[:6] for _ in range(40)]).astype(np.int32)
  w_NP = rng.integers(0, 2, (40, 6)) * rng.uniform(0.1, 2, (40, 6))
  w_NP[:, 2] = 1
  ids_NP[:20][w_NP[:20] == 0] = V  # padding and weight 0 are equivalent
  counts = Counts(rng.integers(0, 50, V), examples=99)
  worth_V = retrieval.inverse_propensities(counts, 0.6, 2.6)
  constant = (np.log(99) - 1) * 3.6**0.6
  expected_V = 1 + constant * np.exp(-0.6 * np.log(counts.unigram_V + 2.6))
  np.testing.assert_allclose(worth_V, expected_V, rtol=1e-6)
  best_NK = jnp.asarray(np.argsort(-score_NV, axis=1, kind="stable")[:, :5])
  y = Targets(jnp.asarray(ids_NP), jnp.asarray(w_NP), jnp.zeros(40, jnp.int32))
  metrics = retrieval.of_labels(best_NK, y, worth_V, (1, 5))
  for k in (1, 5):
    rows = [
      naive_of_labels(score_V, set(ids_P[w_P > 0]), expected_V, k)
      for score_V, ids_P, w_P in zip(score_NV, ids_NP, w_NP, strict=True)
    ]
    names = (f"p@{k}", f"ndcg@{k}", f"psp_gain@{k}", f"psp_ideal@{k}")
    for name, expected_N in zip(names, np.transpose(rows), strict=True):
      np.testing.assert_allclose(metrics[name], expected_N, rtol=1e-5, err_msg=name)
      assert expected_N.any()


@pytest.mark.parametrize("num_true", [0, 3, 50])
@pytest.mark.parametrize("k", [1, 6, 40])
def test_hits_equal_a_loop_for_any_number_of_classes(num_true, k):
  """Padding of the true classes is not a hit of padding of the best classes."""
  rng = np.random.default_rng(2)
  many = 60
  best_NK = np.stack([rng.permutation(many + 1)[:k] for _ in range(20)])
  ids_NP = rng.integers(0, many + 1, (20, num_true)).astype(np.int32)
  ids_NP[:9, :1] = best_NK[:9, :1]
  w_NP = np.where(ids_NP < many, rng.integers(0, 2, ids_NP.shape), 0)
  y = Targets(jnp.asarray(ids_NP), jnp.asarray(w_NP, jnp.float32), jnp.zeros(20, int))
  metrics = retrieval.hits(jnp.asarray(best_NK, jnp.int32), y, [k])
  metrics |= retrieval.at_k(jnp.asarray(best_NK, jnp.int32), y)
  true = [set(i[w > 0].tolist()) for i, w in zip(ids_NP, w_NP, strict=True)]
  rows = list(zip(best_NK.tolist(), true, strict=True))
  hit = [any(id in those for id in best) for best, those in rows]
  np.testing.assert_array_equal(metrics[f"hr@{k}"], hit)
  recall = [len(those & {*best}) / max(len(those), 1) for best, those in rows]
  np.testing.assert_allclose(metrics[f"recall@{k}"], recall, rtol=1e-6)
  firsts = [[rank for rank, id in enumerate(b, 1) if id in t] for b, t in rows]
  mrr = [1 / min(ranks) if ranks else 0 for ranks in firsts]
  np.testing.assert_allclose(metrics[f"mrr@{k}"], mrr, rtol=1e-6)
  assert any(hit) == bool(num_true)


def test_class_listed_twice_counts_once():
  worth_V = jnp.arange(1.0, V + 1)
  once = Targets(jnp.array([[3, 1, V]]), jnp.array([[1.0, 1, 0]]) / 2, jnp.zeros(1))
  twice = once._replace(
    ids_NP=jnp.array([[3, 1, 3, V, 3]]), w_NP=jnp.array([[1.0, 1, 1, 0, 0]]) / 3
  )
  for best in ([3, 1, 0], [0, 3, 2], [1, 0, 2], [0, 2, 4]):
    args = worth_V, (1, 3)
    want = retrieval.of_labels(jnp.array([best]), once, *args)
    got = retrieval.of_labels(jnp.array([best]), twice, *args)
    want |= retrieval.at_k(jnp.array([best]), once)
    got |= retrieval.at_k(jnp.array([best]), twice)
    assert got == want, best
  assert retrieval.of_labels(jnp.array([[3, 1]]), twice, worth_V, [2])["ndcg@2"] == 1


class OfBatches(list):
  """Batches with the interface of `HeldOutBatches`."""

  batch_size, num_examples = 2, 4

  def read(self, rows):
    return iter(self)


def test_examples_without_a_label_are_skipped_or_count_as_0():
  exp = experiment(4)
  corpus = exp.data.load()
  state, eos = init_state(exp, corpus), corpus.vocabulary.eos
  whole = EvaluationBatches(np.arange(4), 2, 1, eos)
  batches = OfBatches(
    batch._replace(y=batch.y._replace(w_NP=batch.y.w_NP * [[1], [0]]))
    for batch in whole
  )
  of = lambda how: Evaluate(
    dataclasses.replace(
      exp, eval=c.Evaluating(ranking_k=V, precision_k=(V,), unlabelled=how)
    ),
    corpus.counts,
  )
  skipped, counted = of("skip")(state, batches), of("count")(state, batches)
  halved = {f"recall@{V}", f"mrr@{V}", f"p@{V}", f"ndcg@{V}"}
  for name, value in skipped.items():
    if name.removesuffix("_se") not in halved:
      assert counted[name] == pytest.approx(value), name
    elif name in halved:
      assert value > 0, name
      assert counted[name] == pytest.approx(value / 2), name
  # Of 1, 1 none; of 1, 0, 1, 0 the deviation is a half.
  assert skipped[f"recall@{V}_se"] == 0
  assert counted[f"recall@{V}_se"] == pytest.approx(1 / 4)
  assert of("count")(state, whole) == of("skip")(state, whole)
  for how in ("skip", "count"):
    nothing = OfBatches(
      batch._replace(y=batch.y._replace(w_NP=0 * batch.y.w_NP)) for batch in whole
    )
    with pytest.raises(UserError, match="no example of the evaluation data has a la"):
      of(how)(state, nothing)
  with pytest.raises(UserError, match="unlabelled is 'both'; it must be one of"):
    c.Evaluating(unlabelled="both")


def experiment(k):
  return c.build(
    c.experiment(
      data=c.part("data", "zipf", num_classes=V, num_tokens=370),
      model=c.part("model", "lstm", embed=5, hidden=6, layers=1),
      head=c.head("full", init_scale=1.0),
      optimizer=c.part("optimizer", "sgd"),
      eval=c.Evaluating(ranking_k=k),
    )
  )


def test_evaluation_averages_over_examples_without_the_padding():
  exp = experiment(4)
  corpus = exp.data.load()
  state = init_state(exp, corpus)
  tokens, eos = corpus.test, corpus.vocabulary.eos
  x_BT = np.append(eos, tokens[:-1])[None]
  h_BTD, _ = exp.model.apply(
    {"params": state.params}, state.inputs.w_VD[x_BT], exp.model.initial_carry(1)
  )
  score_NV = exp.head.features(h_BTD[0]) @ state.head.table.w_VD.T
  ones_NP = np.ones((len(tokens), 1))
  recall_N, mrr_N = naive(np.asarray(score_NV), tokens[:, None], ones_NP, 4)
  assert len(tokens) % 10
  batches = EvaluationBatches(tokens, 1, 10, eos)
  metrics = Evaluate(exp, corpus.counts)(state, batches)
  assert metrics["recall@4"] == pytest.approx(np.mean(recall_N), rel=1e-5)
  assert metrics["mrr@4"] == pytest.approx(np.mean(mrr_N), rel=1e-5)
  assert set(metrics) == {"nll", "ppl", "recall@4", "mrr@4", "nll_se", "recall@4_se"}
  off = Evaluate(experiment(0), corpus.counts)(state, batches)
  assert off == {key: metrics[key] for key in ("nll", "nll_se", "ppl")}


def test_ranking_more_classes_than_exist_is_refused():
  exp = experiment(V + 1)
  with pytest.raises(UserError, match=r"eval\.ranking_k is 31, but there are only 30"):
    init_state(exp, exp.data.load())
  labels = dataclasses.replace(exp.eval, ranking_k=0, precision_k=(1, V + 1))
  exp = dataclasses.replace(exp, eval=labels)
  with pytest.raises(UserError, match=r"eval\.precision_k is \(1, 31\), but there"):
    init_state(exp, exp.data.load())
  with pytest.raises(UserError, match=r"^Evaluating\.ranking_k is -1; it must be"):
    c.Evaluating(ranking_k=-1)
