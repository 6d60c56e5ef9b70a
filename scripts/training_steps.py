"""An experiment's training step, to be timed."""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from largevocab.experiment import Experiment
from largevocab.state import State, init_state
from largevocab.train import train_step


class TrainingSteps:
  """A model that is trained: a call makes one step, always on the same batch.

  Attributes:
    loss: of the first step, which is made at once.
  """

  def __init__(self, exp: Experiment, data: Any):
    batches = data.training_batches(exp.train.batch_size, exp.train.unroll)
    self._batch = jax.tree.map(jnp.asarray, batches.batch(0))
    self._step = jax.jit(functools.partial(train_step, exp=exp), donate_argnums=0)
    self._state: State = init_state(exp, data)
    self._lr = exp.train.lr
    self.loss = float(self().loss_sum)

  def __call__(self) -> State:
    self._state = self._step(self._state, self._batch, self._lr)
    return self._state
