"""Answers queries to a trained model: next words, next items, labels of documents."""

import functools
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from largevocab.data.base import Data
from largevocab.data.batches import EvaluationBatches, FeatureBag
from largevocab.data.classes import Classes
from largevocab.data.items.next_item import NextItem
from largevocab.data.items.sequences import ItemSequences
from largevocab.data.labels.multi_label import MultiLabel
from largevocab.data.text.corpus import Corpus
from largevocab.data.text.vocabulary import Vocabulary
from largevocab.errors import UserError
from largevocab.evaluation.evaluate import Evaluate
from largevocab.evaluation.queries import (
  DocumentQueries,
  HistoryQueries,
  Line,
  Queries,
  Source,
  UserQueries,
  power_of_two,
)
from largevocab.labels import Counts
from largevocab.training import console
from largevocab.training.activations import at_steps, of_targets
from largevocab.training.averages import for_evaluation
from largevocab.training.input_rows import look_up
from largevocab.training.settings import Experiment
from largevocab.training.state import State, restore

_LOG = logging.getLogger("largevocab")
_BATCH = 256  # maximum number of queries per batch
_INPUTS = 1 << 18  # maximum inputs per batch, with padding, unless one query has more


class LanguageModel(NamedTuple):
  """A trained language model and its vocabulary.

  Attributes:
    evaluate: metrics of a state on batches of text.
    top_k: compiled `_next_word`.
  """

  exp: Experiment
  vocabulary: Vocabulary
  state: State
  evaluate: Evaluate
  top_k: Callable[..., tuple[jax.Array, jax.Array]]


class Ranker(NamedTuple):
  """A trained model that ranks items for histories, or labels for documents.

  Attributes:
    queries: parser of query lines.
    top_k: compiled `_best`.
  """

  exp: Experiment
  classes: Classes
  state: State
  queries: Queries
  top_k: Callable[..., tuple[jax.Array, jax.Array]]


def language_model(
  exp: Experiment, vocabulary: Vocabulary, state: State
) -> LanguageModel:
  """Makes a language model that reads one text at a time."""
  evaluate = Evaluate(exp, Counts(vocabulary.counts_V))
  top_k = jax.jit(functools.partial(_next_word, exp), static_argnames="k")
  return LanguageModel(exp, vocabulary, state, evaluate, top_k)


def ranker(
  exp: Experiment, data: NextItem | ItemSequences | MultiLabel, state: State
) -> Ranker:
  """Makes a model that ranks for batches of histories, users or documents."""
  classes = data.vocabulary
  index = {item: id for id, item in enumerate(classes.words)}
  if isinstance(data, NextItem):
    queries: Queries = HistoryQueries(index, data.train.shape[1] - 1)
  elif isinstance(data, ItemSequences):
    users = {user: number for number, user in enumerate(data.users)}
    shown = exp.eval.unroll, exp.eval.hide_seen
    queries = UserQueries(index, users, data, *shown)
  else:
    queries = DocumentQueries(data.num_inputs, len(classes), data.unit_norm)
  top_k = jax.jit(functools.partial(_best, exp), static_argnames="k")
  return Ranker(exp, classes, state, queries, top_k)


def load(exp: Experiment, workdir: str, which: str) -> LanguageModel | Ranker:
  """Loads the model of a run's 'latest' or 'best' checkpoint.

  Raises:
    UserError: the data does not support queries.
  """
  data, state = restore(exp, workdir, which)
  return model_of(exp, data, for_evaluation(exp.optimizer, state), workdir)


def model_of(
  exp: Experiment, data: Data, state: State, workdir: str
) -> LanguageModel | Ranker:
  """Makes the model for queries of the same kind as the training data."""
  if isinstance(data, Corpus):
    return language_model(exp, data.vocabulary, state)
  if isinstance(data, NextItem | ItemSequences | MultiLabel):
    return ranker(exp, data, state)
  raise UserError(
    f"{workdir} was not trained on text, item histories or labelled documents, so "
    "--mode=predict cannot answer queries: use --mode=evaluate"
  )


