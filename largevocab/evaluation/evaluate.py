"""Computes exact metrics of a state on held-out data."""

import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.data.base import Data, HeldOutBatches
from largevocab.data.batches import Batch
from largevocab.errors import UserError, is_too_large
from largevocab.evaluation import moments, retrieval
from largevocab.evaluation.moments import Moments
from largevocab.evaluation.similarity import make_similarity
from largevocab.labels import Counts
from largevocab.training.activations import activations
from largevocab.training.averages import for_evaluation
from largevocab.training.input_rows import look_up
from largevocab.training.processes import whole
from largevocab.training.settings import Experiment
from largevocab.training.sharding import (
  assembled,
  by_examples,
  carry_on_devices,
  rows_here,
)
from largevocab.training.state import State, restore

_LOG = logging.getLogger("largevocab")
_SECONDS = 10.0  # between progress lines of a long evaluation
_WITH_ERROR = ("p@", "recall@", "hr@")  # metrics with a standard error, besides 'nll'


class Stopped(Exception):
  """An evaluation was stopped on request."""


class Evaluate:
  """Exact metrics of a state on batches: weighted means of the head's metrics.

  Further metrics are added to those of the head:

  - If the head gives 'nll' (nats per example), 'ppl' = exp(nll), which stays below
    1e305 for any nll. For a text in subwords, also 'word_ppl' and 'bits_per_byte'; see
    `TextSize`.
  - For metrics that are not losses, such as 'log_z', the standard deviation over
    examples.
  - With `eval.ranking_k`, 'recall@k' and 'mrr@k'. With `eval.hit_k`, 'hr@k' and
    'ndcg@k'. With `eval.precision_k`, label metrics; see `retrieval`.

  Means are over examples that have a label, unless `eval.unlabelled` is 'count'.
  'nll_se', 'p@k_se', 'recall@k_se' and 'hr@k_se' are the standard errors of the means.

  Args:
    exp: the experiment.
    counts: class counts of the training data.
  """

  def __init__(self, exp: Experiment, counts: Counts):
    self._exp = exp
    self._num_classes = counts.num_classes
    self._weight_V = propensity_weights(exp, counts)
    self._step = jax.jit(self._sums)

  def _sums(self, params, table, head_state, carry, inverse_propensity_V, batch):
    """The recurrent state after a batch, and sums over its examples."""
    exp, head = self._exp, self._exp.head
    batch = by_examples(exp, batch)
    rows_BTE = look_up(exp, table, head_state, batch.x)
    h_ND, carry = activations(exp, params, rows_BTE, carry, batch)
    weight_N = jnp.sum(batch.y.w_NP, axis=1)
    metrics = head.evaluate(head_state, h_ND, batch.y)
    if num := num_ranked(exp, batch, self._num_classes):
      best_NK, _ = head.top_k(head_state, h_ND, num)
      metrics |= retrieved(exp, best_NK, batch, self._num_classes, inverse_propensity_V)
    return carry, moments.sums(metrics, weight_N)

  def __call__(
    self,
    state: State,
    batches: HeldOutBatches,
    stopped: Callable[[], Any] = lambda: False,
  ) -> dict[str, float]:
    """Computes the metrics; calls `stopped` before each batch.

    Raises:
      Stopped: `stopped` returned True.
      UserError: a batch is too large, or no example has a label.
    """
    seen = Moments()
    told = time.monotonic()
    with _naming_sizes(self._exp):
      carry, rows = self._beginning(batches.batch_size)
      for number, read in enumerate(batches.read(rows), 1):
        batch = assembled(self._exp, read, batches.batch_size)
        if stopped():
          raise Stopped
        tables = state.params, state.inputs, state.head
        carry, summed = self._step(*tables, carry, self._weight_V, batch)
        w_NP = whole(batch.y.w_NP)
        seen.add(summed, np.sum(w_NP, axis=1, dtype=np.float64))
        if time.monotonic() > told + _SECONDS:
          told = time.monotonic()
          _LOG.info("evaluated %d of %d batches", number, len(batches))
    return finished(self._exp, seen, batches)

  def try_out(self, state: State, batches: HeldOutBatches) -> None:
    """Evaluates a batch of each shape, which compiles everything for `__call__`.

    Raises:
      UserError: a batch is too large.
    """
    with _naming_sizes(self._exp):
      carry, rows = self._beginning(batches.batch_size)
      for read in batches.one_of_each_shape(rows):
        batch = assembled(self._exp, read, batches.batch_size)
        tables = state.params, state.inputs, state.head
        jax.block_until_ready(self._step(*tables, carry, self._weight_V, batch))

  def _beginning(self, batch_size: int) -> tuple[Any, slice]:
    """The first recurrent state, and the rows of batches that this process reads."""
    carry = self._exp.model.initial_carry(batch_size)
    return carry_on_devices(self._exp, carry), rows_here(self._exp, batch_size)


def num_ranked(exp: Experiment, batch: Batch, num_classes: int) -> int:
  """Number of best classes that the metrics of a batch need; 0 if they need none.

  The number includes the classes that rankings leave out.
  """
  hidden = _hidden(exp, batch)
  more = 0 if hidden is None else hidden.shape[1]
  return exp.eval.top and min(exp.eval.top + more, num_classes)


