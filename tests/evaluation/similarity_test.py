"""Rank correlations of rows with human similarity scores of word pairs."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import config as c
from largevocab.errors import UserError
from largevocab.evaluation.similarity import (
  PairCosines,
  cosines,
  make_similarity,
  rank_correlation,
)
from largevocab.training.state import init_state

V = 30
PAIRS = "word1\tword2\tPOS\tSimLex999\n" + "".join(
  f"{first}\t{second}\tN\t{score}\n"
  for first, second, score in [
    ("w3", "w4", 9.0),
    ("W5", "w6", 7.5),
    ("w3", "nowhere", 7.0),
    ("w7", "w8", 4.0),
    ("w4", "w9", 2.5),
    ("w9", "w9", 1.0),
  ]
)
KNOWN = [("w3", "w4"), ("w5", "w6"), ("w7", "w8"), ("w4", "w9"), ("w9", "w9")]


@pytest.fixture(scope="module")
def start():
  """A network and its tables with random values, and their data."""
  exp = c.build(
    c.experiment(
      data=c.part("data", "zipf", num_classes=V, num_tokens=200),
      model=c.part("model", "linear", embed=5),
      head=c.head("full", init_scale=1.0),
      optimizer=c.part("optimizer", "sgd"),
    )
  )
  data = exp.data.load()
  return exp, data, init_state(exp, data)


def with_files(exp, *paths):
  pairs = tuple(str(path) for path in paths)
  return dataclasses.replace(exp, eval=dataclasses.replace(exp.eval, word_pairs=pairs))


def test_pairs_of_words_are_refused_for_subwords(start, tmp_path):
  exp, data, _ = start
  text = c.part("data", "text", train="t", tokenizer="tokenizer.json")
  with pytest.raises(UserError, match=r"^eval.word_pairs: the classes are subwords"):
    make_similarity(with_files(dataclasses.replace(exp, data=text), "pairs"), data)


@pytest.fixture
def simlex(tmp_path):
  path = tmp_path / "SimLex-999.txt"
  path.write_text(PAIRS)
  return path


def naive(w_VD, index):
  """1 - 6 sum d^2 / (n (n^2 - 1)), without ties."""
  w_VD = np.asarray(w_VD, np.float64)
  unit_VD = w_VD / np.linalg.norm(w_VD, axis=1, keepdims=True)
  cosine_R = [unit_VD[index[a]] @ unit_VD[index[b]] for a, b in KNOWN]
  rank_R = np.argsort(np.argsort(cosine_R))
  difference_R = rank_R - np.array([4, 3, 2, 1, 0])
  return 1 - 6 * np.sum(difference_R**2) / (5 * (5**2 - 1))


def test_input_and_output_rows_are_ranked(start, simlex):
  exp, data, state = start
  index = data.vocabulary.index
  found = make_similarity(with_files(exp, simlex), data)(state)
  table_VD = state.head.table.w_VD
  assert found == {
    "SimLex-999_input": pytest.approx(naive(state.inputs.w_VD, index)),
    "SimLex-999_output": pytest.approx(naive(table_VD[:, :5], index)),
  }
  assert found["SimLex-999_input"] != found["SimLex-999_output"]


def test_biases_and_padding_do_not_change_the_similarity(start, simlex):
  exp, data, state = start
  similarity = make_similarity(with_files(exp, simlex), data)
  table = state.head.table
  ids_V = jnp.arange(V)
  assert table.w_VD.shape == (V, 8)

  def moved(column, by_V):
    w_VD = table.w_VD.at[:, column].add(by_V)
    head = state.head._replace(table=table._replace(w_VD=w_VD))
    return similarity(state._replace(head=head))

  by_V = jnp.where(ids_V == data.vocabulary.index["w9"], 100.0, -100.0)
  for column in (5, 6, 7):
    assert moved(column, by_V) == similarity(state)
  assert moved(4, by_V) != similarity(state)


def test_numbers_of_known_pairs_are_logged_once(start, simlex, tmp_path, caplog):
  exp, data, state = start
  other = tmp_path / "other.csv"
  other.write_text("a,b,score\nw3,w4,1\nw5,w6,2\n")
  with caplog.at_level("INFO", "largevocab"):
    similarity = make_similarity(with_files(exp, simlex, other), data)
    assert list(similarity(state)) == [
      f"{file}_{kind}"
      for file in ("SimLex-999", "other")
      for kind in ("input", "output")
    ]
    similarity(state)
  assert [m.rpartition("/")[2] for m in caplog.messages] == [
    "SimLex-999.txt: 5 of its 6 pairs are in the vocabulary",
    "other.csv: 2 of its 2 pairs are in the vocabulary",
  ]
  assert make_similarity(exp, data)(state) == {}


def test_unusable_word_pairs_are_named(start, simlex, tmp_path):
  exp, data, _ = start
  make = lambda data, *paths: make_similarity(with_files(exp, *paths), data)
  with pytest.raises(UserError, match=r"eval\.word_pairs: no file .*missing\.txt"):
    make(data, tmp_path / "missing.txt")
  none = tmp_path / "none.csv"
  none.write_text("a,b,score\ntiger,cat,7\n")
  with pytest.raises(UserError, match=r"none\.csv: 0 of its 1 pairs"):
    make(data, none)
  with pytest.raises(UserError, match="two files are called SimLex-999"):
    make(data, simlex, simlex)
  items = c.part("data", "zipf_items", num_classes=V, num_items=200).load()
  with pytest.raises(UserError, match="the data has no words"):
    make(items, simlex)


def test_rank_correlation_handles_ties_zeros_and_constants():
  rows_RD = np.array([[1.0, 0], [0, 1], [0, 0], [1, 1]])
  cosine_R = cosines(rows_RD, np.ones((4, 2)))
  # Cosines 0.7, 0.7, 0, 1 have ranks 2.5, 2.5, 1, 4; the scores have 2, 3, 1, 4.
  rho = rank_correlation(PairCosines(cosine_R, np.array([2.0, 3, 1, 9])))
  assert rho == pytest.approx(4.5 / np.sqrt(4.5 * 5))
  constant_R = cosines(np.zeros((3, 2)), np.ones((3, 2)))
  assert rank_correlation(PairCosines(constant_R, np.arange(3.0))) == 0
