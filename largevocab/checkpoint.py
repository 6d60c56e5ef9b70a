"""Checkpoints: the only file that knows orbax."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers as policies

from largevocab.errors import UserError

PyTree = Any
METRIC = "valid_nll"


class Checkpoints:
  """The latest few states of a run and its best one, saved in the background."""

  def __init__(self, directory: str, keep: int = 2):
    best = policies.BestN(
      get_metric_fn=lambda metrics: metrics[METRIC],
      reverse=True,
      n=1,
      keep_checkpoints_without_metrics=False,
    )
    options = ocp.CheckpointManagerOptions(
      preservation_policy=policies.AnyPreservationPolicy(
        [policies.LatestN(keep), best]
      ),
      best_fn=lambda metrics: metrics[METRIC],
      best_mode="min",
      enable_async_checkpointing=True,
    )
    self._directory = os.path.abspath(directory)
    try:
      self._manager = ocp.CheckpointManager(self._directory, options=options)
    except (OSError, ValueError) as error:
      raise UserError(
        f"{self._directory} is damaged or cannot be written ({_reason(error)}); delete "
        "the checkpoint that is damaged, or make room"
      ) from error

  def __enter__(self) -> "Checkpoints":
    return self

  def __exit__(self, *exc: object) -> None:
    with self._writing():
      self._manager.close()

  @property
  def latest_step(self) -> int | None:
    return self._manager.latest_step()

  def save(
    self, step: int, state: PyTree, clock: dict[str, float], valid_nll: float | None
  ) -> None:
    """Saves the state; the training goes on while it is written.

    Raises:
      UserError: this one or the one before cannot be written.
    """
    if step in self._manager.all_steps():
      return
    args = ocp.args.Composite(
      state=ocp.args.StandardSave(state), clock=ocp.args.JsonSave(clock)
    )
    metrics = None if valid_nll is None else {METRIC: valid_nll}
    with self._writing():
      self._manager.save(step, args=args, metrics=metrics)

  def wait(self) -> None:
    """Returns when everything saved is on disk."""
    with self._writing():
      self._manager.wait_until_finished()

  @contextmanager
  def _writing(self) -> Iterator[None]:
    """What goes wrong in the background is raised at the next call, as ValueError."""
    try:
      yield
    except (OSError, ValueError) as error:
      raise UserError(
        f"cannot write to {self._directory} ({_reason(error)}); make room there, and "
        "the same command goes on from the last whole checkpoint"
      ) from error

  def restore(self, like: PyTree, which: str = "latest") -> tuple[PyTree, dict]:
    """State and clock of the 'latest' or the 'best' checkpoint.

    Args:
      like: a state of the same structure and shapes.
      which: 'latest' or 'best'; where no loss was measured yet, the latest.

    Raises:
      UserError: there is none, or it does not fit.
    """
    best = self._manager.best_step() if which == "best" else None
    step = self._manager.latest_step() if best is None else best
    if step is None:
      raise UserError(f"there is no checkpoint in {self._directory}; train first")
    abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
    args = ocp.args.Composite(
      state=ocp.args.StandardRestore(abstract), clock=ocp.args.JsonRestore()
    )
    try:
      restored = self._manager.restore(step, args=args)
      state, clock = restored["state"], restored["clock"]
    except (ValueError, KeyError, TypeError, OSError) as error:
      raise UserError(
        f"checkpoint {self._directory}/{step} is damaged or of another config "
        f"({_reason(error)}); delete that directory to go on from an older one"
      ) from error
    return state, clock


def _reason(error: Exception) -> str:
  """The innermost of the causes that orbax strings up, or else the first line."""
  if cause := re.search(r"([^:]*) \[os_error_code=", str(error)):
    return cause[1].strip()
  return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
