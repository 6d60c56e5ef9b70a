"""An experiment's training step, to be timed."""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp

from largevocab.experiment import Experiment
from largevocab.state import State, init_state
from largevocab.train import train_step


class TrainingSteps:
  """A model that is trained: a call makes one step, on one batch after the other.

  Attributes:
    loss: of the first step, which is made at once.

  Args:
    exp: what is trained.
    data: on what.
    num_batches: so many of its first batches, over and over.
  """

  def __init__(self, exp: Experiment, data: Any, num_batches: int = 1):
    batches = data.training_batches(exp.train.batch_size, exp.train.unroll)
    as_arrays = functools.partial(jax.tree.map, jnp.asarray)
    own = [as_arrays(batches.batch(step)) for step in range(num_batches)]
    self._batches = itertools.cycle(own)
    self._step = jax.jit(functools.partial(train_step, exp=exp), donate_argnums=0)
    self._refresh = jax.jit(exp.head.refresh, donate_argnums=0)
    self._state: State = init_state(exp, data)
    self._lr = exp.train.lr
    self.loss = float(self().loss_sum)
    for _ in range(num_batches - 1):  # their shapes may differ, and are compiled for
      self()

  def __call__(self) -> State:
    self._state = self._step(self._state, next(self._batches), self._lr)
    return self._state

  def refresh(self) -> State:
    """Rebuilds the head's statistics."""
    head = self._refresh(self._state.head, jax.random.key(0))
    self._state = self._state._replace(head=head)
    return self._state
