"""The exact softmax over all classes: the yardstick of every other head."""

import logging
from dataclasses import dataclass, field
from typing import TypedDict

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.errors import UserError
from largevocab.heads.base import HeadStep
from largevocab.labels import Counts, Targets, as_counts
from largevocab.ops.constant_feature import extend, extended_width
from largevocab.ops.full_softmax import softmax_loss
from largevocab.ops.normalizer import log_normalizer, softmax_nll
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax_plan import METHODS, Plan, plan
from largevocab.ops.top_k import top_k
from largevocab.rows import SGD, RowOptimizer, Table, sq_norm

_LOG = logging.getLogger("largevocab")
_DTYPES = ("float32", "bfloat16")


class FullState(TypedDict):
  table: Table


@dataclass(frozen=True)
class Full:
  """p(c | h) = exp(o_c) / sum over all classes of exp(o), with o = w_VD @ h + bias.

  Exact, in chunks that fit `budget_mib`; the chunks are logged when it is traced.

  Attributes:
    bias: a bias per class, kept as one more column of the table.
    absolute: exp(|o|) instead of exp(o).
    method: 'auto', or 'reference' (all logits at once), 'examples', 'classes': what a
      chunk is made of. Use 'examples' with a table sharded over classes.
    budget_mib: temporary memory for loss and gradient.
    dtype: of the operands of the products: 'float32' or 'bfloat16'. Sums, softmax and
      gradients are float32.
    init_scale: rows start uniform in +-init_scale, biases at 0.
    optimizer: of the class rows.

  Source: Blanc & Rendle 2018, equation 1, equation 11 for `absolute`.

  Cost: 3 or 4 products of N V D a step.

  >>> head = Full(bias=False)
  >>> state = head.init(jax.random.key(0), [3, 2, 1], 4)
  >>> state["table"].w_VD.shape
  (3, 4)
  """

  bias: bool = True
  absolute: bool = False
  method: str = "auto"
  budget_mib: int = 64
  dtype: str = "float32"
  init_scale: float = 0.05
  optimizer: RowOptimizer = field(default_factory=SGD)
  refresh_every: int = 0

  def __post_init__(self):
    if self.method not in METHODS:
      raise UserError(f"method must be one of {METHODS}, got {self.method!r}")
    if self.dtype not in _DTYPES:
      raise UserError(f"dtype must be one of {_DTYPES}, got {self.dtype!r}")
    if self.budget_mib < 1:
      raise UserError(f"budget_mib must be at least 1, got {self.budget_mib}")

  def init(self, key: jax.Array, counts: Counts | np.ndarray, dim: int) -> FullState:
    num_classes = as_counts(counts).num_classes
    shape, scale = (num_classes, dim), self.init_scale
    w_VD = jax.random.uniform(key, shape, jnp.float32, -scale, scale)
    if self.bias:
      w_VD = jnp.pad(w_VD, ((0, 0), (0, extended_width(dim) - dim)))
    return {"table": self.optimizer.init(w_VD)}

  def backward(
    self, state: FullState, h_ND: jax.Array, y: Targets, key: jax.Array
  ) -> HeadStep:
    check_shapes(h_ND=h_ND, ids_NP=y.ids_NP, w_NP=y.w_NP)
    w_VD = state["table"].w_VD
    how = self._plan(h_ND, w_VD)
    _LOG.info("%s", how)
    total = y.w_NP.sum()
    mean_w_NP = y.w_NP / jnp.where(total > 0, total, 1)

    def mean_loss(h_ND, w_VD):
      h_ND = self._features(h_ND)
      return softmax_loss(h_ND, w_VD, y.ids_NP, mean_w_NP, how, **self._kind)

    loss, (dh_ND, dw_VD) = jax.value_and_grad(mean_loss, (0, 1))(h_ND, w_VD)
    return HeadStep(loss, dh_ND, dw_VD, sq_norm(dw_VD), {})

  def update(
    self, state: FullState, grads: jax.Array, lr: jax.Array, scale: jax.Array
  ) -> FullState:
    return {"table": self.optimizer.dense_update(state["table"], grads, lr, scale)}

  def refresh(self, state: FullState, key: jax.Array) -> FullState:
    return state

  def evaluate(
    self, state: FullState, h_ND: jax.Array, y: Targets
  ) -> dict[str, jax.Array]:
    h_ND, w_VD = self._features(h_ND), state["table"].w_VD
    how = self._plan(h_ND, w_VD)
    return {"nll": softmax_nll(h_ND, w_VD, y.ids_NP, y.w_NP, how=how, **self._kind)}

  def top_k(
    self, state: FullState, h_ND: jax.Array, k: int
  ) -> tuple[jax.Array, jax.Array]:
    h_ND, w_VD = self._features(h_ND), state["table"].w_VD
    ids_NK, o_NK = top_k(h_ND, w_VD, k, **self._kind)
    how = self._plan(h_ND, w_VD)
    return ids_NK, o_NK - log_normalizer(h_ND, w_VD, how=how, **self._kind)[:, None]

  @property
  def _kind(self):
    return {"absolute": self.absolute, "dtype": jnp.dtype(self.dtype)}

  def _features(self, h_ND: jax.Array) -> jax.Array:
    return extend(h_ND) if self.bias else h_ND

  def _plan(self, h_ND: jax.Array, w_VD: jax.Array) -> Plan:
    num_classes, dim = w_VD.shape
    return plan(
      h_ND.shape[0],
      num_classes,
      dim,
      self.budget_mib * 2**20,
      method=self.method,
      compute_bytes=jnp.dtype(self.dtype).itemsize,
    )
