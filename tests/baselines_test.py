"""Baselines, compared class by class with counts in dictionaries."""

import dataclasses
import math
from collections import Counter, defaultdict

import numpy as np
import pytest

from largevocab import baselines, config as c
from largevocab.data.items.next_item import NextItem
from largevocab.evaluation.evaluate import held_out
from largevocab.labels import Counts

D = 0.75
TEXT = {
  "train": "the cat sat on the mat\nthe dog sat on the cat\na dog ran\n",
  "valid": "the cat ran\n",
  "test": "the dog sat on a mat\nthe mat sat\nmat mat\n",
}


def experiment(data, **evaluation):
  return c.build(
    c.experiment(
      data=data,
      model=c.part("model", "lstm", embed=2, hidden=2, layers=1),
      head=c.head("full"),
      optimizer=c.part("optimizer", "sgd"),
      train=c.Training(batch_size=1, unroll=1),
      eval=c.Evaluating(**{"batch_size": 2, "unroll": 3, **evaluation}),
    )
  )


@pytest.fixture
def text(tmp_path):
  for split, lines in TEXT.items():
    (tmp_path / split).write_text(lines)
  files = {split: str(tmp_path / split) for split in TEXT}
  return c.part("data", "text", **files, cache_dir=str(tmp_path / "cache"))


def brute_force(pairs, num_classes):
  """p(c) and p(c | a) as functions, from (a, c) of each training example."""
  single, double, total = Counter(), defaultdict(Counter), 0
  for a, c_ in pairs:
    single[c_] += 1
    double[a][c_] += 1
    total += 1

  def alone(_, c_):
    left = max(single[c_] - D, 0) / total
    return left + D * len(single) / total / num_classes

  def after(a, c_):
    if a not in double:
      return alone(a, c_)
    n = sum(double[a].values())
    left = max(double[a][c_] - D, 0) / n
    return left + D * len(double[a]) / n * alone(a, c_)

  return alone, after


def stream(tokens, first):
  tokens = [int(token) for token in tokens]
  return list(zip([first, *tokens[:-1]], tokens, strict=True))


def test_perplexity_equals_that_of_dictionary_counts(text):
  exp = experiment(text)
  corpus = exp.data.load()
  num_classes, first = len(corpus.vocabulary), corpus.vocabulary.eos
  laws = brute_force(stream(corpus.train, first), num_classes)
  models = baselines.counted(exp, corpus)
  assert list(models) == ["unigram", "bigram"]
  ppl = {}
  for (name, model), law in zip(models.items(), laws, strict=True):
    for split, batches in held_out(exp, corpus).items():
      pairs = stream(getattr(corpus, split), first)
      nll = [-math.log(law(a, c_)) for a, c_ in pairs]
      measured = baselines.measure(model, exp, corpus.counts, batches)
      assert measured["nll"] == pytest.approx(np.mean(nll), rel=1e-6)
      assert measured["ppl"] == pytest.approx(math.exp(np.mean(nll)), rel=1e-5)
      error = np.std(nll) / math.sqrt(len(nll))
      assert measured["nll_se"] == pytest.approx(error, rel=1e-5)
      ppl[name, split] = measured["ppl"]
  assert ppl["bigram", "test"] < ppl["unigram", "test"]


@pytest.mark.parametrize("chunk", [1, 7, 10**6])
def test_pairs_are_counted_in_chunks(text, chunk, monkeypatch):
  monkeypatch.setattr(baselines.counting, "CHUNK", chunk)
  exp = experiment(text)
  corpus = exp.data.load()
  batches = corpus.evaluation_batches("train", 2, 3)
  pairs = baselines.counting.count_pairs(batches, len(corpus.vocabulary)).todok()
  expected = Counter(stream(corpus.train, corpus.vocabulary.eos))
  assert {key: int(count) for key, count in pairs.items()} == dict(expected)


def test_probabilities_sum_to_one_even_for_unseen_contexts(text):
  exp = experiment(text)
  corpus = exp.data.load()
  num_classes = len(corpus.vocabulary)
  context_N = np.arange(num_classes + 3)  # ids from V on are padding
  ids_NP = np.tile(np.arange(num_classes), (len(context_N), 1))
  for model in baselines.counted(exp, corpus).values():
    p_NV = np.exp(model.log_p(context_N, ids_NP))
    assert p_NV.sum(axis=1) == pytest.approx(1)
    assert (p_NV > 0).all()


