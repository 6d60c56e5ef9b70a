"""Metrics of an adapter, from what its `evaluate` gives for each batch."""

import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.data.base import Data, HeldOutBatches
from largevocab.data.batches import Batch
from largevocab.errors import UserError
from largevocab.evaluation import moments
from largevocab.evaluation.evaluate import (
  finished,
  num_ranked,
  propensity_weights,
  retrieved,
)
from largevocab.evaluation.moments import Moments
from largevocab.training.settings import Experiment

if TYPE_CHECKING:
  from largevocab.bench.adapter import Adapter

_LEAST = -0.01  # smallest -log p, which may be rounded in half precision
_FEW = 1_000  # number of classes up to which it is checked that probabilities sum to 1
_NEAR_ONE = 0.02  # deviation of a sum from 1, in half precision


class Measure:
  """Metrics of an adapter, like `largevocab.evaluation.evaluate.Evaluate` for a head.

  Args:
    exp: the experiment.
    data: the data, which gives the number of classes and their counts.
  """

  def __init__(self, exp: Experiment, data: Data):
    self._exp, self._num_classes = exp, data.counts.num_classes
    self._weight_V = propensity_weights(exp, data.counts)
    self._sums = jax.jit(self._of_batch)

  def __call__(self, model: "Adapter", batches: HeldOutBatches) -> dict[str, float]:
    """Computes the metrics.

    Raises:
      UserError: the adapter's `evaluate` did not give what it was asked for.
    """
    seen = Moments()
    for output, batch in self._outputs(model, batches, self._first(batches)):
      weight_N = np.sum(np.asarray(batch.y.w_NP), axis=1, dtype=np.float64)
      seen.add(self._sums(jnp.asarray(output), batch), weight_N)
    return finished(self._exp, seen, batches)

  def try_out(self, model: "Adapter", batches: HeldOutBatches) -> None:
    """Evaluates the first batch, so that errors of `__call__` appear early.

    If there are few classes, each of them is the label in turn, and the probabilities
    must sum to 1.
    """
    first = self._first(batches)
    outputs = [output for output, _ in self._outputs(model, [first], first)]
    if outputs[0].ndim == 2 or self._num_classes > _FEW:
      return
    ids_V = np.arange(self._num_classes, dtype=np.int32)
    ids_VNP: Any = np.tile(ids_V[:, None, None], first.y.ids_NP.shape)
    labelled = [
      first._replace(y=first.y._replace(ids_NP=ids_NP), start=np.True_)
      for ids_NP in ids_VNP
    ]
    nll_VN = np.stack([output for output, _ in self._outputs(model, labelled, first)])
    p_N = np.exp(-nll_VN[:, np.sum(first.y.w_NP, axis=1) > 0]).sum(axis=0)
    if np.isfinite(nll_VN).all() and (off := np.abs(p_N - 1)).max() > _NEAR_ONE:
      raise UserError(
        "the adapter's `evaluate` gave probabilities that sum to "
        f"{p_N[off.argmax()]:.4g} over all classes: normalise them, for any loss"
      )

  def _first(self, batches: HeldOutBatches) -> Batch:
    return next(iter(batches.one_of_each_shape()))

  def _outputs(
    self, model: "Adapter", batches: Iterable[Batch], first: Batch
  ) -> Iterator[tuple[np.ndarray, Batch]]:
    k = num_ranked(self._exp, first, self._num_classes)
    given, kept = itertools.tee(batches)
    own = map(_copy, given)  # the adapter may change its arrays
    for output, batch in itertools.zip_longest(model.evaluate(own, k), kept):
      if output is None or batch is None:
        raise UserError("the adapter's `evaluate` must give one array for each batch")
      yield _checked(output, batch, k, self._num_classes), batch

  def _of_batch(self, output: jax.Array, batch: Batch) -> dict[str, jax.Array]:
    is_ranking = output.ndim == 2
    found = {"nll": output}
    if is_ranking:
      found = retrieved(self._exp, output, batch, self._num_classes, self._weight_V)
    return moments.sums(found, jnp.sum(batch.y.w_NP, axis=1))


def _copy(batch: Batch) -> Batch:
  is_array = lambda leaf: isinstance(leaf, np.ndarray)
  return jax.tree.map(lambda leaf: leaf.copy() if is_array(leaf) else leaf, batch)


def _checked(output: np.ndarray, batch: Batch, k: int, num_classes: int) -> np.ndarray:
  """Checks the output of `evaluate`, and sets -log p to 0 for examples of weight 0."""
  weight_N = np.asarray(batch.y.w_NP).sum(axis=1)
  N = len(weight_N)
  shape, kinds = ((N, k), "iu") if k else ((N,), "f")
  if output.shape != shape or output.dtype.kind not in kinds:
    what = "class ids, whole numbers" if k else "-log p, floating point"
    raise UserError(
      f"the adapter's `evaluate` gave {output.dtype}{list(output.shape)}, but must "
      f"give {what} of shape {list(shape)}"
    )
  if k:
    if not ((output >= 0) & (output < num_classes)).all():
      raise UserError(
        f"the adapter's `evaluate` gave class ids outside of 0 ... {num_classes - 1}"
      )
    return output.astype(np.int32)
  output = np.where(weight_N, output, 0.0)
  if (least := output.min()) < _LEAST:
    raise UserError(
      f"the adapter's `evaluate` gave {least:.4g} for -log p of a class, but "
      "-log p cannot be negative: is the minus missing?"
    )
  return output.astype(np.float32)