def answer(
  model: LanguageModel | Ranker, source: Source, k: int, mask_seen: bool = False
) -> None:
  """Prints a line of JSON for each line of a source; see `_of_text` and `_of_queries`.

  Invalid lines are logged and skipped.

  Args:
    k: number of best classes to list.
    mask_seen: whether to exclude the items of a history. For users, `eval.hide_seen`
      also excludes them.

  Raises:
    UserError: k is larger than the number of classes, or `mask_seen` is set and queries
      are not histories. It is also raised at the end if some lines were invalid.
  """
  queries = getattr(model, "queries", None)
  num = len(model.vocabulary if isinstance(model, LanguageModel) else model.classes)
  if k > num:
    raise UserError(f"--top_k is {k}, but the model has only {num} classes: lower it")
  if mask_seen and not isinstance(queries, HistoryQueries | UserQueries):
    raise UserError("--mask_seen is only for item histories; leave it out")
  mask_seen = mask_seen or (queries is not None and queries.hides_seen)
  wrong = []

  def refuse(line: Line, error: UserError) -> None:
    wrong.append(line.number)
    _LOG.error("%s, line %d: %s", source.name, line.number, error)

  for block in source.blocks:
    if isinstance(model, LanguageModel):
      answers = _of_text(model, block, k, refuse)
    else:
      answers = _of_queries(model, block, k, mask_seen, refuse)
    for each in answers:
      console.say(each)
  if wrong:
    raise UserError(
      f"{source.name}: no answer to {len(wrong)} of the lines; see the errors above"
    )


Refuse = Callable[[Line, UserError], None]


def _of_text(
  model: LanguageModel, lines: Sequence[Line], k: int, refuse: Refuse
) -> Iterator[dict[str, Any]]:
  """Answers each line that has words.

  An answer has the number of the line, its words, the unknown words (read as `<unk>`),
  the perplexity of all words, and the k most probable next words. The words follow an
  end of line and the words with which every line begins.

  Lines are split into words in the same way as the training text. Next subwords are
  shown by what they add to the text.
  """
  data, vocabulary = model.exp.data, model.vocabulary
  for line in lines:
    try:
      words = data.words(line.text())
    except UserError as error:
      refuse(line, error)
      continue
    if not words:
      continue
    ids = np.asarray(vocabulary.encode(words), np.int32)
    best = next_words(model, ids, k)
    yield {
      "line": line.number,
      "words": words,
      "unknown": [word for word in words if word not in vocabulary.index],
      "perplexity": _number(perplexity(model, ids)),
      "top": [
        _entry(vocabulary.index[word], data.added(words, word), score)
        for word, score in best
      ],
    }


def _of_queries(
  model: Ranker, lines: Sequence[Line], k: int, mask_seen: bool, refuse: Refuse
) -> Iterator[dict[str, Any]]:
  """For each line, its number and the k best classes, or fewer if fewer are left."""
  queries: list[tuple[int, Any]] = []
  for line in lines:
    try:
      queries.append((line.number, model.queries.read(line.text())))
    except UserError as error:
      refuse(line, error)
  for batch in _batches(model, queries):
    ranked = rank(model, [query for _, query in batch], k, mask_seen)
    for (number, query), best in zip(batch, ranked, strict=True):
      names = model.classes.decode([id for id, _ in best])
      top = [_entry(id, name, s) for (id, s), name in zip(best, names, strict=True)]
      yield {"line": number} | model.queries.answer(query, top)


def _batches(
  model: Ranker, queries: Sequence[tuple[int, Any]]
) -> Iterator[list[tuple[int, Any]]]:
  """Batches of queries in order, sized so that padding takes little memory."""
  batch: list[tuple[int, Any]] = []
  widest = 1
  for query in queries:
    wider = max(widest, model.queries.width(query[1]))
    if batch and (
      len(batch) == _BATCH or power_of_two(len(batch) + 1) * wider > _INPUTS
    ):
      yield batch
      batch, wider = [], model.queries.width(query[1])
    batch.append(query)
    widest = wider
  if batch:
    yield batch


