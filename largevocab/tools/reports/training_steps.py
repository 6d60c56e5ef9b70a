"""Training steps of an experiment, for timing."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from largevocab.errors import UserError
from largevocab.tools.reports.operations import operations
from largevocab.training.settings import Experiment
from largevocab.training.state import State, init_state
from largevocab.training.step import compiled_steps, train_step


class TrainingSteps:
  """A model in training, where each call makes one step, always on the same batch.

  Attributes:
    loss: loss of the first step, which the constructor makes.
  """

  def __init__(self, exp: Experiment, data: Any):
    self._exp = exp
    self._batches = data.training_batches(exp.train.batch_size, exp.train.unroll)
    self._state: State
    self._state, self._step, self._refresh = compiled_steps(exp, init_state(exp, data))
    self._lr = exp.train.lr
    self._first = self.on(0)
    self.loss = float(self().loss_sum)

  def __call__(self) -> State:
    return self._first()

  def on(self, number: int) -> Callable[[], State]:
    """A function that makes a step on this batch."""
    batch = jax.tree.map(jnp.asarray, self._batch(number))

    def make_step() -> State:
      self._state = self._step(self._state, batch, self._lr)
      return self._state

    return make_step

  def _batch(self, number: int) -> Any:
    batch, num = self._batches.batch(number), self._exp.train.accumulate
    return [batch] * num if num > 1 else batch

  def operations(self, number: int) -> float:
    """Operations of a step on this batch; see `operations`."""
    # Not compiled, since a compiled step would donate the state.
    step = functools.partial(train_step, exp=self._exp)
    return operations(step, self._state, self._batch(number), self._lr)

  def check_finite(self, name: str) -> None:
    """Raises a UserError if a loss or gradient so far was not finite.

    The time of such a step may differ from that of a normal step. The message has the
    name of the method.
    """
    step = int(self._state.bad_step)
    if step >= 0:
      raise UserError(
        f"{name}: at train.lr={self._lr:g}, timed step {step} is not finite; "
        "choose a lower rate"
      )

  def refresh(self) -> State:
    """Rebuilds the head's statistics."""
    head = self._refresh(self._state.head, jax.random.key(0))
    self._state = self._state._replace(head=head)
    return self._state
