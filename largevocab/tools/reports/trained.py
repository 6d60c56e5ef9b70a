"""Loads a trained model with one row for each class, for reports on it."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from largevocab import config
from largevocab.data.base import Data, HeldOutBatches
from largevocab.errors import UserError
from largevocab.heads import Full, Linear, Sampled
from largevocab.heads.sampled_state import SampledState
from largevocab.labels import Counts
from largevocab.rows import SGD, Table
from largevocab.tools.reports.positions import Positions, positions_of
from largevocab.training.averages import for_evaluation
from largevocab.training.settings import Experiment
from largevocab.training.state import State, restore

_REFRESHES = 5


class Trained(NamedTuple):
  """The experiment of a run, its head, its data, and the state to evaluate."""

  exp: Experiment
  head: Full | Sampled
  data: Data
  state: State

  @property
  def w_VD(self) -> jax.Array:
    """The class rows."""
    return self.state.head.table.w_VD

  def batches(self) -> HeldOutBatches:
    """The validation data, as in evaluation."""
    settings = self.exp.eval
    return self.data.evaluation_batches("valid", settings.batch_size, settings.unroll)

  def positions(self, num: int) -> Positions:
    """`num` examples spread over the validation data."""
    V = self.data.counts.num_classes
    return positions_of(self.exp, self.state, self.batches(), num, V)


def fresh_state(head: Sampled, counts: Counts, w_VD: jax.Array) -> SampledState:
  """The state of a head for a table of class rows, as after several refreshes.

  The table has no optimiser state.
  """
  head = dataclasses.replace(head, optimizer=SGD())
  state = head.init_state(Table(w_VD, {}, jnp.int32(0)), counts)
  if not head.refreshes(1):
    return state
  return refreshed(jax.jit(head.refresh), state)


def refreshed(refresh: Callable[[Any, jax.Array], Any], state: Any) -> Any:
  """A state, or statistics, after several refreshes, since each refines an index."""
  for key in jax.random.split(jax.random.key(0), _REFRESHES):
    state = refresh(state, key)
  return state


def experiment(workdir: str, instead: str = "") -> tuple[Experiment, Full | Sampled]:
  """The experiment of a run, and its head.

  Args:
    workdir: the workdir of the run.
    instead: what else the user can do, for the end of an error message.

  Raises:
    UserError: the head does not have one row for each class, or has cosines as logits.
  """
  exp = config.build(config.of_workdir(workdir))
  head = exp.head
  if not isinstance(head, Full | Sampled):
    raise UserError(
      f"{workdir} has a head without one row for each class, or one divided by "
      f"mesh.blocks: choose a run with the head full or sampled{instead}"
    )
  if not isinstance(head.logits, Linear):
    raise UserError(
      f"{workdir} has cosines as logits, but heads here have products: choose another "
      f"run{instead}"
    )
  return exp, head


def trained(workdir: str, checkpoint: str, instead: str = "") -> Trained:
  """The model of a run's checkpoint, 'latest' or 'best'.

  Raises:
    UserError: there is no checkpoint; or as in `experiment`.
  """
  exp, head = experiment(workdir, instead)
  data, state = restore(exp, workdir, checkpoint)
  return Trained(exp, head, data, for_evaluation(exp.optimizer, state))