def test_top_classes_have_the_highest_probabilities(text):
  exp = experiment(text)
  corpus = exp.data.load()
  num_classes = len(corpus.vocabulary)
  context_N = np.arange(num_classes + 1)
  ids_NP = np.tile(np.arange(num_classes), (len(context_N), 1))
  for model in baselines.counted(exp, corpus).values():
    log_p_NV = model.log_p(context_N, ids_NP)
    for k in (1, 3, num_classes):
      expected = np.argsort(-log_p_NV, axis=1, kind="stable")[:, :k]
      assert model.top_k(context_N, k).tolist() == expected.tolist()


def test_item_baselines_match_brute_force():
  # Rows (before, last, next); 4 is padding.
  train = np.array([[4, 0, 1], [0, 1, 2], [4, 0, 1], [4, 2, 1], [4, 3, 0]])
  test = np.array([[4, 0, 1], [1, 2, 3], [4, 3, 0], [3, 0, 2]])
  vocabulary = c.part(
    "data", "zipf_items"
  )  # only for the config: the data is made below
  exp = experiment(vocabulary, batch_size=3, unroll=1, ranking_k=2)
  classes = exp.data.load().vocabulary
  counts_V = np.bincount(train[:, -1], minlength=4)
  data = NextItem(type(classes)(list("abcd"), counts_V), train, test, test)
  laws = brute_force(train[:, 1:].tolist(), 4)
  models = baselines.counted(exp, data)
  assert list(models) == ["popularity", "last item"]
  for model, law in zip(models.values(), laws, strict=True):
    nll, found, reciprocal = [], [], []
    for _, last, item in test.tolist():
      p = [law(last, c_) for c_ in range(4)]
      best = sorted(range(4), key=lambda c_: (-p[c_], c_))[:2]
      nll.append(-math.log(p[item]))
      found.append(item in best)
      reciprocal.append(1 / (1 + best.index(item)) if item in best else 0)
    batches = data.evaluation_batches("test", 3, 1)
    measured = baselines.measure(model, exp, data.counts, batches)
    assert measured["nll"] == pytest.approx(np.mean(nll), rel=1e-6)
    assert measured["recall@2"] == pytest.approx(np.mean(found))
    assert measured["mrr@2"] == pytest.approx(np.mean(reciprocal))


def test_pairs_of_histories_have_the_length_of_training():
  """`train.unroll` sets the length, and `eval.unroll` does not matter."""
  data = c.part("data", "zipf_sequences", num_classes=9, num_users=30)
  sequences = data.load()
  counted = {}
  for unroll, eval_unroll in ((20, 2), (20, 20), (2, 20)):
    exp = experiment(data, unroll=eval_unroll)
    exp = dataclasses.replace(exp, train=c.Training(batch_size=1, unroll=unroll))
    model = baselines.counted(exp, sequences)["last item"]
    ids_NP = np.tile(np.arange(len(sequences.vocabulary)), (9, 1))
    counted[unroll, eval_unroll] = model.log_p(np.arange(9), ids_NP)
  np.testing.assert_array_equal(counted[20, 2], counted[20, 20])
  assert not np.allclose(counted[2, 20], counted[20, 20])


def test_label_frequency_baseline_matches_a_loop():
  data = c.part("data", "zipf_labels")
  exp = experiment(data, batch_size=16, unroll=1, precision_k=(1, 3))
  documents = exp.data.load()
  models = baselines.counted(exp, documents)
  assert list(models) == ["label frequency"]
  batches = documents.evaluation_batches("test", 16, 1)
  (model,) = models.values()
  measured = baselines.measure(model, exp, documents.counts, batches)
  counts_V = documents.vocabulary.counts_V
  best = sorted(range(len(counts_V)), key=lambda c_: (-counts_V[c_], c_))[:3]
  part, hits = documents.test, []
  for begin, end in zip(part.label_ptr[:-1], part.label_ptr[1:], strict=True):
    labels = set(part.label_ids[begin:end].tolist())
    if labels:
      hits.append([class_ in labels for class_ in best])
  assert measured["p@1"] == pytest.approx(np.mean([h[0] for h in hits]))
  assert measured["p@3"] == pytest.approx(np.mean(hits))
  assert measured["p@1_se"] > 0
  assert math.isfinite(measured["nll"])


def test_counts_of_zero_are_refused():
  with pytest.raises(c.UserError, match="nothing to count"):
    baselines.ByCounts(Counts(np.zeros(3, int)).unigram_V)
