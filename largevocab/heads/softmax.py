"""Base of heads with one row per class: logits, exact nll, exact top k."""

from dataclasses import field

import jax
import jax.numpy as jnp

from largevocab.fields import Dtype, InitScale, settings
from largevocab.heads.base import PyTree, read_batch
from largevocab.labels import Targets
from largevocab.ops.softmax.bias import extend, extended_width
from largevocab.ops.softmax.log_partition import (
  Change,
  Score,
  log_normalizer,
  score_of,
  softmax_nll,
)
from largevocab.ops.softmax.top_k import top_k
from largevocab.rows import SGD, RowOptimizer, Table


@settings
class LinearHead:
  """Base of heads with scores <w, h> + b; `refresh` and `monitor` do nothing.

  Attributes:
    bias: learn a bias per row, as the weight of a constant feature of h.
    init_scale: rows are initialised uniformly in [-init_scale, init_scale], biases to
      0.
  """

  bias: bool = True
  init_scale: InitScale = 0.05

  def features(self, h_ND: jax.Array) -> jax.Array:
    """h with a constant feature appended if there is a bias."""
    return extend(h_ND) if self.bias else h_ND

  def random_rows(self, key: jax.Array, num: int, dim: int) -> jax.Array:
    """Initial rows; the columns of constant features start at 0."""
    width = extended_width(dim) if self.bias else dim
    limit = self.init_scale
    w_VD = jax.random.uniform(key, (num, dim), minval=-limit, maxval=limit)
    return jnp.pad(w_VD, ((0, 0), (0, width - dim)))

  def total_weight(self, y: Targets) -> jax.Array:
    """Sum of the examples' weights; 1 if it is 0, so that a mean is 0."""
    total = jnp.sum(y.w_NP)
    return jnp.where(total > 0, total, 1)

  def refreshes(self, step: int) -> bool:
    return False

  def refresh(self, state: PyTree, key: jax.Array) -> PyTree:
    return state

  def monitor(
    self, state: PyTree, h_ND: jax.Array, y: Targets, key: jax.Array
  ) -> dict[str, jax.Array]:
    return {}


@settings
class SoftmaxHead(LinearHead):
  """Softmax p(c | h) = exp(o_c) / sum over all classes of exp(o), o_c = <w_c, h> + b_c.

  Attributes:
    absolute: |o| in place of o (Blanc & Rendle 2018, section 3.3), which kernels that
      are even in o can approximate.
    dtype: of the operands of matrix products, 'float32' or 'bfloat16'; rows, sums and
      log-partition functions are float32.
    optimizer: of the rows.
  """

  absolute: bool = False
  dtype: Dtype = "float32"
  optimizer: RowOptimizer = field(default_factory=SGD)

  def init_table(self, key: jax.Array, num_classes: int, dim: int) -> Table:
    """A table of random rows with optimiser state."""
    return self.optimizer.init(self.random_rows(key, num_classes, dim))

  @property
  def score(self) -> Score:
    """The function of the logits that is exponentiated."""
    return score_of(self.absolute)

  @property
  def logit_kind(self) -> dict:
    """Score and dtype, as arguments of the operations in `largevocab.ops`."""
    return {"score": self.score, "dtype": self.dtype}

  def change(self, state: PyTree) -> Change | None:
    """Transformation of the scores before the softmax of `evaluate`; None: none."""
    return None

  def evaluate(
    self, state: PyTree, h_ND: jax.Array, y: Targets
  ) -> dict[str, jax.Array]:
    """{'nll': f32[N]}, exact, in nats."""
    w_VD = state.table.w_VD
    h_ND, y = read_batch(h_ND, y, len(w_VD))
    x_ND = self.features(h_ND)
    how = self.logit_kind | {"change": self.change(state)}
    return {"nll": softmax_nll(x_ND, w_VD, y.ids_NP, y.w_NP, **how)}

  def top_k(
    self, state: PyTree, h_ND: jax.Array, k: int
  ) -> tuple[jax.Array, jax.Array]:
    """The k most probable classes and their log-probabilities, best first."""
    x_ND, w_VD = self.features(h_ND), state.table.w_VD
    change = self.change(state)
    ids_NK, o_NK = top_k(x_ND, w_VD, k, **self.logit_kind, change=change)
    log_z_N = log_normalizer(x_ND, w_VD, **self.logit_kind, change=change)
    return ids_NK, o_NK - log_z_N[:, None]

  def class_rows(self, state: PyTree, ids_R: jax.Array) -> jax.Array:
    """Rows of the table: w_c and then, if there is a bias, b_c and padding."""
    return state.table.w_VD[ids_R]
