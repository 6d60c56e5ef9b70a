"""Factored head for spherical losses: exact updates at a cost independent of V."""

from collections.abc import Callable
from dataclasses import field
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from largevocab.errors import UserError
from largevocab.fields import Between, Dtype, OneOf, StepsOrNever, settings
from largevocab.heads.base import (
  ROWS,
  SUM,
  WHOLE,
  HeadStep,
  check_grads,
  is_refresh,
  read_batch,
  read_training_batch,
  total_weight,
)
from largevocab.heads.linear import LinearHead
from largevocab.labels import Counts, Targets, as_counts, have_weight
from largevocab.losses.spherical import (
  SPHERICAL_LOSSES,
  SphericalLoss,
  TaylorSoftmax,
)
from largevocab.ops import shards
from largevocab.ops.activations import Activations, activations
from largevocab.ops.class_blocks import Blocks
from largevocab.ops.factored import steps, table
from largevocab.ops.factored.stabilizers import STABILIZERS, guard, spread
from largevocab.ops.factored.table import Factored, dot
from largevocab.ops.softmax.chunks import logits, wide
from largevocab.ops.softmax.top_k import top_k

_WATCHED = 32  # number of examples in `monitor`


@settings
class Spherical(LinearHead):
  """Outputs o = W h with a loss of the spherical family, where W = V U + 1 omega^T.

  Exactly equals gradient descent on W, in O(D^2) an example: V changes only in the rows
  of the true classes, while U and omega carry the update of all others. Only plain
  gradient descent is possible: no other optimiser keeps W in this form. The learning
  rate is `train.head_lr_factor` times that of the network, whose optimiser can be
  chosen freely.

  Attributes:
    loss: any object with the interface of `largevocab.losses.spherical.SphericalLoss`.
    limit: bound on the spread of U's singular values
      (`largevocab.ops.factored.stabilizers.spread`). After every step, the singular
      values furthest from 1 are set to 1 until the bound holds, leaving W unchanged;
      each costs O(V D).
    stabilizer: periodic stabilisation, which makes the corrections of `limit` rare.
      'absorb' multiplies V by U once the spread exceeds sqrt(limit), at a cost of
      O(V D^2); 'singular_values' sets the singular values outside
      [1 / sqrt(limit), sqrt(limit)] to 1.
    stabilize_every: steps between stabilisations; 0: never. A stabilisation also
      recomputes the inverse of U, in O(D^3).
    dtype: type of the operands of the product with V in `top_k`, 'float32' or
      'bfloat16'.

  Source: Vincent et al. 2015, section 4 for the steps, 5 for stability.
  Deviations: losses are weighted means over the batch, not sums; U is stabilised when
  needed, at any step. Steps and metrics are float32 whatever `dtype` is: Q = W^T W is
  updated with the products that update W, and drifts from W^T W if these are rounded.

  Cost: O(N D^2 + N P D) a step, independent of V; memory for V, once. On several
    devices, each device holds some rows of V.

  >>> head = Spherical(bias=False)
  >>> state = head.init(jax.random.key(0), [3, 2, 1], 4)
  >>> state.v_VD.shape, state.u_DD.shape
  ((3, 4), (4, 4))
  """

  losses: ClassVar[dict] = SPHERICAL_LOSSES
  row_sparse: ClassVar[bool] = True

  loss: SphericalLoss = field(default_factory=TaylorSoftmax)
  stabilizer: Annotated[str, OneOf(*STABILIZERS)] = "absorb"
  stabilize_every: StepsOrNever = 100
  limit: Annotated[float, Between(1, 1_000_000, excluding=(1,))] = 4.0
  dtype: Dtype = "float32"

  def __post_init__(self):
    if getattr(self.loss, "is_even", False) and not self.init_scale:
      raise UserError(
        "head.init_scale is 0, where the loss of this head has no slope, so that no "
        "row would ever change: set head.init_scale above 0"
      )

  def init(self, key: jax.Array, counts: Counts | ArrayLike, dim: int) -> Factored:
    counts, given = as_counts(counts), Activations(dim)
    w_VD = self.random_rows(key, counts.num_classes, given.dim)
    return table.factor(w_VD, given)

  def init_blocks(
    self, key: jax.Array, counts: Counts, dim: int, blocks: Blocks
  ) -> Callable[[int], Factored]:
    """Q and the sum of a block's rows; those of W are sums over blocks."""
    given = Activations(dim)

    def of_block(number):
      of_rows = jax.random.fold_in(key, number)
      num_classes = len(blocks.classes(number))
      w_VD = self.random_rows(of_rows, blocks.size, given.dim)
      with shards.one_block():
        return table.factor(w_VD.at[num_classes:].set(0), given)

    return of_block

  def sharding(self, state: Factored) -> Factored:
    """V is sharded by rows; what is computed from W starts as a sum over blocks."""
    whole = jax.tree.map(lambda _: WHOLE, state)
    return whole._replace(v_VD=ROWS, gram_DD=SUM, sum_D=SUM)

  def backward(
    self, state: Factored, h_ND: jax.Array, y: Targets, key: jax.Array
  ) -> HeadStep:
    wide_ND, y = read_training_batch(h_ND, y, len(state.v_VD), state.activations)
    ids_NP, t_NP, weight_N = self._targets(state, y)
    weight_N = weight_N / total_weight(y)
    x_ND = self.features(wide_ND)
    loss, dx_ND, grads = steps.value_and_grads(
      state, self._loss_of(state), x_ND, ids_NP, t_NP, weight_N
    )
    norm = self.sq_norm(state, grads)
    dh_ND = shards.own_examples(dx_ND[:, : h_ND.shape[1]])
    dtype = jax.dtypes.canonicalize_dtype(h_ND.dtype)
    return HeadStep(loss, dh_ND.astype(dtype), grads, norm)

  def sq_norm(self, state: Factored, grads: steps.SphericalGrads) -> jax.Array:
    return steps.sq_norm(state, grads)

  def update(
    self,
    state: Factored,
    grads: steps.SphericalGrads,
    lr: ArrayLike,
    scale: ArrayLike = 1.0,
  ) -> Factored:
    check_grads(grads, steps.SphericalGrads)
    rate = jnp.asarray(lr * scale, state.v_VD.dtype)
    return guard(steps.step(state, grads, rate), self.limit)

  def refreshes(self, step: int) -> bool:
    return is_refresh(step, self.stabilize_every)

  def refresh(self, state: Factored, key: jax.Array) -> Factored:
    return STABILIZERS[self.stabilizer](state, key, self.limit**0.5)

  def evaluate(
    self, state: Factored, h_ND: jax.Array, y: Targets
  ) -> dict[str, jax.Array]:
    """{'nll': f32[N]}, in nats, if the loss is normalised, else {'loss': f32[N]}.

    Exact, from q and s, without [N, V].
    """
    h_ND, y = read_batch(h_ND, y, len(state.v_VD), state.activations)
    ids_NP, t_NP, weight_N = self._targets(state, y)
    x_ND = self.features(h_ND)
    o_NP = table.outputs(state, x_ND, ids_NP)
    q_N, s_N = table.sums(state, x_ND)
    loss_N = jax.vmap(self._loss_of(state))(o_NP, t_NP, q_N, s_N)
    loss_N = jnp.where(jnp.isnan(weight_N), jnp.nan, loss_N)  # NaN for invalid ids
    return {"nll" if self.loss.is_normalized else "loss": loss_N}

  def monitor(
    self, state: Factored, h_ND: jax.Array, y: Targets, key: jax.Array
  ) -> dict[str, jax.Array]:
    """'spread' of the singular values of U, and 'drift' of Q.

    For 'spread', see `largevocab.ops.factored.stabilizers`. 'drift' is the largest
    relative error of q = |o|^2 over a few examples.
    """
    h_ND, y = read_training_batch(h_ND, y, len(state.v_VD), state.activations)
    x_ND, is_live_N = self.features(h_ND[:_WATCHED]), have_weight(y)[:_WATCHED]
    queries_ND, v_VD, shift_N = self._shifted(state, x_ND)
    o_NV = logits(queries_ND, v_VD, v_VD.dtype) + shift_N[:, None]
    q_N, _ = table.sums(state, x_ND)
    V = len(v_VD)
    o_NV = jnp.where(shards.used(jnp.arange(V), V, jnp.bool(True)), o_NV, 0)
    exact_N = shards.psum(jnp.sum(jnp.square(o_NV), axis=1))
    drift_N = jnp.abs(q_N - exact_N) / jnp.maximum(exact_N, 1e-30)
    drift = jnp.max(jnp.where(is_live_N, drift_N, 0))
    return {"spread": spread(state), "drift": drift}

  def top_k(
    self, state: Factored, h_ND: jax.Array, k: int
  ) -> tuple[jax.Array, jax.Array]:
    """The k best classes and their scores, best first, in chunks of V (U h).

    Scores are log-probabilities if the loss is normalised, else outputs.
    """
    x_ND = self.features(wide(activations(h_ND, state.activations)))
    q_N, s_N = table.sums(state, x_ND)
    queries_ND, v_VD, shift_N = self._shifted(state, x_ND)

    def score(o_NV):
      sums = q_N[:, None], s_N[:, None], shards.num_classes(len(v_VD))
      return self.loss.score(o_NV + shift_N[:, None], *sums)

    return top_k(queries_ND, v_VD, k, score=score, dtype=self.dtype)

  def class_rows(self, state: Factored, ids_R: jax.Array) -> jax.Array:
    here_R = shards.own_rows(ids_R, len(state.v_VD))
    return shards.psum(table.implied_rows(state, here_R))

  def _shifted(self, state, x_ND):
    """Queries, rows and shifts such that o_NV = queries_ND V^T + shift_N."""
    return dot(x_ND, state.u_DD.T), state.v_VD, dot(x_ND, state.omega_D)

  def _loss_of(self, state):
    num_classes = shards.num_classes(len(state.v_VD))
    return lambda o_P, t_P, q, s: self.loss(o_P, t_P, q, s, num_classes)

  def _targets(self, state, y):
    """Ids, target shares that sum to 1, and the weight of each example."""
    weight_N = jnp.sum(y.w_NP, axis=1)
    share_NP = y.w_NP / jnp.where(weight_N == 0, 1, weight_N)[:, None]
    ids_NP, t_NP = steps.distinct(y.ids_NP, share_NP, len(state.v_VD))
    return ids_NP, shards.psum(t_NP), weight_N
