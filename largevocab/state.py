"""All that changes in training: how it begins, and how it is found again."""

import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from largevocab.checkpoint import Checkpoints
from largevocab.data.base import Data
from largevocab.errors import UserError
from largevocab.experiment import Experiment
from largevocab.labels import Counts
from largevocab.rows import Table

PyTree = Any


class State(NamedTuple):
  """All that changes in training; it is donated at each step and saved whole.

  Attributes:
    step: i32[], updates done.
    key: of the whole run; each step folds in its number.
    params, opt: of the network.
    inputs: the table of input rows.
    head: whatever the head keeps.
    carry: recurrent state.
    loss_sum: f32[], losses since the last log line.
    bad_step: i32[], the first step whose loss was not finite; -1: none.
  """

  step: jax.Array
  key: jax.Array
  params: PyTree
  opt: PyTree
  inputs: Table
  head: PyTree
  carry: PyTree
  loss_sum: jax.Array
  bad_step: jax.Array


def look_up(w_VE: jax.Array, ids: ArrayLike) -> jax.Array:
  """Rows of an input table; ids >= V, which stand for nothing, give zeros.

  >>> look_up(jnp.ones((3, 2)), jnp.array([2, 3])).tolist()
  [[1.0, 1.0], [0.0, 0.0]]
  """
  return w_VE.at[ids].get(mode="fill", fill_value=0)


def init_state(exp: Experiment, counts: Counts) -> State:
  """The state before the first step.

  Raises:
    UserError: there are fewer classes than are to be ranked.
  """
  if exp.eval.ranking_k > counts.num_classes:
    raise UserError(
      f"eval.ranking_k is {exp.eval.ranking_k}, and there are {counts.num_classes} "
      "classes: rank fewer"
    )
  key = jax.random.key(exp.train.seed)
  key, k_net, k_inputs, k_head = jax.random.split(key, 4)
  carry = exp.model.initial_carry(exp.train.batch_size)
  width, scale = exp.model.embed, exp.model.init_scale
  rows_BTE = jnp.zeros((exp.train.batch_size, exp.model.history, width))
  params = exp.model.init(k_net, rows_BTE, carry)["params"]
  shape = (counts.num_classes, width)
  w_VE = jax.random.uniform(k_inputs, shape, minval=-scale, maxval=scale)
  return State(
    step=jnp.int32(0),
    key=key,
    params=params,
    opt=exp.optimizer.transformation().init(params),
    inputs=exp.optimizer.init(w_VE),
    head=exp.head.init(k_head, counts, exp.model.width),
    carry=carry,
    loss_sum=jnp.float32(0),
    bad_step=jnp.int32(-1),
  )


def restore(exp: Experiment, workdir: str, which: str) -> tuple[Data, State]:
  """The data of a run, and its 'latest' or 'best' state."""
  directory = os.path.join(workdir, "checkpoints")
  if not os.path.isdir(directory):
    raise UserError(f"no checkpoints in {workdir}; train first")
  data = exp.data.load()
  with Checkpoints(directory) as saved:
    state, _ = saved.restore(init_state(exp, data.counts), which)
  return data, state
