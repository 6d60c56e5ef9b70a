"""Inputs of a network: rows of a learned table, or features from the data.

`Data.num_inputs` is the number of rows, indexed by `Batch.x` as ids, or as ids of bags
whose rows are summed. If it is 0, `Batch.x` itself is the input: then there is no
table, and no gradient.
"""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from largevocab.data.batches import FeatureBag
from largevocab.errors import UserError
from largevocab.rows import RowGrads, RowOptimizer, Table, row_grads


def init(
  optimizer: RowOptimizer, key: jax.Array, num_inputs: int, width: int, scale: float
) -> Table | None:
  """A table of `num_inputs` rows, uniform in [-scale, scale]; None if that is 0.

  >>> from largevocab.rows import SGD
  >>> init(SGD(), jax.random.key(0), num_inputs=5, width=2, scale=0.1).w_VD.shape
  (5, 2)
  >>> init(SGD(), jax.random.key(0), num_inputs=0, width=2, scale=0.1)
  """
  if not num_inputs:
    return None
  shape = (num_inputs, width)
  return optimizer.init(jax.random.uniform(key, shape, minval=-scale, maxval=scale))


def rows(table: Table | None) -> jax.Array | None:
  """The learned rows, float[V, E]; None without a table.

  >>> rows(None)
  """
  return None if table is None else table.w_VD


def look_up(table: Table | None, x: ArrayLike | FeatureBag, width: int) -> jax.Array:
  """The network's input for `Batch.x`, f32[B, T, E].

  Rows of the table, zeros for ids >= V; for bags the sums of rows weighted by feature
  values, with T = 1; without a table x itself.

  Args:
    table: V rows, or None.
    x: i32[B, T], ids, or bags of F features; without a table f32[B, T, E].
    width: E, `model.embed`.

  Raises:
    UserError: x has features of another width.

  >>> from largevocab.rows import SGD
  >>> table = SGD().init(jnp.ones((3, 2)))
  >>> look_up(table, jnp.array([[2, 3]]), width=2).tolist()
  [[[1.0, 1.0], [0.0, 0.0]]]
  >>> bag = FeatureBag(jnp.array([[2, 0]]), jnp.array([[0.5, 2.0]]))
  >>> look_up(table, bag, width=2).tolist()
  [[[2.5, 2.5]]]

  Cost: O(B T E), of bags O(B F E): independent of V.
  """
  if table is not None:
    if not isinstance(x, FeatureBag):
      return table.rows_at(x, mode="fill", fill_value=0)
    rows_BFE = table.rows_at(x.ids_BF, mode="fill", fill_value=0)
    return jnp.einsum("bf,bfe->be", x.values_BF, rows_BFE)[:, None, :]
  x_BTF = jnp.asarray(x)
  if x_BTF.ndim != 3 or x_BTF.shape[-1] != width:
    raise UserError(
      f"the data's features have shape {x_BTF.shape}, model.embed is {width}: set "
      "model.embed to the last of these numbers"
    )
  return x_BTF


def gradient(
  table: Table | None, x: ArrayLike | FeatureBag, g_BTE: jax.Array
) -> RowGrads | None:
  """The gradient of the table from that of the looked-up inputs.

  >>> from largevocab.rows import SGD
  >>> table = SGD().init(jnp.ones((3, 1)))
  >>> grads = gradient(table, jnp.array([[2, 2]]), jnp.array([[[1.0], [4.0]]]))
  >>> sorted(grads.rows_RD.ravel().tolist())
  [0.0, 5.0]
  """
  if table is None:
    return None
  if isinstance(x, FeatureBag):
    g_BTE = jnp.asarray(x.values_BF)[:, :, None] * g_BTE
    x = x.ids_BF
  g_NE = g_BTE.reshape(-1, g_BTE.shape[-1])
  return row_grads(jnp.ravel(x), g_NE, table.w_VD.shape[0])


def update(
  optimizer: RowOptimizer, table: Table | None, grads: RowGrads | None, lr, scale
) -> Table | None:
  """The table after a step with scale * grads at learning rate lr.

  >>> from largevocab.rows import SGD
  >>> update(SGD(), None, None, lr=0.1, scale=1.0)
  """
  if table is None or grads is None:
    return None
  return optimizer.update(table, grads, lr, scale)
