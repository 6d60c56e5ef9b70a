"""Queries to trained models, compared with their dense distributions."""

import dataclasses
import io
import json
import os
import pathlib
import sys
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import config as c, main, train
from largevocab.data import EvaluationBatches
from largevocab.data.text import stdlib
from largevocab.errors import UserError
from largevocab.evaluation import predict, queries
from largevocab.evaluation.evaluate import Evaluate
from largevocab.evaluation.predict import answer, language_model, next_words, perplexity
from largevocab.evaluation.queries import Line, Source
from largevocab.labels import as_counts
from largevocab.training.state import init_state

REPOSITORY = pathlib.Path(__file__).parents[2]
V = 20


class WithOpening(NamedTuple):
  """The attributes of data that a query needs."""

  opening: list[str]


@pytest.fixture(scope="module")
def model():
  return untrained(c.head("full", init_scale=1.0))


def untrained(head):
  settings = c.experiment(
    data=c.part("data", "zipf", num_classes=V, num_tokens=300),
    model=c.part("model", "lstm", embed=5, hidden=6, layers=1, init_scale=1.0),
    head=head,
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


def test_next_words_are_the_most_likely_of_the_dense_distribution(model):
  ids = np.array([3, 1, 7, 7], np.int32)
  expected = log_probs(model, ids)[-1]
  found = next_words(model, ids, 6)
  order = np.argsort(-expected)[:6]
  assert [word for word, _ in found] == model.vocabulary.decode(order)
  np.testing.assert_allclose([p for _, p in found], expected[order], atol=1e-5)
  assert sum(np.exp(p) for _, p in found) < 1
  every = next_words(model, ids, V)
  assert sum(np.exp(p) for _, p in every) == pytest.approx(1, abs=1e-5)


def test_perplexity_equals_that_of_evaluation(model):
  ids = np.array([3, 1, 7, 7, 2, 5, 0], np.int32)
  nll = -log_probs(model, ids)[np.arange(len(ids)), ids]
  assert perplexity(model, ids) == pytest.approx(np.exp(nll.mean()), rel=1e-5)
  whole = EvaluationBatches(ids, 1, 50, model.vocabulary.eos)
  counts = as_counts(model.vocabulary.counts_V)
  metrics = Evaluate(model.exp, counts)(model.state, whole)
  assert perplexity(model, ids) == pytest.approx(metrics["ppl"], rel=1e-6)


def test_head_without_probabilities_gives_words_without_perplexity(capsys):
  answer(untrained(c.head("spherical/squared")), source("w3 w4"), k=3)
  (found,), _ = answers(capsys)
  assert found["perplexity"] is None
  assert len(found["top"]) == 3


def source(*lines):
  return Source("q", [[Line(i, line.encode()) for i, line in enumerate(lines, 1)]])


def answers(capsys):
  """The objects printed in lines, and the text on stderr."""
  out, err = capsys.readouterr()
  return [json.loads(line) for line in out.splitlines()], err


def test_opening_of_every_line_precedes_the_query(model):
  """Like `<S>` of the One Billion Word Benchmark, it is read, but not counted."""
  opening, ids = np.array([5, 2], np.int32), np.array([3, 1, 7, 7], np.int32)
  data = WithOpening(model.vocabulary.decode(opening))
  opened = model._replace(exp=dataclasses.replace(model.exp, data=data))
  log_prob = log_probs(model, np.append(opening, ids))
  nll = -log_prob[np.arange(2, 6), ids]
  assert perplexity(opened, ids) == pytest.approx(np.exp(nll.mean()), rel=1e-5)
  assert perplexity(model, ids) != pytest.approx(np.exp(nll.mean()), rel=1e-3)
  found = [p for _, p in next_words(opened, ids, V)]
  np.testing.assert_allclose(found, -np.sort(-log_prob[-1]), atol=1e-5)


def test_answer_prints_perplexity_and_next_words(model, capsys):
  answer(model, source("w3 w5", "", "  w4 never w5 seen "), k=2)
  (first, second), err = answers(capsys)
  ids = np.asarray(model.vocabulary.encode(["w3", "w5"]), np.int32)
  assert (first["line"], first["words"], first["unknown"]) == (1, ["w3", "w5"], [])
  assert first["perplexity"] == pytest.approx(perplexity(model, ids), rel=1e-7)
  for entry, (word, score) in zip(first["top"], next_words(model, ids, 2), strict=True):
    assert entry["name"] == word == model.vocabulary.words[entry["id"]]
    assert entry["score"] == pytest.approx(score, rel=1e-7)
  assert (second["line"], second["unknown"]) == (3, ["never", "seen"])
  assert second["words"] == ["w4", "never", "w5", "seen"]
  assert err == ""


def test_texts_of_many_lengths_need_few_compilations(model):
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
  """The words of a line, and the unknown ones."""
  settings = c.experiment(
    data=data,
    model=c.part("model", "lstm", embed=4, hidden=4, layers=1),
    head=c.head("full"),
    optimizer=c.part("optimizer", "sgd"),
  )
  exp = c.build(settings)
  corpus = exp.data.load()
  model = language_model(exp, corpus.vocabulary, init_state(exp, corpus))
  answer(model, source(line), k=1)
  ((said,), _) = answers(capsys)
  return " ".join(said["words"]), said["unknown"]


def test_query_is_tokenised_like_europarl(tmp_path, capsys):
  path = tmp_path / "europarl"
  path.write_text("Mr President, it is so.\nIs it, Mr President?\n" * 100)
  data = c.part("data", "europarl", train=str(path), cache_dir=str(tmp_path / "cache"))
  out, unknown = ask(tmp_path, capsys, data, "Is it so, President?")
  assert out == "is it so , president ?"
  assert unknown == []


def test_query_is_tokenised_like_source_text(tmp_path, capsys, monkeypatch):
  library = tmp_path / "lib"
  library.mkdir()
  for number in range(60):
    (library / f"m{number}.py").write_text("x = len(self.y[0])\n" * 3)
  paths = {"stdlib": str(library)}
  monkeypatch.setattr(stdlib.sysconfig, "get_paths", lambda: paths)
  data = c.part("data", "stdlib", cache_dir=str(tmp_path / "cache"))
  out, unknown = ask(tmp_path, capsys, data, "x=self.x(y)")
  assert out == "x = self . x ( y )"
  assert unknown == []


@pytest.mark.long
def test_program_answers_queries(tmp_path, capsys):
  flags = [f"--config={REPOSITORY}/configs/ptb.py:runlocal", f"--workdir={tmp_path}"]
  assert main.run(["main", *flags]) == 0
  flags = ["--mode=predict", f"--workdir={tmp_path}", "--text=w3 oops", "--top_k=3"]
  assert main.run(["main", *flags, "--checkpoint=best"]) == 0
  ((said,), _) = answers(capsys)
  assert said["words"] == ["w3", "oops"]
  assert said["unknown"] == ["oops"]
  assert said["perplexity"] > 1
  assert len(said["top"]) == 3


def trained(tmp_path_factory, data, model):
  settings = c.experiment(
    data=data,
    model=model,
    head=c.head("full", init_scale=1.0),
    optimizer=c.part("optimizer", "sgd"),
    train=c.Training(max_steps=5, batch_size=8, unroll=1, lr=0.3),
    eval=c.Evaluating(every_epochs=0, batch_size=8, unroll=1),
    log=c.Logging(monitor_every_steps=0),
  )
  workdir = tmp_path_factory.mktemp("trained") / "run"
  exp = c.build(settings)
  train.train(exp, settings.to_dict(), str(workdir))
  return workdir, predict.load(exp, str(workdir), "latest")


@pytest.fixture(scope="module")
def items(tmp_path_factory):
  data = c.part("data", "zipf_items", num_classes=40, num_items=300)
  model = c.part("model", "mlp", embed=5, hidden=6, init_scale=1.0)
  return trained(tmp_path_factory, data, model)


@pytest.fixture(scope="module")
def labels(tmp_path_factory):
  data = c.part("data", "zipf_labels", num_classes=40, num_features=30, num_examples=60)
  model = c.part("model", "bag", embed=6, init_scale=1.0)
  return trained(tmp_path_factory, data, model)


def ask_program(capsys, workdir, *flags):
  """Status, answers by line, stderr."""
  status = main.run(["main", "--mode=predict", f"--workdir={workdir}", *flags])
  said, err = answers(capsys)
  return status, {one["line"]: one["top"] for one in said}, err


def dense(model, h_D):
  """log p of all classes, f64[V]."""
  x_D = np.float64(model.exp.head.features(jnp.asarray(h_D[None], jnp.float32)))[0]
  o_V = np.float64(model.state.head.table.w_VD) @ x_D
  return o_V - np.logaddexp.reduce(o_V)


def of_history(model, history):
  rows_VE = np.float64(model.state.inputs.w_VD)
  ids = [model.classes.words.index(item) for item in history.split()][-3:]
  shown = [np.zeros(5)] * (3 - len(ids)) + [rows_VE[id] for id in ids]
  w, b = (np.float64(model.state.params[f"layer_0_{name}"]) for name in "wb")
  return dense(model, np.maximum(np.concatenate(shown) @ w + b, 0))


def of_document(model, document):
  pairs = [pair.split(":") for pair in document.split() if ":" in pair]
  v_F = np.array([float(value) for _, value in pairs])
  rows_FE = np.float64(model.state.inputs.w_VD)[[int(id) for id, _ in pairs]]
  h_E = v_F / np.linalg.norm(v_F) @ rows_FE + np.float64(model.state.params["b"])
  return dense(model, np.maximum(h_E, 0))


def check_top(model, top, log_p_V, allowed):
  """Checks that these are the best allowed classes, with their names and scores."""
  order = [id for id in np.argsort(-log_p_V) if id in allowed][: len(top)]
  assert [entry["id"] for entry in top] == order
  assert [entry["name"] for entry in top] == model.classes.decode(order)
  np.testing.assert_allclose([e["score"] for e in top], log_p_V[order], atol=2e-5)


HISTORIES = ["3", "5 3 5", "3 5 7 2 11 5", "2 2 2 2"]


@pytest.mark.parametrize("mask", [False, True])
def test_history_queries_give_the_top_items(items, mask, tmp_path, capsys):
  workdir, model = items
  path = tmp_path / "histories.txt"
  path.write_text("\n".join(HISTORIES))
  flags = [f"--input={path}", "--top_k=4", *["--mask_seen"] * mask]
  status, tops, err = ask_program(capsys, workdir, *flags)
  assert (status, err) == (0, "")
  assert list(tops) == [1, 2, 3, 4]
  for history, top in zip(HISTORIES, tops.values(), strict=True):
    seen = {model.classes.words.index(item) for item in history.split()} if mask else ()
    assert len(top) == 4
    log_p_V = of_history(model, history)
    check_top(model, top, log_p_V, set(range(len(log_p_V))) - set(seen))


def test_masked_items_can_leave_fewer_answers(items, tmp_path, capsys):
  workdir, model = items
  *most, last = model.classes.words
  path = tmp_path / "histories.txt"
  path.write_text(" ".join(most))
  status, tops, _ = ask_program(capsys, workdir, f"--input={path}", "--mask_seen")
  assert status == 0
  assert [entry["name"] for entry in tops[1]] == [last]


DOCUMENTS = ["0:1 7:2.5", "3:-1e-1", "4,2 5:1 6:1.5 7:.5", " ".join(["29:1", "2:3"])]


def test_document_queries_give_the_top_labels(labels, monkeypatch, capsys):
  workdir, model = labels
  text = "\n".join(DOCUMENTS).encode()
  monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
  status, tops, err = ask_program(capsys, workdir)
  assert (status, err) == (0, "")
  assert list(tops) == [1, 2, 3, 4]
  for document, top in zip(DOCUMENTS, tops.values(), strict=True):
    assert len(top) == 5
    check_top(model, top, of_document(model, document), range(40))


@pytest.mark.parametrize(
  ("fixture", "bad", "words"),
  [
    ("items", b"3 nothing", "'nothing' is not an item"),
    ("items", b"", "no items"),
    ("items", b"3 \xff", "not UTF-8"),
    ("items", "3 5".encode("utf-16-le"), "NUL"),
    ("labels", b" ", "no features"),
    ("labels", b"4,2", "no features"),
    ("labels", b"0:1 30:1", "feature 30 is not below 30"),
    ("labels", b"0:1 1:1e39", "feature 1 is too large"),
    ("labels", b"0:nan", "'0:nan' is not a feature"),
    ("labels", b"-1:1", "'-1:1' is not a feature"),
    ("labels", b"0:1 0:1", "feature 0 is repeated"),
    ("labels", b"\xff", "not UTF-8"),
    ("model", b"w3 \xff", "not UTF-8"),
  ],
)
def test_bad_line_is_named_and_the_others_are_answered(
  request, fixture, bad, words, capsys, caplog
):
  model = request.getfixturevalue(fixture)
  good = {"items": b"3 5", "labels": b"0:1", "model": b"w3"}[fixture]
  lines = [Line(i, raw) for i, raw in enumerate([good, bad, good], 1)]
  model = model if fixture == "model" else model[1]
  caplog.clear()  # drops lines of the training
  with pytest.raises(UserError, match=r"^q: no answer to 1 of the lines"):
    answer(model, Source("q", [lines]), k=2)
  said, _ = answers(capsys)
  assert [one["line"] for one in said] == [1, 3]
  assert said[0]["top"] == said[1]["top"]
  (message,) = caplog.messages
  assert message.startswith("q, line 2: ")
  assert words in message


def test_bad_lines_end_the_program_with_an_error(items, tmp_path, capsys):
  path = tmp_path / "histories.txt"
  path.write_bytes(b"3\nx\n\xff\n5\n")
  status, tops, err = ask_program(capsys, items[0], f"--input={path}")
  assert status == 1
  assert list(tops) == [1, 4]
  first, second, last = err.splitlines()
  assert f"{path}, line 2: 'x' is not an item" in first
  assert f"{path}, line 3: bytes that are not UTF-8" in second
  assert last == f"error: {path}: no answer to 2 of the lines; see the errors above"


@pytest.mark.parametrize(
  ("flags", "words"),
  [
    (["--text="], "--text has no words"),
    (["--text=\udcff"], "--text has bytes that are not UTF-8"),
    (["--text=3", "--input=x"], "--text and --input are both given"),
    (["--input=/no/such"], "/no/such: No such file"),
    (["--input=~nosuch/a"], "'~nosuch' has no home directory: write out the whole"),
    (["--input="], "--input is empty; give a file, or leave it out"),
    (["--input=."], "--input=. is a directory; give a file in it"),
    (["--top_k=41"], "--top_k is 41, but the model has only 40 classes"),
    (["--mask_seen"], "--mask_seen is only for item histories"),
  ],
)
def test_query_flag_mistake_is_reported_in_one_line(
  labels, flags, words, capsys, monkeypatch
):
  monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"0:1")))
  status, tops, err = ask_program(capsys, labels[0], *flags)
  assert (status, tops) == (1, {})
  (line,) = err.splitlines()
  assert line.startswith("error: ")
  assert words in line


