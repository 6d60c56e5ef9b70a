"""Word similarity: rank correlation between cosines of rows and human judgements."""

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
    first_R, second_R: i32[R], the ids of the first and the second words.
    score_R: f64[R], human similarity scores.
  """

  first_R: np.ndarray
  second_R: np.ndarray
  score_R: np.ndarray


def known_pairs(pairs: list[WordPair], index: Mapping[str, int]) -> KnownPairs:
  """The pairs whose words are in the vocabulary, as given or else in lower case.

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
  """Similarities of the known pairs of a file, from a model and from people.

  Attributes:
    cosine_R: f64[R], cosines of the rows of both words.
    score_R: f64[R], human similarity scores.
  """

  cosine_R: np.ndarray
  score_R: np.ndarray


def cosines(a_RD: np.ndarray, b_RD: np.ndarray) -> np.ndarray:
  """Cosines f64[R] of the rows of two float[R, D]; the cosine of a zero row is 0.

  >>> cosines(np.array([[3.0, 4], [0, 0]]), np.array([[0.0, 2], [1, 1]])).tolist()
  [0.8, 0.0]
  """
  a_RD, b_RD = np.asarray(a_RD, np.float64), np.asarray(b_RD, np.float64)
  norm_R = np.linalg.norm(a_RD, axis=1) * np.linalg.norm(b_RD, axis=1)
  return np.sum(a_RD * b_RD, axis=1) / np.where(norm_R > 0, norm_R, 1)


def rank_correlation(pairs: PairCosines) -> float:
  """Spearman's rank correlation of scores with cosines.

  rho = Pearson's correlation of the ranks of score_r and of cosine_r, where ties have
  their mean rank. If all cosines are equal, rho is 0. The scores must not all be equal.

  Source: Hill, Reichart and Korhonen 2015 (SimLex-999).

  Cost: O(R log R).

  >>> pairs = PairCosines(np.array([1.0, 0.7, -1]), np.array([9.0, 5, 7]))
  >>> round(rank_correlation(pairs), 3)
  0.5
  """
  from scipy import stats  # Imported here, since the import takes a second.

  if np.ptp(pairs.cosine_R) == 0:
    return 0.0
  return float(stats.spearmanr(*pairs).statistic)


def make_similarity(exp: Experiment, data: Data) -> Callable[[State], dict[str, float]]:
  """Makes a function from a state to rank correlations with `eval.word_pairs`.

  The keys of its result are those of `make_pair_cosines`. Without files, the function
  returns {}.

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
  """Makes a function from a state to the cosines of the pairs in files.

  For each FILE, the function returns '<FILE>_input' for the rows of the table of
  inputs, if there is one, and '<FILE>_output' for the rows of the head. Both are over
  the pairs with both words in the vocabulary.

  Args:
    exp: the experiment.
    data: the data of the experiment.
    patterns: paths or glob patterns of the files.
    setting: the setting that names the files, for error messages.

  Raises:
    UserError: the data has no words, or has fewer than two pairs of a file.
  """
  if patterns and getattr(exp.data, "tokenizer", ""):
    raise UserError(
      f"{setting}: the classes are subwords, not words: leave this setting empty"
    )
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
  """The known pairs of a file; at least two of them must have different scores."""
  if not isinstance(data.vocabulary, Vocabulary):
    raise UserError(f"{setting}: the data has no words: leave this setting empty")
  pairs = read_word_pairs(path)
  known = known_pairs(pairs, data.vocabulary.index)
  if len(np.unique(known.score_R)) < 2:
    raise UserError(
      f"{path}: {len(known.score_R)} of its {len(pairs)} pairs are in the vocabulary, "
      "but a rank correlation needs two with different scores: remove the file from "
      f"{setting}"
    )
  _LOG.info(
    "%s: %d of its %d pairs are in the vocabulary",
    *(path, len(known.score_R), len(pairs)),
  )
  return known
