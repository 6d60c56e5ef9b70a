"""Ranking metrics of the true classes among all classes.

Repeated true classes of an example count once. Means are over the examples with a true
class, or over all examples; see `finish`.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.labels import Counts, Targets
from largevocab.ops.accidental_hits import is_first, is_member
from largevocab.ops.shapes import check_shapes


def at_k(ids_NK: jax.Array, y: Targets) -> dict[str, jax.Array]:
  """Recall and reciprocal rank among the best K classes, for each example.

  recall_n = sum_p w_np [y_np is among the K] / sum_p w_np;  mrr_n = 1 / rank of the
  first true class among the K, or 0 if none is true. With one true class per example,
  the average of mrr_n is the mean reciprocal rank, MRR@K.

  Args:
    ids_NK: i32[N, K], the best K classes, best first.
    y: the true classes; those of weight 0 are ignored. If a class is listed several
      times, its first weight counts.

  Returns:
    {'recall@K': f32[N], 'mrr@K': f32[N]}.

  >>> y = Targets(jnp.array([[7], [5]]), jnp.ones((2, 1)), jnp.zeros(2, int))
  >>> metrics = at_k(jnp.array([[3, 7], [1, 2]]), y)
  >>> {name: values.tolist() for name, values in metrics.items()}
  {'recall@2': [1.0, 0.0], 'mrr@2': [0.5, 0.0]}
  """
  k = check_shapes(ids_NK=ids_NK, ids_NP=y.ids_NP, w_NP=y.w_NP)["K"]
  found_NP, hit_NK = is_member(y.ids_NP, ids_NK), _hit(ids_NK, y)
  w_NP = jnp.where(_distinct_true(y), y.w_NP, 0)
  weight_N, found_N = jnp.sum(w_NP, axis=1), jnp.sum(w_NP * found_NP, axis=1)
  rank_N = 1 + jnp.argmax(hit_NK, axis=1)
  return {
    f"recall@{k}": found_N / jnp.where(weight_N > 0, weight_N, 1),
    f"mrr@{k}": jnp.where(jnp.any(hit_NK, axis=1), 1 / rank_N, 0),
  }


def of_labels(
  ids_NK: jax.Array, y: Targets, inverse_propensity_V: jax.Array, ks: Sequence[int]
) -> dict[str, jax.Array]:
  """Metrics of extreme classification from the best k classes, for several k.

  p@k = (true classes among the best k) / k
  ndcg@k = sum over true classes of 1 / log2(1 + rank), divided by its largest value
  psp@k = sum over true classes of 1 / propensity, divided by its largest value; this is
    a ratio of means over the examples, which `finish` computes from both means.

  Args:
    ids_NK: i32[N, K], the best classes, best first; K is at least the largest k.
    y: the true classes, those of positive weight; weights and repetitions do not
      matter.
    inverse_propensity_V: f32[V], see `inverse_propensities`.
    ks: values of k.

  Returns:
    {'p@k', 'ndcg@k', 'psp_gain@k', 'psp_ideal@k': f32[N]}.

  Source: the extreme classification repository (Bhatia et al. 2016); nDCG is relative
    to the ideal value for an example's number of classes. The repository's tool pyxclib
    averages p@k and ndcg@k over all examples, including those without a class, as
    `eval.unlabelled='count'` does.

  >>> y = Targets(jnp.array([[1, 2]]), jnp.full((1, 2), 0.5), jnp.zeros(1, int))
  >>> metrics = of_labels(jnp.array([[1, 0]]), y, jnp.array([1.0, 2.0, 5.0]), [1, 2])
  >>> {name: round(float(v_N[0]), 3) for name, v_N in sorted(metrics.items())}
  {'ndcg@1': 1.0, 'ndcg@2': 0.613, 'p@1': 1.0, 'p@2': 0.5, 'psp_gain@1': 2.0, \
'psp_gain@2': 2.0, 'psp_ideal@1': 5.0, 'psp_ideal@2': 7.0}
  """
  num = check_shapes(ids_NK=ids_NK, ids_NP=y.ids_NP, w_NP=y.w_NP)["P"]
  is_true_NP = _distinct_true(y)
  hit_NK = _hit(ids_NK, y)
  worth_NP = inverse_propensity_V.at[y.ids_NP].get(mode="fill", fill_value=0)
  worth_NP = -jnp.sort(-jnp.where(is_true_NP, worth_NP, 0), axis=1)
  worth_NK = jnp.where(hit_NK, inverse_propensity_V[ids_NK], 0)
  metrics = {}
  for k in ks:
    metrics |= {
      f"p@{k}": jnp.mean(hit_NK[:, :k].astype(jnp.float32), axis=1),
      f"ndcg@{k}": _ndcg(hit_NK[:, :k], is_true_NP),
      f"psp_gain@{k}": jnp.sum(worth_NK[:, :k], axis=1),
      f"psp_ideal@{k}": jnp.sum(worth_NP[:, : min(k, num)], axis=1),
    }
  return metrics


def hits(ids_NK: jax.Array, y: Targets, ks: Sequence[int]) -> dict[str, jax.Array]:
  """Hit rate and nDCG of recommenders from the best K classes, for several k.

  hr@k = 1 if a true class is among the best k, else 0
  ndcg@k as in `of_labels`; with one true class, of rank r, 1 / log2(1 + r) if r <= k

  Args:
    ids_NK: i32[N, K], the best classes, best first; ids from V on are not classes.
    y: the true classes, those of positive weight.
    ks: values of k, at most K.

  Returns:
    {'hr@k', 'ndcg@k': f32[N]}.

  Source: Kang and McAuley 2018, for the names. Deviation: their metrics rank the true
    item among 100 sampled ones. These metrics rank it among all items, as Krichene and
    Rendle 2020 recommend.

  >>> y = Targets(jnp.array([[7], [5]]), jnp.ones((2, 1)), jnp.zeros(2, int))
  >>> metrics = hits(jnp.array([[3, 7], [1, 2]]), y, [1, 2])
  >>> {name: round(float(v_N[0]), 3) for name, v_N in metrics.items()}
  {'hr@1': 0.0, 'ndcg@1': 0.0, 'hr@2': 1.0, 'ndcg@2': 0.631}
  """
  is_true_NP, hit_NK = _distinct_true(y), _hit(ids_NK, y)
  return {
    name: value_N
    for k in ks
    for name, value_N in (
      (f"hr@{k}", jnp.any(hit_NK[:, :k], axis=1).astype(jnp.float32)),
      (f"ndcg@{k}", _ndcg(hit_NK[:, :k], is_true_NP)),
    )
  }


def without(ids_NK: jax.Array, hidden_NS: jax.Array, num_classes: int) -> jax.Array:
  """The best classes without hidden ones, which move to the end and become V.

  Given the best K + S classes, or all classes, at least the first K of the result are
  the best classes that are not hidden.

  Args:
    ids_NK: i32[N, K], best first.
    hidden_NS: i32[N, S], in any order, maybe with repetitions; ids from V on are
      padding.
    num_classes: V.

  Cost: a stable sort of K, and `is_member`.

  >>> without(jnp.array([[3, 1, 2, 0]]), jnp.array([[1, 5, 3]]), 4).tolist()
  [[2, 0, 4, 4]]
  """
  is_hidden_NK = is_member(ids_NK, hidden_NS)
  order_NK = jnp.argsort(is_hidden_NK, axis=1, stable=True)
  ids_NK = jnp.where(is_hidden_NK, num_classes, ids_NK)
  return jnp.take_along_axis(ids_NK, order_NK, axis=1)


def _hit(ids_NK: jax.Array, y: Targets) -> jax.Array:
  """Which of the best classes are true, bool[N, K]."""
  return is_member(ids_NK, jnp.where(y.w_NP > 0, y.ids_NP, -1))


def _ndcg(hit_NK: jax.Array, is_true_NP: jax.Array) -> jax.Array:
  """The gain of the hits, discounted by rank, over its largest value, f32[N]."""
  k = hit_NK.shape[1]
  discount_K = jnp.asarray(1 / np.log2(2 + np.arange(k)), jnp.float32)
  true_N = jnp.sum(is_true_NP, axis=1)
  best_N = jnp.cumsum(discount_K)[jnp.clip(true_N, 1, k) - 1]
  return jnp.sum(hit_NK * discount_K[None], axis=1) / best_N


def _distinct_true(y: Targets) -> jax.Array:
  """Mask of the true classes, bool[N, P]: positive weight, without repetitions."""
  is_true_NP = y.w_NP > 0
  return is_true_NP & is_first(jnp.where(is_true_NP, y.ids_NP, -1))


def finish(means: dict[str, float], labelled: float = 1.0) -> dict[str, float]:
  """Means over examples, with 'psp@k' computed from its gain and ideal.

  Args:
    means: means over the examples that have a true class.
    labelled: the share of these examples among the examples to average over; examples
      without a true class count as 0. 'psp@k' does not depend on this share.

  >>> finish({"p@1": 0.5, "psp_gain@1": 1.0, "psp_ideal@1": 4.0}, labelled=0.5)
  {'p@1': 0.25, 'psp@1': 0.25}
  """
  finished = {}
  for name, value in means.items():
    if name.startswith("psp_gain@"):
      k = name.partition("@")[2]
      ideal = means[f"psp_ideal@{k}"]
      finished[f"psp@{k}"] = value / ideal if ideal else 0.0
    elif not name.startswith("psp_ideal@"):
      finished[name] = value * labelled if "@" in name else value
  return finished


def inverse_propensities(counts: Counts, a: float, b: float) -> jax.Array:
  """1 / P(a true class is observed): 1 + C (count + b)^-a, C = (ln N - 1)(b + 1)^a.

  Args:
    counts: class counts, with the number N of training examples (if unknown, N is the
      number of occurrences).
    a, b: constants of the data set: by default 0.55 and 1.5; for Amazon 0.6 and 2.6;
      for Wikipedia 0.5 and 0.4.

  Returns:
    f32[V].

  Source: Jain, Prabhu and Varma 2016, section 4.

  >>> worth_V = inverse_propensities(Counts(np.array([9, 0]), examples=9), 0.55, 1.5)
  >>> [round(float(worth), 3) for worth in worth_V]
  [1.544, 2.586]
  """
  num = max(counts.examples or int(counts.unigram_V.sum()), 3)
  constant = (np.log(num) - 1) * (b + 1) ** a
  return jnp.asarray(1 + constant * (counts.unigram_V + b) ** -a, jnp.float32)
