"""Counts for the baselines, taken from the training examples that a network reads."""

from collections.abc import Iterable, Iterator

import numpy as np
from scipy import sparse

from largevocab.baselines.after_last import AfterLast
from largevocab.baselines.by_counts import ByCounts
from largevocab.baselines.measure import Baseline
from largevocab.data.base import Data
from largevocab.data.batches import Batch, FeatureBag
from largevocab.training.settings import Experiment

CHUNK = 1 << 22  # number of pairs counted at a time


OF_TEXT = ("unigram", "bigram")
OF_ITEMS = ("popularity", "last item")
OF_FEATURES = ("label frequency",)
NAMES = (*OF_TEXT, *OF_ITEMS, *OF_FEATURES)


def counted(exp: Experiment, data: Data) -> dict[str, Baseline]:
  """Fits the baselines for some data, and returns them by name.

  The names are `OF_TEXT` for text, `OF_ITEMS` for item histories, and `OF_FEATURES` for
  documents with labels.

  Args:
    exp: the experiment, whose `eval` has the batch size for reading the training split
      and whose `train` has the length of histories.
    data: the result of loading `exp.data`.

  Cost: O(T) for T training examples, in chunks; memory for the distinct pairs.
  """
  alone = ByCounts(data.counts.unigram_V)
  batches = data.evaluation_batches("train", exp.eval.batch_size, exp.train.unroll)
  is_text = data.counts.tokens is not None
  if not is_text and not _has_last(next(iter(batches))):
    return dict.fromkeys(OF_FEATURES, alone)
  after = AfterLast(count_pairs(batches, data.counts.num_classes), alone)
  names = OF_TEXT if is_text else OF_ITEMS
  return dict(zip(names, (alone, after), strict=True))


def count_pairs(batches: Iterable[Batch], num_classes: int) -> sparse.csr_array:
  """Counts each class after each context, i64[V + 1, V] in sparse rows.

  >>> from largevocab.data.batches import EvaluationBatches
  >>> tokens = np.array([0, 1, 0, 1])
  >>> batches = EvaluationBatches(tokens, batch_size=2, unroll=2, first=1)
  >>> count_pairs(batches, 2).toarray().tolist()
  [[0, 2], [2, 0], [0, 0]]
  """
  shape = num_classes + 1, num_classes
  pairs = sparse.csr_array(shape, dtype=np.int64)
  for context_N, id_N in _chunks(batches):
    ones_N = np.ones(len(id_N), np.int64)
    pairs += sparse.coo_array((ones_N, (context_N, id_N)), shape=shape).tocsr()
  return pairs


def _chunks(batches: Iterable[Batch]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
  """Context and class of examples with positive weight, i32[N] each, in chunks."""
  contexts, ids, held = [], [], 0
  for batch in batches:
    counts_N = np.asarray(batch.y.w_NP)[:, 0] > 0
    contexts.append(np.asarray(batch.y.context_N)[counts_N])
    ids.append(np.asarray(batch.y.ids_NP)[counts_N, 0])
    held += len(ids[-1])
    if held >= CHUNK:
      yield np.concatenate(contexts), np.concatenate(ids)
      contexts, ids, held = [], [], 0
  if held:
    yield np.concatenate(contexts), np.concatenate(ids)


def _has_last(batch: Batch) -> bool:
  """Whether examples have a previous class, since inputs are one id per time step."""
  return not isinstance(batch.x, FeatureBag) and np.asarray(batch.x).dtype.kind in "iu"
