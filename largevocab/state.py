"""All that changes in training: how it begins, and how it is found again."""

import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from largevocab.checkpoint import Checkpoints
from largevocab.data.corpus import Corpus
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


def init_state(exp: Experiment, counts: Counts) -> State:
  """The state before the first step."""
  key = jax.random.key(exp.train.seed)
  key, k_net, k_inputs, k_head = jax.random.split(key, 4)
  carry = exp.model.initial_carry(exp.train.batch_size)
  width, scale = exp.model.embed, exp.model.init_scale
  rows_BTE = jnp.zeros((exp.train.batch_size, 1, width))
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


def restore(exp: Experiment, workdir: str, which: str) -> tuple[Corpus, State]:
  """The data of a run, and its 'latest' or 'best' state."""
  directory = os.path.join(workdir, "checkpoints")
  if not os.path.isdir(directory):
    raise UserError(f"no checkpoints in {workdir}; train first")
  corpus = exp.data.load()
  with Checkpoints(directory) as saved:
    state, _ = saved.restore(init_state(exp, corpus.counts), which)
  return corpus, state
