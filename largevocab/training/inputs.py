"""Inputs of a network: rows of a learned table, or features from the data.

`Data.num_inputs` is the number of rows. `Batch.x` holds their ids, or bags of ids whose
rows are summed. If `Data.num_inputs` is 0, `Batch.x` itself is the input, and there is
no table and no gradient.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from largevocab.data.batches import FeatureBag
from largevocab.errors import UserError
from largevocab.ops import shards
from largevocab.rows import RowGrads, RowOptimizer, Table, looked_up_grads


@dataclass(frozen=True)
class Inputs:
  """Looks up inputs and learns their rows.

  Inside `largevocab.ops.shards.over`, the table and the examples are the parts on this
  device (`largevocab.training.sharded_inputs`).

  Attributes:
    optimizer: the optimiser of the table.
    width: E, `model.embed`.
    init_scale: initial rows are uniform in [-init_scale, init_scale].
  """

  optimizer: RowOptimizer
  width: int
  init_scale: float = 0.1

  def init(self, key: jax.Array, num_inputs: int) -> Table | None:
    """Makes a table of `num_inputs` rows, or None if `num_inputs` is 0.

    >>> from largevocab.rows import SGD
    >>> Inputs(SGD(), width=2).init(jax.random.key(0), num_inputs=5).w_VD.shape
    (5, 2)
    >>> Inputs(SGD(), width=2).init(jax.random.key(0), num_inputs=0)
    """
    if not num_inputs:
      return None
    return self.optimizer.init(self.initial_rows(key, num_inputs))

  def initial_rows(self, key: jax.Array, num_rows: int) -> jax.Array:
    """Random rows, f32[V, E]."""
    scale = self.init_scale
    return jax.random.uniform(key, (num_rows, self.width), minval=-scale, maxval=scale)

  def look_up(self, table: Table | None, x: ArrayLike | FeatureBag) -> jax.Array:
    """The network's input for `Batch.x`, f32[B, T, E].

    For ids, these are rows of the table, with zeros for ids >= V. For bags, with T = 1,
    these are sums of rows weighted by the feature values. Without a table, this is x.

    Args:
      table: V rows, or None.
      x: i32[B, T], ids, or bags of F features; without a table, f32[B, T, E].

    Raises:
      UserError: the features in x have another width than E.

    >>> from largevocab.rows import SGD
    >>> inputs, table = Inputs(SGD(), width=2), SGD().init(jnp.ones((3, 2)))
    >>> inputs.look_up(table, jnp.array([[2, 3]])).tolist()
    [[[1.0, 1.0], [0.0, 0.0]]]
    >>> bag = FeatureBag(jnp.array([[2, 0]]), jnp.array([[0.5, 2.0]]))
    >>> inputs.look_up(table, bag).tolist()
    [[[2.5, 2.5]]]

    Cost: O(B T E), for bags O(B F E): independent of V.
    """
    if table is None:
      return self._features(x)
    x, num_rows = shards.all_examples(x), len(table.w_VD)
    if isinstance(x, FeatureBag):
      ids_BF = shards.own_rows(jnp.asarray(x.ids_BF), num_rows)
      rows_BFE = table.rows_at(ids_BF, mode="fill", fill_value=0)
      rows_BTE = jnp.einsum("bf,bfe->be", x.values_BF, rows_BFE)[:, None, :]
    else:
      ids_BT = shards.own_rows(x, num_rows)
      rows_BTE = table.rows_at(ids_BT, mode="fill", fill_value=0)
    return shards.sum_for_own_examples(rows_BTE)

  def gradient(
    self, table: Table | None, x: ArrayLike | FeatureBag, g_BTE: jax.Array
  ) -> RowGrads | None:
    """The gradient of the table, given the gradient of the looked-up inputs.

    >>> from largevocab.rows import SGD
    >>> inputs, table = Inputs(SGD(), width=1), SGD().init(jnp.ones((3, 1)))
    >>> grads = inputs.gradient(table, jnp.array([[2, 2]]), jnp.array([[[1.0], [4.0]]]))
    >>> sorted(grads.rows_RD.ravel().tolist())
    [0.0, 5.0]
    """
    if table is None:
      return None
    x, g_BTE = shards.all_examples((x, g_BTE))
    if isinstance(x, FeatureBag):
      g_BTE = jnp.asarray(x.values_BF)[:, :, None] * g_BTE
      x = x.ids_BF
    return looked_up_grads(table, jnp.ravel(x), g_BTE.reshape(-1, g_BTE.shape[-1]))

  def update(
    self, table: Table | None, grads: RowGrads | None, lr: ArrayLike, scale: ArrayLike
  ) -> Table | None:
    """The table after a step with scale * grads at learning rate lr.

    >>> from largevocab.rows import SGD
    >>> Inputs(SGD(), width=2).update(None, None, lr=0.1, scale=1.0)
    """
    if table is None or grads is None:
      return None
    return self.optimizer.update(table, grads, lr, scale)

  def _features(self, x: ArrayLike | FeatureBag) -> jax.Array:
    x_BTF = jnp.asarray(x)
    if x_BTF.ndim != 3 or x_BTF.shape[-1] != self.width:
      raise UserError(
        f"the data's features have shape {x_BTF.shape}, but model.embed is "
        f"{self.width}: set model.embed to the last number of the shape"
      )
    return x_BTF
