"""What all heads with one row per class share: logits, exact nll, exact top k."""

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
  """Scores <w, h> + b, and nothing to rebuild or to watch.

  Attributes:
    bias: learn a bias per row: the weight of one more, constant feature of h.
    init_scale: rows start uniform in [-init_scale, init_scale], the bias at 0.
  """

  bias: bool = True
  init_scale: InitScale = 0.05

  def features(self, h_ND: jax.Array) -> jax.Array:
    """h as the rows see it: with the constant feature, if there is a bias."""
    return extend(h_ND) if self.bias else h_ND

  def random_rows(self, key: jax.Array, num: int, dim: int) -> jax.Array:
    """Rows to begin with; what multiplies constant features starts at 0."""
    width = extended_width(dim) if self.bias else dim
    limit = self.init_scale
    w_VD = jax.random.uniform(key, (num, dim), minval=-limit, maxval=limit)
    return jnp.pad(w_VD, ((0, 0), (0, width - dim)))

  def total_weight(self, y: Targets) -> jax.Array:
    """Sum of the examples' weights; 1 where there is none, so that a mean is 0."""
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
  """p(c | h) = exp(o_c) / sum over all classes of exp(o), with o_c = <w_c, h> + b_c.

  Attributes:
    absolute: |o| in place of o (Blanc & Rendle 2018, section 3.3), which kernels that
      are even in o can follow.
    dtype: of the operands of matrix products, 'float32' or 'bfloat16'; rows, sums and
      normalisers are float32.
    optimizer: of the rows.
  """

  absolute: bool = False
  dtype: Dtype = "float32"
  optimizer: RowOptimizer = field(default_factory=SGD)

  def init_table(self, key: jax.Array, num_classes: int, dim: int) -> Table:
    """A table of random rows."""
    return self.optimizer.init(self.random_rows(key, num_classes, dim))

  @property
  def score(self) -> Score:
    """What of a logit is exponentiated."""
    return score_of(self.absolute)

  @property
  def logit_kind(self) -> dict:
    """How logits are made: arguments of the operations in `largevocab.ops`."""
    return {"score": self.score, "dtype": self.dtype}

  def change(self, state: PyTree) -> Change | None:
    """What scores become before they are exponentiated, to evaluate; None: nothing."""
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
    """The k likeliest classes and their log-probabilities, best first."""
    x_ND, w_VD = self.features(h_ND), state.table.w_VD
    change = self.change(state)
    ids_NK, o_NK = top_k(x_ND, w_VD, k, **self.logit_kind, change=change)
    log_z_N = log_normalizer(x_ND, w_VD, **self.logit_kind, change=change)
    return ids_NK, o_NK - log_z_N[:, None]

  def class_rows(self, state: PyTree, ids_R: jax.Array) -> jax.Array:
    """Rows of the table, w_c and then, if there is a bias, b_c and padding."""
    return state.table.w_VD[ids_R]