def test_query_flags_are_refused_in_other_modes(labels, capsys):
  for flag in ("--text=a", "--input=b", "--mask_seen", "--top_k=3"):
    assert main.run(["main", "--mode=evaluate", f"--workdir={labels[0]}", flag]) == 1
    assert "is only for --mode=predict" in capsys.readouterr().err


def test_closed_stdin_and_stdout_are_reported_in_one_line(labels, capsys, monkeypatch):
  monkeypatch.setattr(sys, "stdin", None)
  status, _, err = ask_program(capsys, labels[0])
  assert (status, err) == (1, "error: standard input is closed; give --input=FILE\n")
  monkeypatch.setattr(sys, "stdout", None)
  assert (
    main.run(["main", "--mode=predict", f"--workdir={labels[0]}", "--text=0:1"]) == 1
  )
  assert "standard output is closed" in capsys.readouterr().err


def test_answers_can_be_printed_to_ascii_stdout(model, monkeypatch):
  for encoding, written in (("ascii", b"\\u00e9"), ("utf-8", "é".encode())):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding))
    answer(model, source("w3 é"), k=1)
    assert written in raw.getvalue()
    assert json.loads(raw.getvalue())["unknown"] == ["é"]


def test_line_is_answered_before_the_next_is_read():
  read, write = os.pipe()
  with open(read, "rb") as file, open(write, "wb", buffering=0) as other:
    blocks = queries.blocks_of(file, "pipe")
    for number, raw in enumerate([b"a b", b"", b"c"], 1):
      other.write(raw + b"\n")
      assert next(blocks) == [Line(number, raw)]
    other.write(b"d\r\ne\nf")
    assert next(blocks) == [Line(4, b"d\r"), Line(5, b"e")]
    other.close()
    assert list(blocks) == [[Line(6, b"f")]]


