"""Word similarity: rank correlation of cosines of word rows with human judgements."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from largevocab.data.base import Data
from largevocab.data.files import find_files
from largevocab.data.text.vocabulary import Vocabulary
from largevocab.data.text.word_pairs import WordPair, read_word_pairs
from largevocab.errors import UserError
from largevocab.training.agreement import check_pairs
from largevocab.training.processes import whole
from largevocab.training.settings import Experiment
from largevocab.training.sharding import inputs_of
from largevocab.training.state import State

_LOG = logging.getLogger("largevocab")


class KnownPairs(NamedTuple):
  """Pairs of words in the vocabulary.

  Attributes:
    first_R, second_R: i32[R], their ids.
    score_R: f64[R], human similarity scores.
  """

  first_R: np.ndarray
  second_R: np.ndarray
  score_R: np.ndarray


def known_pairs(pairs: list[WordPair], index: Mapping[str, int]) -> KnownPairs:
  """The pairs with both words in the vocabulary, in lower case if not found as given.

  Args:
    pairs: words and scores.
    index: the id of each word.

  >>> pairs = [WordPair("Tiger", "cat", 7.35), WordPair("tiger", "zoo", 5.87)]
  >>> known_pairs(pairs, {"cat": 5, "tiger": 3})
  KnownPairs(first_R=array([3], dtype=int32), second_R=array([5], dtype=int32), \
score_R=array([7.35]))
  """
  id_of = lambda word: index.get(word, index.get(word.lower(), -1))
  first_R = np.array([id_of(pair.first) for pair in pairs], np.int32)
  second_R = np.array([id_of(pair.second) for pair in pairs], np.int32)
  score_R = np.array([pair.score for pair in pairs], np.float64)
  is_known_R = (first_R >= 0) & (second_R >= 0)
  return KnownPairs(first_R[is_known_R], second_R[is_known_R], score_R[is_known_R])


class PairCosines(NamedTuple):
  """What a model and people say of the known pairs of a file.

  Attributes:
    cosine_R: f64[R], cosines of the rows of both words.
    score_R: f64[R], human similarity scores.
  """

  cosine_R: np.ndarray
  score_R: np.ndarray


def cosines(a_RD: np.ndarray, b_RD: np.ndarray) -> np.ndarray:
  """Cosines f64[R] of the rows of two float[R, D]; those of rows of zeros are 0.

  >>> cosines(np.array([[3.0, 4], [0, 0]]), np.array([[0.0, 2], [1, 1]])).tolist()
  [0.8, 0.0]
  """
  a_RD, b_RD = np.asarray(a_RD, np.float64), np.asarray(b_RD, np.float64)
  norm_R = np.linalg.norm(a_RD, axis=1) * np.linalg.norm(b_RD, axis=1)
  return np.sum(a_RD * b_RD, axis=1) / np.where(norm_R > 0, norm_R, 1)


def rank_correlation(pairs: PairCosines) -> float:
  """Spearman's rank correlation of scores with cosines.

  rho = Pearson's correlation of the ranks of score_r and of cosine_r, ties at their
  mean rank. If all cosines are equal, rho is 0. Scores are not all equal.

  Source: Hill, Reichart and Korhonen 2015 (SimLex-999).

  Cost: O(R log R).

  >>> pairs = PairCosines(np.array([1.0, 0.7, -1]), np.array([9.0, 5, 7]))
  >>> round(rank_correlation(pairs), 3)
  0.5
  """
  from scipy import stats  # Imported here: this takes a second.

  if np.ptp(pairs.cosine_R) == 0:
    return 0.0
  return float(stats.spearmanr(*pairs).statistic)


def make_similarity(exp: Experiment, data: Data) -> Callable[[State], dict[str, float]]:
  """A function from state to rank correlations with the files of `eval.word_pairs`.

  Its keys are those of `make_pair_cosines`. Without files it returns {}.

  Raises:
    UserError: the data has no words, or has fewer than two pairs of a file.
  """
  cosines_of = make_pair_cosines(exp, data, exp.eval.word_pairs, "eval.word_pairs")
  return lambda state: {
    name: rank_correlation(pairs) for name, pairs in cosines_of(state).items()
  }


def make_pair_cosines(
  exp: Experiment, data: Data, patterns: Sequence[str], setting: str
) -> Callable[[State], dict[str, PairCosines]]:
  """A function from state to the cosines of the pairs of files.

  For each FILE it returns '<FILE>_input', for the rows of the table of inputs, if there
  is one, and '<FILE>_output', for those of the head, over the pairs with both words in
  the vocabulary.

  Args:
    exp: the experiment.
    data: its data.
    patterns: paths or glob patterns of the files.
    setting: what names the files, for error messages.

  Raises:
    UserError: the data has no words, or has fewer than two pairs of a file.
  """
  known: dict[str, KnownPairs] = {}
  for pattern in patterns:
    for path in find_files(pattern, setting):
      name = path.name.partition(".")[0]
      if name in known:
        raise UserError(f"{setting}: two files are called {name}; rename one")
      known[name] = _open_pairs(path, data, setting)
  check_pairs(setting, known)

  @jax.jit
  def look_up(table, head_state, ids_R):
    rows = {"output": exp.head.class_rows(head_state, ids_R)[:, : exp.model.width]}
    if table is not None:
      rows["input"] = inputs_of(exp).look_up(table, ids_R[:, None])[:, 0]
    return rows

  def pair_cosines(state: State) -> dict[str, PairCosines]:
    found = {}
    for name, pairs in known.items():
      first = look_up(state.inputs, state.head, pairs.first_R)
      second = look_up(state.inputs, state.head, pairs.second_R)
      for kind in first:
        cosine_R = cosines(whole(first[kind]), whole(second[kind]))
        found[f"{name}_{kind}"] = PairCosines(cosine_R, pairs.score_R)
    return found

  return pair_cosines


def _open_pairs(path: Path, data: Data, setting: str) -> KnownPairs:
  """The known pairs of a file, at least two with different scores."""
  if not isinstance(data.vocabulary, Vocabulary):
    raise UserError(f"{setting}: the data has no words: name no files of pairs")
  pairs = read_word_pairs(path)
  known = known_pairs(pairs, data.vocabulary.index)
  if len(np.unique(known.score_R)) < 2:
    raise UserError(
      f"{path}: {len(known.score_R)} of its {len(pairs)} pairs are in the vocabulary, "
      "and a rank correlation needs two of different scores: take it out of "
      f"{setting}"
    )
  _LOG.info(
    "%s: %d of its %d pairs are in the vocabulary",
    *(path, len(known.score_R), len(pairs)),
  )
  return known
