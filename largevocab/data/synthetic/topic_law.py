"""The distribution of documents with hidden topics, and its Bayes classifier.

Here T is the number of topics, K the number of features of each topic, and L the number
of labels of each topic.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from largevocab.data.labels.documents import Documents

_CHUNK = 64  # documents at a time


@dataclass(frozen=True, eq=False)
class TopicLaw:
  """p(topic), p(feature | topic) and p(label | topic).

  p(f | t) = noise q_f + (1 - noise) K_tf / K, where K_tf is the number of times that f
  is among the features of t. The labels of a document are some of the labels of its
  topic. The distribution treats all L labels of a topic alike.

  Attributes:
    prior_T: f64[T], p(t), which sums to 1.
    own_TK: i[T, K], features of each topic, possibly with repetitions.
    labels_TL: i[T, L], labels of each topic, distinct.
    noise: the share of noise, above 0.
    noise_D: f64[D], q.
    num_classes: V.
  """

  prior_T: np.ndarray
  own_TK: np.ndarray
  labels_TL: np.ndarray
  noise: float
  noise_D: np.ndarray
  num_classes: int

  @cached_property
  def evidence_DT(self) -> sparse.csr_array:
    """log (p(f | t) / (noise q_f)), sparse: positive for a topic's own features."""
    num, own = self.own_TK.shape
    topic = np.repeat(np.arange(num), own)
    shape = len(self.noise_D), num
    ones = np.full(self.own_TK.size, (1 - self.noise) / own)
    ratio = sparse.coo_array((ones, (self.own_TK.ravel(), topic)), shape=shape).tocsr()
    noise = np.repeat(self.noise * self.noise_D, np.diff(ratio.indptr))
    ratio.data = np.log1p(ratio.data / noise)
    return ratio

  @cached_property
  def share_TV(self) -> sparse.csr_array:
    """1 / L for the labels of a topic, sparse."""
    num, own = self.labels_TL.shape
    indptr = np.arange(0, self.labels_TL.size + 1, own)
    share = np.full(self.labels_TL.size, 1 / own)
    columns = self.labels_TL.ravel()
    return sparse.csr_array((share, columns, indptr), shape=(num, self.num_classes))

  @cached_property
  def marginal_V(self) -> np.ndarray:
    """f64[V], sum over t of p(t) [c is a label of t] / L."""
    return self.prior_T @ self.share_TV


@dataclass(frozen=True, eq=False)
class BayesClassifier:
  """q(c | x) = sum over t of p(t | x) [c is a label of t] / L, exactly.

  Since all labels of a topic are alike, p(c is a label of the document | x) is
  proportional to q. No classifier therefore has a higher expected P@k than the k
  largest q. Moreover, q is the softmax with the lowest expected loss, where the loss is
  over the documents' labels at equal weight.

  p(t | x) is proportional to p(t) exp(s_t), where s_t is the sum of the evidence of the
  document's features. s_t is 0 except for topics that have one of these features.

  Args:
    law: the distribution of the documents.
    documents: the documents, whose values are numbers of draws. `context_N` holds
      numbers of documents.

  Cost: for each document, O(F K T / D) topics for its F features, and the L labels of
    each; nothing of size N V.
  """

  law: TopicLaw
  documents: Documents

  def log_p(self, context_N: np.ndarray, ids_NP: np.ndarray) -> np.ndarray:
    """log q(c | x), f64[N, P], in nats; -inf for labels of no topic."""
    found = [np.zeros((0, ids_NP.shape[1]))]
    for at, base_N, own_NV in self._laws(context_N):
      ids = ids_NP[at]
      row = np.broadcast_to(np.arange(len(ids))[:, None], ids.shape)
      own = np.asarray(own_NV[row.ravel(), ids.ravel()]).reshape(ids.shape)
      with np.errstate(divide="ignore"):
        found.append(np.log(own + base_N[:, None] * self.law.marginal_V[ids]))
    return np.concatenate(found)

  def top_k(self, context_N: np.ndarray, k: int) -> np.ndarray:
    """i32[N, k], the most probable classes, best first; ties by lower id."""
    marginal_V = self.law.marginal_V
    likely = np.argsort(-marginal_V, kind="stable")[:k]
    best = [np.zeros((0, k), np.int32)]
    for _, base_N, own_NV in self._laws(context_N):
      for base, begin, end in zip(
        base_N, own_NV.indptr[:-1], own_NV.indptr[1:], strict=True
      ):
        # All other labels have no evidence, and a lower marginal.
        ids = np.append(own_NV.indices[begin:end], likely)
        own = np.append(own_NV.data[begin:end], np.zeros(k))
        score = own + base * marginal_V[ids]
        # Takes the k largest scores. The likely labels may occur twice.
        least = np.partition(score, -2 * k)[-2 * k] if len(score) > 2 * k else -np.inf
        kept = np.flatnonzero(score >= least)
        order = kept[np.lexsort((ids[kept], -score[kept]))]
        _, first = np.unique(ids[order], return_index=True)
        best.append(ids[order[np.sort(first)[:k]]].astype(np.int32)[None])
    return np.concatenate(best)

  def _laws(
    self, context_N: np.ndarray
  ) -> Iterator[tuple[slice, np.ndarray, sparse.csr_array]]:
    """q of each document, in chunks, as f64[N] times the marginal, plus f64[N, V]."""
    law = self.law
    for start in range(0, len(context_N), _CHUNK):
      at = slice(start, start + _CHUNK)
      part = self.documents.take(context_N[at])
      shape = part.number, len(law.noise_D)
      values = part.values.astype(np.float64)
      x_ND = sparse.csr_array((values, part.feature_ids, part.feature_ptr), shape=shape)
      s_NT = x_ND @ law.evidence_DT
      sizes = np.diff(s_NT.indptr)
      top_N = np.zeros(part.number)
      row = np.repeat(np.arange(part.number), sizes)
      np.maximum.at(top_N, row, s_NT.data)
      # p(t | x) Z exp(-top), minus the same quantity for a topic without evidence.
      lift = np.exp(s_NT.data - top_N[row]) - np.exp(-top_N[row])
      lift *= law.prior_T[s_NT.indices]
      total_N = np.exp(-top_N) + np.bincount(row, lift, minlength=part.number)
      s_NT.data = lift / total_N[row]
      yield at, np.exp(-top_N) / total_N, s_NT @ law.share_TV
