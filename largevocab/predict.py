"""Questions to a trained language model: the next word, the perplexity of a text."""

import functools
import math
import sys
from collections.abc import Callable, Iterable
from typing import NamedTuple

import jax
import numpy as np

from largevocab import inputs
from largevocab.data.batches import EvaluationBatches
from largevocab.data.corpus import Corpus
from largevocab.data.vocabulary import Vocabulary
from largevocab.errors import UserError
from largevocab.evaluate import Evaluate, make_evaluate
from largevocab.experiment import Experiment
from largevocab.labels import Counts
from largevocab.state import State, restore


class LanguageModel(NamedTuple):
  """A trained model and its words.

  Attributes:
    evaluate: metrics of a state on batches of text.
    top_k: compiled `_top_k`.
  """

  exp: Experiment
  vocabulary: Vocabulary
  state: State
  evaluate: Evaluate
  top_k: Callable[..., tuple[jax.Array, jax.Array]]


def language_model(
  exp: Experiment, vocabulary: Vocabulary, state: State
) -> LanguageModel:
  """A model that reads one text at a time."""
  evaluate = make_evaluate(exp, Counts(vocabulary.counts_V))
  top_k = jax.jit(functools.partial(_top_k, exp), static_argnames="k")
  return LanguageModel(exp, vocabulary, state, evaluate, top_k)


def load(exp: Experiment, workdir: str, which: str) -> LanguageModel:
  """The model of a run's 'latest' or 'best' checkpoint.

  Raises:
    UserError: it was trained on something else than text.
  """
  data, state = restore(exp, workdir, which)
  if not isinstance(data, Corpus):
    raise UserError(
      f"{workdir} was not trained on text, and --mode=predict asks for words: use "
      "--mode=evaluate"
    )
  return language_model(exp, data.vocabulary, state)


def answer(model: LanguageModel, lines: Iterable[str], k: int) -> None:
  """Prints, for each line of text, its perplexity and the k likeliest next words.

  A line becomes words as the training text did. The perplexity is that of these words,
  after the end of a line. Words that the model does not know, which it reads as
  `<unk>`, are named on stderr.

  Raises:
    UserError: k is larger than the vocabulary.
  """
  vocabulary = model.vocabulary
  if k > len(vocabulary):
    raise UserError(f"--top_k is {k}; the model has only {len(vocabulary)} words")
  for line in lines:
    words = model.exp.data.words(line)
    if not words:
      continue
    ids = np.asarray(vocabulary.encode(words), np.int32)
    unknown = [w for w in words if w not in vocabulary.index]
    if unknown:
      print(f"not in the vocabulary: {' '.join(unknown)}", file=sys.stderr)
    print(" ".join(words))
    print(f"  perplexity {perplexity(model, ids):.2f} over {len(ids)} words")
    for word, log_prob in next_words(model, ids, k):
      print(f"  {math.exp(log_prob):8.5f}  {word}", flush=True)


def perplexity(model: LanguageModel, ids: np.ndarray) -> float:
  """exp of the mean nll of these words, after the end of a line."""
  text = EvaluationBatches(ids, 1, model.exp.eval.unroll, model.vocabulary.eos)
  return model.evaluate(model.state, text)["ppl"]


def next_words(
  model: LanguageModel, ids: np.ndarray, k: int
) -> list[tuple[str, float]]:
  """The k likeliest words after these, with their log-probabilities, best first.

  Compiles once for each k and power of two of the length.
  """
  eos = model.vocabulary.eos
  length = 1 + len(ids)
  x_T = np.full(1 << (length - 1).bit_length(), eos, np.int32)
  x_T[1:length] = ids
  ids_NK, log_prob_NK = model.top_k(model.state, x_T, length - 1, k=k)
  words = model.vocabulary.decode(np.asarray(ids_NK[0]))
  return list(zip(words, np.asarray(log_prob_NK[0]).tolist(), strict=True))


def _top_k(
  exp: Experiment, state: State, x_T: jax.Array, last: int, *, k: int
) -> tuple[jax.Array, jax.Array]:
  """Ids and log-probabilities after x_T[last]; what comes later is not looked at."""
  rows_BTE = inputs.look_up(state.inputs, x_T[None], exp.model.embed)
  carry = exp.model.initial_carry(1)
  h_BTD, _ = exp.model.apply({"params": state.params}, rows_BTE, carry)
  return exp.head.top_k(state.head, h_BTD[:, last], k)