def propensity_weights(exp: Experiment, counts: Counts) -> jax.Array | None:
  """Weight of a hit of each class in `psp@k`, f32[V]; None if no metric needs it."""
  if not exp.eval.precision_k:
    return None
  a, b = exp.eval.propensity_a, exp.eval.propensity_b
  return retrieval.inverse_propensities(counts, a, b)


def retrieved(
  exp: Experiment,
  best_NK: jax.Array,
  batch: Batch,
  num_classes: int,
  inverse_propensity_V: jax.Array | None,
) -> dict[str, jax.Array]:
  """Ranking metrics selected by `eval`, f32[N] each; see `retrieval`.

  Args:
    exp: the experiment.
    best_NK: i32[N, K], K = `num_ranked`, best first.
    batch: gives the true classes, and the classes to leave out.
    num_classes: V.
    inverse_propensity_V: see `propensity_weights`.
  """
  hidden, y, k = _hidden(exp, batch), batch.y, exp.eval.ranking_k
  if hidden is not None:
    best_NK = retrieval.without(best_NK, jnp.asarray(hidden), num_classes)
  found = retrieval.at_k(best_NK[:, :k], y) if k else {}
  if inverse_propensity_V is not None:
    found |= retrieval.of_labels(best_NK, y, inverse_propensity_V, exp.eval.precision_k)
  return found | retrieval.hits(best_NK, y, exp.eval.hit_k)


def _hidden(exp: Experiment, batch: Batch) -> np.ndarray | None:
  """The classes to leave out of rankings, i32[N, S]; None if there are none."""
  return batch.seen if exp.eval.hide_seen else None


def finished(
  exp: Experiment, seen: Moments, batches: HeldOutBatches
) -> dict[str, float]:
  """Computes the final metrics from the sums over all batches.

  Raises:
    UserError: no example has a label.
  """
  if not seen.weight:
    raise UserError(
      "no example of the evaluation data has a label, so nothing can be measured: give "
      "examples with labels"
    )
  counts_all = exp.eval.unlabelled == "count"
  labelled = seen.weight / batches.num_examples if counts_all else 1.0
  means = {name: seen.mean(name) for name in seen.names}
  finished = retrieval.finish(means, labelled)
  if "nll" in means:
    finished["ppl"] = math.exp(min(means["nll"], 700.0))
    if size := getattr(batches, "size", None):  # only for a text in subwords
      finished |= size.per_unit(means["nll"] * seen.weight)
  for name in means:
    if "@" not in name and not name.endswith(("nll", "loss")):
      finished[f"{name}_sd"] = seen.sd(name)
    if name == "nll" or name.startswith(_WITH_ERROR):
      share = labelled if "@" in name else 1.0
      finished[f"{name}_se"] = seen.standard_error(name, share)
  return finished


def held_out(exp: Experiment, data: Data) -> dict[str, HeldOutBatches]:
  """The batches of 'valid' and 'test'.

  Raises:
    UserError: the data has no batches of this shape, or they exceed the memory.
  """
  shape = exp.eval.batch_size, exp.eval.unroll
  # The size of the network's inputs and outputs is a lower bound.
  needed = 4 * math.prod(shape) * (exp.model.embed + exp.model.width)
  if needed > _memory():
    raise _too_large(exp, f"at least {needed / 2**30:.0f} GiB")
  return {split: data.evaluation_batches(split, *shape) for split in ("valid", "test")}


def _memory() -> int:
  """Memory in bytes of the device or, if the device does not report it, the machine."""
  stats = jax.local_devices()[0].memory_stats() or {}
  machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
  return stats.get("bytes_limit", machine)


@contextmanager
def _naming_sizes(exp: Experiment) -> Iterator[None]:
  """Adds the keys that set the batch size to errors about lack of memory."""
  try:
    yield
  except Exception as error:
    if not is_too_large(error):
      raise
    raise _too_large(exp, f"{error}"[:200]) from error


def _too_large(exp: Experiment, why: str) -> UserError:
  return UserError(
    f"eval.batch_size = {exp.eval.batch_size} and eval.unroll = {exp.eval.unroll} need "
    f"more memory than is available ({why}); lower one of them"
  )


def has_nan_loss(metrics: dict[str, Any]) -> bool:
  """Whether a loss is NaN, so that the run has diverged; it may be infinite.

  >>> [has_nan_loss({"nll": nll}) for nll in (math.nan, math.inf, 2.0)]
  [True, False, False]
  """
  return any(math.isnan(metrics.get(key, 0.0)) for key in ("nll", "loss"))


def evaluate_workdir(exp: Experiment, workdir: str, which: str) -> dict[str, Any]:
  """Metrics of a run's 'latest' or 'best' checkpoint on validation and test data."""
  data, state = restore(exp, workdir, which)
  state = for_evaluation(exp.optimizer, state)
  _LOG.info("evaluating the state after step %d", int(state.step))
  evaluate, similarity = Evaluate(exp, data.counts), make_similarity(exp, data)
  metrics: dict[str, Any] = {"step": int(state.step)}
  for split, batches in held_out(exp, data).items():
    values = evaluate(state, batches)
    if has_nan_loss(values):
      raise UserError(
        f"the loss on {split} data is NaN after step {int(state.step)}, so the run has "
        "diverged: use --checkpoint=best, if the run has one, or train again"
      )
    values |= similarity(state) if split == "valid" else {}
    metrics.update({f"{split}_{key}": value for key, value in values.items()})
  return metrics
