"""Clusters of classes for the hierarchical softmax, by count or by neighbours."""

import itertools
import logging

import numpy as np

from largevocab.errors import UserError
from largevocab.labels import Counts
from largevocab.ops.tree.exchange import exchange
from largevocab.samplers.bigram import count_pairs

_LOG = logging.getLogger("largevocab")
_PASSES = 20  # maximum number of passes of the exchange algorithm
_FEW = 0.01  # passes stop when one moves less than this share of the classes


def equal(counts: Counts, num: int, most: int) -> np.ndarray:
  """Classes by decreasing count, cut into `num` clusters of the same size.

  >>> equal(Counts(np.array([1, 5, 3, 4])), 3, most=2)
  array([2, 0, 1, 0])
  """
  V = counts.num_classes
  cluster_V = np.empty(V, np.int64)
  cluster_V[_by_count(counts)] = np.arange(V) * num // V
  return cluster_V


def frequency(counts: Counts, num: int, most: int) -> np.ndarray:
  """Classes by decreasing count, cut into clusters of equal total count.

  Source: Mikolov et al. 2011, "Extensions of recurrent neural network language model",
    section 3. Deviations: a cluster has between 1 and `most` classes; the count that
    does not fit is divided evenly among the remaining clusters.

  >>> frequency(Counts(np.array([1, 5, 3, 1])), 2, most=4)
  array([1, 0, 1, 1])
  """
  return _equal_mass(counts, counts.unigram_V, num, most)


def sqrt(counts: Counts, num: int, most: int) -> np.ndarray:
  """As `frequency`, but with square roots of counts: rare classes have more weight.

  Source: Grave et al. 2017, section 5, the most efficient of the bins by count.

  >>> counts = Counts(np.array([1, 1, 1, 1, 9, 1]))
  >>> sqrt(counts, 2, most=5), frequency(counts, 2, most=5)
  (array([0, 1, 1, 1, 0, 1]), array([1, 1, 1, 1, 0, 1]))
  """
  return _equal_mass(counts, np.sqrt(counts.unigram_V), num, most)


def brown(counts: Counts, num: int, most: int) -> np.ndarray:
  """Brown clusters: classes with similar neighbours in the training stream share one.

  Starts from the ranks by count modulo `num`, and stops after 20 passes, or when a pass
  moves fewer than 1 % of the classes. Each pass is logged.

  Source: Brown et al. 1992, as used by Grave et al. 2017, section 5; by exchange
    instead of merging, see `largevocab.ops.tree.exchange`.

  Raises:
    UserError: there is no token stream.
  """
  tokens, V = counts.tokens, counts.num_classes
  if tokens is None or len(tokens) < 2:
    raise UserError(
      "head.binning is 'brown', which needs the token stream in `Counts.tokens`: "
      "choose a data set of text or another binning, or name a file in head.clusters"
    )
  codes_P, counts_P = count_pairs(tokens, V)
  cluster_V = np.empty(V, np.int64)
  cluster_V[_by_count(counts)] = np.arange(V) % num
  passes = exchange(codes_P, counts_P, cluster_V, most)
  for number, sweep in enumerate(itertools.islice(passes, _PASSES), 1):
    perplexity = np.exp(-sweep.log_likelihood / counts_P.sum())
    _LOG.info(
      "clusters, pass %d: %d classes moved, perplexity %.2f",
      *(number, sweep.moved, perplexity),
    )
    cluster_V = sweep.cluster_V
    if sweep.moved < _FEW * V:
      break
  return cluster_V


BINNINGS = {"equal": equal, "frequency": frequency, "sqrt": sqrt, "brown": brown}


def _by_count(counts: Counts) -> np.ndarray:
  """Classes by decreasing count."""
  return np.argsort(-counts.unigram_V, kind="stable")


def _equal_mass(counts: Counts, mass_V: np.ndarray, num: int, most: int) -> np.ndarray:
  """Clusters of about equal mass, from the rarest class on.

  Each cluster gets its share of the remaining mass.
  """
  order_V = _by_count(counts)[::-1]
  sum_V = np.cumsum(mass_V[order_V], dtype=float)
  V = len(order_V)
  cluster_V = np.empty(V, np.int64)
  start, done = 0, 0.0
  for k in range(num)[::-1]:  # k clusters remain, for k to k * most classes
    share = done + (sum_V[-1] - done) / (k + 1)
    end = int(np.searchsorted(sum_V, share)) + 1
    end = np.clip(end, max(start + 1, V - k * most), min(start + most, V - k))
    cluster_V[order_V[start:end]] = k
    start, done = end, sum_V[end - 1]
  return cluster_V