def rank(
  model: Ranker, queries: Sequence[Any], k: int, mask_seen: bool = False
) -> list[list[tuple[int, float]]]:
  """The k best classes for each query and their scores, best first.

  Compiles once for each power of two of the number of queries, of the number of
  features in the longest query, and of the number of classes computed.

  Args:
    queries: results of `model.queries.read`.
    mask_seen: for histories and users, whether to exclude their items. The number of
      classes computed then grows by the number of distinct items in the longest query.
      The scores of all classes are never held in memory.
  """
  padded = [*queries, *[queries[-1]] * (power_of_two(len(queries)) - len(queries))]
  seen = [model.queries.seen(query) if mask_seen else set() for query in queries]
  most = max(map(len, seen))
  looked_at = min(power_of_two(k + most), len(model.classes)) if most else k
  inputs = model.queries.batch(padded)
  ids_NK, score_NK = model.top_k(model.state, *inputs, k=looked_at)
  ids, scores = np.asarray(ids_NK).tolist(), np.asarray(score_NK).tolist()
  return [
    [pair for pair in zip(*best, strict=True) if pair[0] not in masked][:k]
    for *best, masked in zip(ids[: len(seen)], scores[: len(seen)], seen, strict=True)
  ]


def perplexity(model: LanguageModel, ids: np.ndarray) -> float:
  """exp of the mean nll of these words, after an end of line and the opening.

  NaN if the model has no probabilities.
  """

  def nll(ids: np.ndarray) -> float:
    text = EvaluationBatches(ids, 1, model.exp.eval.unroll, model.vocabulary.eos)
    return len(ids) * model.evaluate(model.state, text).get("nll", math.nan)

  opening = _opening(model)
  of_opening = nll(opening) if len(opening) else 0.0
  of_each = (nll(np.append(opening, ids)) - of_opening) / len(ids)
  return math.exp(min(of_each, 700.0))


def _opening(model: LanguageModel) -> np.ndarray:
  """Ids of the words with which every line begins, without `<eos>`."""
  opening = getattr(model.exp.data, "opening", ())
  return np.asarray(model.vocabulary.encode(opening), np.int32)


def next_words(
  model: LanguageModel, ids: np.ndarray, k: int
) -> list[tuple[str, float]]:
  """The k most probable next words and their log-probabilities, best first.

  The text before is an end of line, the opening and the given words. A network without
  a recurrent state reads only the last `train.unroll` inputs. Compiles once for each k
  and each power of two of the length.
  """
  exp, eos = model.exp, model.vocabulary.eos
  x_T = np.concatenate([[np.int32(eos)], _opening(model), ids])
  most = power_of_two(len(x_T))
  if not jax.tree.leaves(exp.model.initial_carry(1)):  # trained on windows only
    most = min(most, exp.train.unroll)
    x_T = x_T[-most:]
  last = len(x_T) - 1
  x_T = np.pad(x_T, (0, most - len(x_T)), constant_values=eos)
  ids_NK, log_prob_NK = model.top_k(model.state, x_T, last, k=k)
  words = model.vocabulary.decode(np.asarray(ids_NK[0]))
  return list(zip(words, np.asarray(log_prob_NK[0]).tolist(), strict=True))


def _next_word(
  exp: Experiment, state: State, x_T: jax.Array, last: int, *, k: int
) -> tuple[jax.Array, jax.Array]:
  """Ids and log-probabilities after x_T[last]; later inputs are ignored."""
  return exp.head.top_k(state.head, _activations(exp, state, x_T[None])[:, last], k)


def _best(
  exp: Experiment,
  state: State,
  x: jax.Array | FeatureBag,
  at_B: jax.Array | None,
  *,
  k: int,
) -> tuple[jax.Array, jax.Array]:
  """Ids and scores [N, k] for N independent examples."""
  h_BTD = _activations(exp, state, x)
  num = len(h_BTD)
  h_ND = of_targets(h_BTD, num) if at_B is None else at_steps(h_BTD, at_B)
  return exp.head.top_k(state.head, h_ND, k)


def _activations(exp: Experiment, state: State, x: jax.Array | FeatureBag) -> jax.Array:
  """The activations h of all inputs, f32[B, T, D]."""
  rows_BTE = look_up(exp, state.inputs, state.head, x)
  carry = exp.model.initial_carry(rows_BTE.shape[0])
  return exp.model.apply({"params": state.params}, rows_BTE, carry)[0]


def _entry(id: int, name: str, score: float) -> dict[str, Any]:
  return {"id": id, "name": name, "score": _number(score)}


def _number(value: float) -> float | None:
  """A number as valid JSON, rounded to the precision of float32.

  >>> _number(0.1234567891), _number(math.nan)
  (0.12345679, None)
  """
  return float(f"{value:.8g}") if math.isfinite(value) else None
