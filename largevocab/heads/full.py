"""The exact softmax over all classes: the reference for all other heads."""

import logging
from dataclasses import field
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from largevocab.fields import Dtype, MemoryMibOrDefault, OneOf, settings
from largevocab.heads.base import (
  HeadStep,
  check_grads,
  head_step,
  read_batch,
  read_training_batch,
  total_weight,
)
from largevocab.heads.linear import LinearHead
from largevocab.heads.logits import Linear, Logits, class_row_grads, class_rows
from largevocab.labels import Counts, Targets, as_counts
from largevocab.ops import shards
from largevocab.ops.activations import Activations, activations, knows_activations
from largevocab.ops.softmax.chunks import wide
from largevocab.ops.softmax.full import softmax_loss
from largevocab.ops.softmax.log_partition import Score, score_of, softmax_nll
from largevocab.ops.softmax.plan import METHODS, Plan, budget_bytes, plan
from largevocab.ops.softmax.top_k import softmax_top_k
from largevocab.rows import SGD, RowOptimizer, Table, sq_norm

_LOG = logging.getLogger("largevocab")


@knows_activations
class FullState(NamedTuple):
  """State of `Full`.

  Attributes:
    table: the class rows.
    activations: the activations that the state is for; None: not known. Static.
  """

  table: Table
  activations: Activations | None = None


@settings
class Full(LinearHead):
  """Exact softmax over all classes, in chunks that fit `budget_mib`.

    p(c | h) = exp(o_c) / sum over all classes of exp(o),  o_c = <w_c, h> + b_c

  The chosen chunks are logged when a step is traced.

  Attributes:
    method: 'auto', or how to chunk: see `largevocab.ops.softmax.plan.plan`. 'reference'
      holds all logits at once.
    budget_mib: temporary memory for loss and gradient, in MiB; 0: 64 on a CPU, 1,024
      elsewhere, where each chunk costs the latency of its kernel launches.
    absolute: use |o| in place of o (Blanc & Rendle 2018, section 3.3).
    logits: how logits are computed, one of `largevocab.heads.logits`: `Linear` or
      `Cosine`.
    dtype: type of the operands of matrix products, 'float32' or 'bfloat16'. Sums and
      log-partition functions are float32, and rows are of `optimizer.row_dtype`.
    optimizer: optimiser of the rows.

  Source: Blanc & Rendle 2018, equation 1; equation 11 for `absolute`.
  Cost: 3 products of N V D a step, or 4 if chunked by classes, and a dense update.

  >>> head = Full(bias=False)
  >>> head.init(jax.random.key(0), [3, 2, 1], 4).table.w_VD.shape
  (3, 4)
  """

  method: Annotated[str, OneOf(*METHODS)] = "auto"
  budget_mib: MemoryMibOrDefault = 0
  absolute: bool = False
  logits: Logits = field(default_factory=Linear)
  dtype: Dtype = "float32"
  optimizer: RowOptimizer = field(default_factory=SGD)

  def __post_init__(self):
    self.logits.check(self)

  def features(self, h_ND: jax.Array) -> jax.Array:
    return super().features(self.logits.features(h_ND))

  def init(self, key: jax.Array, counts: Counts | ArrayLike, dim: int) -> FullState:
    counts, given = as_counts(counts), Activations(dim)
    w_VD = self.random_rows(key, counts.num_classes, given.dim)
    return FullState(self.optimizer.init(w_VD), given)

  def plan(self, num_examples: int, w_VD: jax.Array) -> Plan:
    """The chunks of a step of `num_examples`."""
    num_classes, dim = w_VD.shape
    return plan(
      num_examples,
      num_classes,
      dim,
      budget_bytes(self.budget_mib),
      method=self.method,
      compute_bytes=jnp.dtype(self.dtype).itemsize,
    )

  def backward(
    self, state: FullState, h_ND: jax.Array, y: Targets, key: jax.Array
  ) -> HeadStep:
    w_VD = state.table.w_VD
    wide_ND, y = read_training_batch(h_ND, y, len(w_VD), state.activations)
    how = self.plan(len(wide_ND), w_VD)
    _LOG.info("%s", how)
    mean_w_NP = y.w_NP / total_weight(y)

    def mean_loss(h_ND, w_VD):
      x_ND = self.features(h_ND)
      kind = {"score": self.logits.score(self._score), "dtype": self.dtype}
      return softmax_loss(x_ND, w_VD, y.ids_NP, mean_w_NP, how, **kind)

    loss, (dh_ND, dw_VD) = jax.value_and_grad(mean_loss, (0, 1))(wide_ND, wide(w_VD))
    return head_step(loss, dh_ND, h_ND, dw_VD, self.sq_norm(state, dw_VD))

  def sq_norm(self, state: FullState, grads: jax.Array) -> jax.Array:
    return shards.psum(sq_norm(grads))

  def add_row_grads(
    self, state: FullState, grads: jax.Array, ids_R: jax.Array, g_RD: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Adds the gradient of looked-up rows; the sum, and its squared norm."""
    known = state.table, ids_R, g_RD, state.activations
    rows = class_row_grads(self.logits, *known)
    at = grads.at[rows.ids_R]
    dw_VD = at.add(rows.rows_RD, mode="drop", unique_indices=True)
    return dw_VD, self.sq_norm(state, dw_VD)

  def update(
    self, state: FullState, grads: jax.Array, lr: ArrayLike, scale: ArrayLike = 1.0
  ) -> FullState:
    check_grads(grads, jax.Array, np.ndarray)
    table = self.optimizer.dense_update(state.table, grads, lr, scale)
    return state._replace(table=table)

  def evaluate(
    self, state: FullState, h_ND: jax.Array, y: Targets
  ) -> dict[str, jax.Array]:
    """{'nll': f32[N]}, exact, in nats."""
    w_VD = state.table.w_VD
    h_ND, y = read_batch(h_ND, y, len(w_VD), state.activations)
    args = self.features(h_ND), w_VD, y.ids_NP, y.w_NP
    return {"nll": softmax_nll(*args, **self._evaluated(w_VD))}

  def top_k(
    self, state: FullState, h_ND: jax.Array, k: int
  ) -> tuple[jax.Array, jax.Array]:
    """The k most probable classes and their log-probabilities, best first."""
    h_ND, w_VD = activations(h_ND, state.activations), state.table.w_VD
    x_ND = self.features(wide(h_ND))
    return softmax_top_k(x_ND, w_VD, k, **self._evaluated(w_VD))

  def class_rows(self, state: FullState, ids_R: jax.Array) -> jax.Array:
    """Rows of the table: w_c and then, if there is a bias, b_c and padding.

    For cosines, the rows are w_c / |w_c|.
    """
    return class_rows(self.logits, state.table.w_VD, ids_R)

  @property
  def _score(self) -> Score:
    return score_of(self.absolute)

  def _evaluated(self, w_VD: jax.Array) -> dict[str, Any]:
    change = self.logits.change(w_VD)
    return {"score": self._score, "dtype": self.dtype, "change": change}
