"""The rows that a network reads.

They are rows of a table of inputs or, if embeddings are tied, of the class table, which
then learns from both sides.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from largevocab.data.base import Data
from largevocab.data.batches import FeatureBag
from largevocab.errors import UserError
from largevocab.heads.base import HeadStep
from largevocab.rows import DeviceGrads, RowGrads
from largevocab.training.settings import Experiment
from largevocab.training.sharding import inputs_of

PyTree = Any


def num_own(exp: Experiment, data: Data) -> int:
  """Number of rows of the table of inputs; 0 if there is no such table.

  Raises:
    UserError: embeddings are tied although the inputs of the data are not classes.
  """
  if not exp.train.tied:
    return data.num_inputs
  if not data.inputs_are_classes:
    raise UserError(
      "train.tied is True, but the inputs of this data.name are features, not classes: "
      "set it to False, or choose a text or item histories"
    )
  return 0


def look_up(
  exp: Experiment, inputs: PyTree, head: PyTree, x: ArrayLike | FeatureBag
) -> jax.Array:
  """The network's input for `Batch.x`, f32[B, T, E]; see `Inputs.look_up`.

  Args:
    exp: the experiment.
    inputs, head: these fields of the state.
    x: the field `x` of a batch.

  Source: Press and Wolf 2017 and Inan et al. 2017, for tied embeddings. Deviation: the
    augmented loss of the latter is not used.
  """
  if not exp.train.tied:
    return inputs_of(exp).look_up(inputs, x)
  ids_BT = jnp.asarray(x)
  rows_RE = exp.head.class_rows(head, ids_BT.ravel())[:, : exp.model.embed]
  return rows_RE.reshape(*ids_BT.shape, -1)


def gradients(
  exp: Experiment,
  inputs: PyTree,
  head: PyTree,
  x: ArrayLike | FeatureBag,
  g_BTE: jax.Array,
  out: HeadStep,
) -> tuple[DeviceGrads | RowGrads | None, HeadStep]:
  """The gradient of the table of inputs, if there is one, and the step of the head.

  With tied embeddings, the step of the head has the merged gradients of the rows from
  both sides, so that its norm is that of their sum.

  Args:
    exp: the experiment.
    inputs, head: these fields of the state.
    x: the field `x` of a batch.
    g_BTE: the gradient of the loss with respect to the looked-up rows.
    out: the result of `Head.backward`.
  """
  if not exp.train.tied:
    return inputs_of(exp).gradient(inputs, x, g_BTE), out
  g_RE = g_BTE.reshape(-1, g_BTE.shape[-1])
  one_table: Any = exp.head  # `Experiment` has checked that the head is a single table
  grads, sq_norm = one_table.add_row_grads(
    head, out.grads, jnp.asarray(x).ravel(), g_RE
  )
  return None, out._replace(grads=grads, sq_norm=sq_norm)
