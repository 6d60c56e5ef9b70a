"""Questions to a language model, against its dense distribution."""

import pathlib

import jax
import numpy as np
import pytest

from largevocab import config as c, main
from largevocab.data import EvaluationBatches, stdlib
from largevocab.evaluate import make_evaluate
from largevocab.labels import as_counts
from largevocab.predict import answer, language_model, next_words, perplexity
from largevocab.state import init_state

REPOSITORY = pathlib.Path(__file__).parents[1]
V = 20


@pytest.fixture(scope="module")
def model():
  settings = c.experiment(
    data=c.part("data", "zipf", num_classes=V, num_tokens=300),
    model=c.part("model", "lstm", embed=5, hidden=6, layers=1, init_scale=1.0),
    head=c.head("full", init_scale=1.0),
    optimizer=c.part("optimizer", "sgd"),
    eval=c.Evaluating(batch_size=4, unroll=3),
  )
  exp = c.build(settings)
  corpus = exp.data.load()
  return language_model(exp, corpus.vocabulary, init_state(exp, corpus))


def log_probs(model, ids):
  """log p(c | the text so far) after each word, dense, f32[len(ids) + 1, V]."""
  rows_BTE = model.state.inputs.w_VD[np.append(model.vocabulary.eos, ids)][None]
  carry = model.exp.model.initial_carry(1)
  h_BTD, _ = model.exp.model.apply({"params": model.state.params}, rows_BTE, carry)
  x_TD = model.exp.head.features(h_BTD[0])
  return np.asarray(jax.nn.log_softmax(x_TD @ model.state.head.table.w_VD.T))


def test_next_words_are_the_likeliest_of_the_dense_distribution(model):
  ids = np.array([3, 1, 7, 7], np.int32)
  expected = log_probs(model, ids)[-1]
  found = next_words(model, ids, 6)
  order = np.argsort(-expected)[:6]
  assert [word for word, _ in found] == model.vocabulary.decode(order)
  np.testing.assert_allclose([p for _, p in found], expected[order], atol=1e-5)
  assert sum(np.exp(p) for _, p in found) < 1
  every = next_words(model, ids, V)
  assert sum(np.exp(p) for _, p in every) == pytest.approx(1, abs=1e-5)


def test_perplexity_is_that_of_evaluation(model):
  ids = np.array([3, 1, 7, 7, 2, 5, 0], np.int32)
  nll = -log_probs(model, ids)[np.arange(len(ids)), ids]
  assert perplexity(model, ids) == pytest.approx(np.exp(nll.mean()), rel=1e-5)
  whole = EvaluationBatches(ids, 1, 50, model.vocabulary.eos)
  counts = as_counts(model.vocabulary.counts_V)
  metrics = make_evaluate(model.exp, counts)(model.state, whole)
  assert perplexity(model, ids) == pytest.approx(metrics["ppl"], rel=1e-6)


def test_answer_prints_perplexity_and_next_words(model, capsys):
  answer(model, ["w3 w5", "", "  w4 never w5 seen "], k=2)
  out, err = capsys.readouterr()
  ids = np.asarray(model.vocabulary.encode(["w3", "w5"]), np.int32)
  first, *rest = out.splitlines()
  assert first == "w3 w5"
  assert rest[0] == f"  perplexity {perplexity(model, ids):.2f} over 2 words"
  for line, (word, log_prob) in zip(rest[1:3], next_words(model, ids, 2), strict=True):
    assert line.split() == [f"{np.exp(log_prob):.5f}", word]
  assert rest[3:5] == ["w4 never w5 seen", rest[4]]
  assert rest[4].endswith("over 4 words")
  assert err == "not in the vocabulary: never seen\n"


def test_few_compilations_for_texts_of_any_length(model):
  rng = np.random.default_rng(0)
  sizes = []
  for length in range(1, 32):
    ids = rng.integers(0, V, length)
    ((_, log_prob),) = next_words(model, ids, 1)
    sizes.append(model.top_k._cache_size())
    if length in (1, 7, 8, 31):
      assert log_prob == pytest.approx(log_probs(model, ids)[-1].max(), abs=1e-5)
  assert sizes[-1] - sizes[0] == 4  # of 4, 8, 16 and 32 words with the first `<eos>`


def ask(tmp_path, capsys, data, line):
  """What the program prints for a line, and the warnings."""
  settings = c.experiment(
    data=data,
    model=c.part("model", "lstm", embed=4, hidden=4, layers=1),
    head=c.head("full"),
    optimizer=c.part("optimizer", "sgd"),
  )
  exp = c.build(settings)
  corpus = exp.data.load()
  answer(language_model(exp, corpus.vocabulary, init_state(exp, corpus)), [line], k=1)
  out, err = capsys.readouterr()
  return out.splitlines()[0], err


def test_a_question_becomes_words_as_europarl_did(tmp_path, capsys):
  path = tmp_path / "europarl"
  path.write_text("Mr President, it is so.\nIs it, Mr President?\n" * 100)
  data = c.part("data", "europarl", train=str(path), cache_dir=str(tmp_path / "cache"))
  out, err = ask(tmp_path, capsys, data, "Is it so, President?")
  assert out == "is it so , president ?"
  assert err == ""


def test_a_question_becomes_words_as_the_source_text_did(tmp_path, capsys, monkeypatch):
  library = tmp_path / "lib"
  library.mkdir()
  for number in range(60):
    (library / f"m{number}.py").write_text("x = len(self.y[0])\n" * 3)
  paths = {"stdlib": str(library)}
  monkeypatch.setattr(stdlib.sysconfig, "get_paths", lambda: paths)
  data = c.part("data", "stdlib", cache_dir=str(tmp_path / "cache"))
  out, err = ask(tmp_path, capsys, data, "x=self.x(y)")
  assert out == "x = self . x ( y )"
  assert err == ""


def test_program_answers(tmp_path, capsys):
  flags = [f"--config={REPOSITORY}/configs/ptb.py:runlocal", f"--workdir={tmp_path}"]
  assert main.run(["main", *flags]) == 0
  flags = ["--mode=predict", f"--workdir={tmp_path}", "--text=w3 oops", "--top_k=3"]
  assert main.run(["main", *flags, "--checkpoint=best"]) == 0
  out, err = capsys.readouterr()
  lines = out.splitlines()
  assert lines[0] == "w3 oops"
  assert lines[1].startswith("  perplexity ")
  assert len(lines) == 5
  assert "not in the vocabulary: oops" in err.splitlines()