def test_endless_line_is_refused():
  class Endless(io.BytesIO):
    def read1(self, size=-1):
      return b"a" * size

  with pytest.raises(UserError, match=r"^stdin, line 1: longer than"):
    next(queries.blocks_of(Endless(), "stdin"))


@pytest.mark.long
def test_queries_of_many_lengths_need_few_compilations(labels):
  _, model = labels
  rng = np.random.default_rng(0)
  before = model.top_k._cache_size()
  for length in range(1, 30):
    ids = rng.permutation(30)[:length]
    document = " ".join(f"{id}:{rng.random() + 0.1:.3f}" for id in ids)
    some = [model.queries.read(document)] * (1 + length % 4)
    ranked = predict.rank(model, some, k=3)
    assert len(ranked) == len(some)
    log_p_V = of_document(model, document)
    assert [id for id, _ in ranked[-1]] == np.argsort(-log_p_V)[:3].tolist()
  assert model.top_k._cache_size() - before <= 6 * 3


def test_batches_have_little_padding(labels):
  _, model = labels
  read = model.queries.read
  many = [(i, read("0:1")) for i in range(300)]
  wide = (300, (np.zeros(1 << 17, np.int32), np.zeros(1 << 17, np.float32)))
  sizes = [len(batch) for batch in predict._batches(model, [*many, wide, wide, wide])]
  assert sizes == [256, 44, 2, 1]
