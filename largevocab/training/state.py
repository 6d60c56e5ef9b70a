"""Initialises and restores the training state."""

import dataclasses
import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.data.base import Data
from largevocab.data.digests import digests
from largevocab.errors import UserError
from largevocab.training import agreement
from largevocab.training.averages import init_network
from largevocab.training.checkpoint import Checkpoints, shapes_of
from largevocab.training.data_of_run import check_data_of_run
from largevocab.training.input_rows import num_own
from largevocab.training.json_files import read_json
from largevocab.training.settings import Experiment
from largevocab.training.sharding import inputs_of, on_devices
from largevocab.training.workdir import checkpoints_path, config_path

PyTree = Any


class State(NamedTuple):
  """The training state, which is donated at each step and saved as a whole.

  Attributes:
    step: i32[], number of updates so far.
    key: PRNG key of the run; each step folds in its number.
    params: parameters of the network.
    opt: the optimiser's state for the network; see `largevocab.training.averages`.
    inputs: the table of input rows, or None; see `largevocab.training.input_rows`.
    head: state of the head.
    carry: recurrent state.
    loss_sum: f32[], sum of the losses since the last log line.
    bad_step: i32[], the first step whose loss was not finite; -1: none.
  """

  step: jax.Array
  key: jax.Array
  params: PyTree
  opt: PyTree
  inputs: PyTree
  head: PyTree
  carry: PyTree
  loss_sum: jax.Array
  bad_step: jax.Array


def init_state(exp: Experiment, data: Data) -> State:
  """The initial state.

  Raises:
    UserError: there are fewer classes than the ranking metrics need, or embeddings are
      tied although inputs are not classes.
  """
  counts = data.counts
  for name in ("ranking_k", "precision_k", "hit_k"):
    k = getattr(exp.eval, name)
    if np.max(k, initial=0) > counts.num_classes:
      raise UserError(
        f"eval.{name} is {k}, but there are only {counts.num_classes} classes: lower it"
      )
  key = jax.random.key(exp.train.seed)
  key, k_net, k_inputs, k_head = jax.random.split(key, 4)
  carry = exp.model.initial_carry(exp.train.batch_size)
  shape = exp.train.batch_size, exp.model.history, exp.model.embed
  params = exp.model.init(k_net, jnp.zeros(shape), carry).get("params", {})
  state = State(
    step=jnp.int32(0),
    key=key,
    params=params,
    opt=init_network(exp.optimizer, params),
    inputs=inputs_of(exp).init(k_inputs, num_own(exp, data)),
    head=exp.head.init(k_head, counts, exp.model.width),
    carry=carry,
    loss_sum=jnp.float32(0),
    bad_step=jnp.int32(-1),
  )
  return on_devices(exp, state)


def with_saved_batch_size(exp: Experiment, workdir: str) -> Experiment:
  """The experiment with the run's batch size, to match the saved `carry`."""
  if not os.path.exists(path := config_path(workdir)):
    return exp
  of_run = read_json(path).get("train", {})
  batch_size = of_run.get("batch_size", exp.train.batch_size)
  train = dataclasses.replace(exp.train, batch_size=batch_size)
  return dataclasses.replace(exp, train=train)


def restore(exp: Experiment, workdir: str, which: str) -> tuple[Data, State]:
  """The data of a run, and its 'latest' or 'best' state.

  The `carry` of the state has the run's own batch size.
  """
  directory = checkpoints_path(workdir)
  if not os.path.isdir(directory):
    raise UserError(f"no checkpoints in {workdir}; train first")
  data = exp.data.load()
  found = digests(data)
  agreement.check_data(data, found)
  check_data_of_run(workdir, exp.data, data, found)
  like = shapes_of(init_state(with_saved_batch_size(exp, workdir), data))
  with Checkpoints(directory) as saved:
    agreement.check_workdir(workdir, saved.latest_step)
    state, _ = saved.restore(like, which)
  return data, state
