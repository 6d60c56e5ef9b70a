"""Batches of a token stream, as pure functions of the step, with lazy reads."""

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from largevocab.errors import UserError
from largevocab.fields import BatchSize, CountOrNone, Unroll, settings
from largevocab.labels import Targets

ALL = slice(None)  # all rows of a batch


class FeatureBag(NamedTuple):
  """Sparse features of B examples, as ids and values for the table of inputs.

  Attributes:
    ids_BF: i32[B, F], the features of each example, padded with the number of features.
    values_BF: f32[B, F], 0 on padding.
  """

  ids_BF: np.ndarray
  values_BF: np.ndarray


class Batch(NamedTuple):
  """Inputs and targets of one step.

  Attributes:
    x: i32[B, T], input ids; ids >= V are missing inputs and look up zeros. For text,
      the token before each target: T consecutive tokens of each of B streams. For
      examples with sparse features, a `FeatureBag`. Without a table of inputs,
      f32[B, T, F], dense features.
    y: the targets. For text, example n = b * T + t, and context_N is x flattened. For
      item histories, example n = b, and context_N is the last item. For examples with
      features, context_N is their number in the split. P = 1 unless examples have
      several labels.
    start: bool[], True if the recurrent state is reset.
    at: i32[B], the step of the only example in each row of x, for sequences that are
      padded at the end; N = B. None: there is an example at every step, or the network
      has one output per row.
    seen: i32[N, S], classes that rankings may leave out, padded with V; see
      `eval.hide_seen`. None: there are no such classes.
  """

  x: np.ndarray | FeatureBag
  y: Targets
  start: np.bool_
  at: np.ndarray | None = None
  seen: np.ndarray | None = None


def _batch(x: np.ndarray, y: np.ndarray, weight: np.ndarray, start: bool) -> Batch:
  targets = Targets(
    y.reshape(-1, 1).astype(np.int32),  # pyrefly: ignore
    weight.reshape(-1, 1).astype(np.float32),  # pyrefly: ignore
    x.reshape(-1).astype(np.int32),  # pyrefly: ignore
  )
  return Batch(x.astype(np.int32), targets, np.bool_(start))


@settings
class TokenBatches:
  """Training batches: the text is cut into B contiguous streams, T tokens per step.

  The global step is the iterator's whole state, so that resuming is exact. At most
  B - 1 tokens at the end of the text and T - 1 at the end of each stream are not read.

  Attributes:
    tokens: i32[tokens]; may be memory-mapped, since only slices of it are read.
    batch_size: B, the number of streams.
    unroll: T, tokens of each stream per step.
    first: the input id before the very first token (the id of `<eos>`).

  Raises:
    UserError: the text is too short for a single batch.

  >>> batches = TokenBatches(np.arange(12), batch_size=2, unroll=3, first=9)
  >>> batches.steps_per_epoch
  2
  >>> batches.batch(0).x
  array([[9, 0, 1],
         [5, 6, 7]], dtype=int32)
  >>> batches.batch(0).y.ids_NP.ravel()
  array([0, 1, 2, 6, 7, 8], dtype=int32)
  """

  tokens: np.ndarray
  batch_size: BatchSize
  unroll: Unroll
  first: CountOrNone

  def __post_init__(self):
    if not self.steps_per_epoch:
      raise UserError(
        f"the training text has {len(self.tokens)} tokens, but a batch takes "
        f"batch_size * unroll = {self.batch_size} * {self.unroll}: reduce one of these"
      )

  @property
  def steps_per_epoch(self) -> int:
    return len(self.tokens) // self.batch_size // self.unroll

  def batch(self, step: int, rows: slice = ALL) -> Batch:
    """The batch of a global step, or some streams of it; epochs repeat without end."""
    length = len(self.tokens) // self.batch_size
    text = np.asarray(self.tokens)[: self.batch_size * length]
    streams = text.reshape(self.batch_size, length)
    t = int(step) % self.steps_per_epoch * self.unroll
    y = streams[rows, t : t + self.unroll]
    before = streams[rows, t - 1] if t else self._before(streams)[rows]
    x = np.concatenate([before[:, None], y[:, :-1]], axis=1)
    return _batch(x, y, np.ones(y.shape), start=t == 0)

  def _before(self, streams: np.ndarray) -> np.ndarray:
    """The token before each stream."""
    return np.append(self.first, streams[:-1, -1])


class TextSize(NamedTuple):
  """The size of a text before it was cut into subwords, to compare vocabularies.

  Attributes:
    words: number of words between blanks, plus one for each end of a line.
    bytes: number of bytes in UTF-8, with one for each end of a line.
  """

  words: int
  bytes: int

  def per_unit(self, nll: float) -> dict[str, float]:
    """Metrics that do not depend on the tokens, from the sum of nll over all tokens.

      word_ppl = exp(nll / words);  bits_per_byte = nll / (bytes log 2)

    >>> TextSize(words=2, bytes=8).per_unit(math.log(2**4))
    {'word_ppl': 4.0, 'bits_per_byte': 0.5}
    """
    return {
      "word_ppl": math.exp(min(nll / self.words, 700.0)),
      "bits_per_byte": nll / (self.bytes * math.log(2)),
    }


@settings
class EvaluationBatches:
  """Every token exactly once, in ceil(len / B) steps of B streams, T at a time.

  Padding of the last streams has weight 0 and the valid id `first`. Only the first
  batch resets the recurrent state. If tokens are subwords, `size` is the size of the
  text. The other attributes are as in `TokenBatches`.

  >>> batches = EvaluationBatches(np.arange(5), batch_size=2, unroll=2, first=9)
  >>> [batch.x.tolist() for batch in batches]
  [[[9, 0], [2, 3]], [[1, 9], [9, 9]]]
  >>> sum(batch.y.w_NP.sum() for batch in batches)
  np.float32(5.0)
  """

  tokens: np.ndarray
  batch_size: BatchSize
  unroll: Unroll
  first: CountOrNone
  size: TextSize | None = None

  def __post_init__(self):
    if not len(self.tokens):
      raise UserError("the evaluation text has no tokens: give a text that has some")

  @property
  def num_examples(self) -> int:
    return len(self.tokens)

  @property
  def _stream_length(self) -> int:
    return -(-len(self.tokens) // self.batch_size)

  def __len__(self) -> int:
    return -(-self._stream_length // self.unroll)

  def __iter__(self) -> Iterator[Batch]:
    return self.read()

  def read(self, rows: slice = ALL) -> Iterator[Batch]:
    """All batches, or only some of their streams."""
    tokens = np.asarray(self.tokens)
    starts = np.arange(self.batch_size)[rows, None] * self._stream_length
    for step in range(len(self)):
      offset = np.arange(step * self.unroll, (step + 1) * self.unroll)[None, :]
      position = starts + offset
      real = (offset < self._stream_length) & (position < len(tokens))
      has_context = real & (position > 0)
      y = np.where(real, tokens[np.where(real, position, 0)], self.first)
      x = np.where(
        has_context, tokens[np.where(has_context, position - 1, 0)], self.first
      )
      yield _batch(x, y, real, start=step == 0)

  def one_of_each_shape(self, rows: slice = ALL) -> Iterator[Batch]:
    """The first batch, whose shape all batches have."""
    return itertools.islice(self.read(rows), 1)
