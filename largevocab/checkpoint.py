"""Checkpoints: the only file that knows orbax."""

import os
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
    self._manager = ocp.CheckpointManager(os.path.abspath(directory), options=options)

  def __enter__(self) -> "Checkpoints":
    return self

  def __exit__(self, *exc: object) -> None:
    self._manager.close()

  @property
  def latest_step(self) -> int | None:
    return self._manager.latest_step()

  def save(
    self, step: int, state: PyTree, clock: dict[str, float], valid_nll: float | None
  ) -> None:
    """Saves the state; the step goes on while it is written."""
    if step in self._manager.all_steps():
      return
    args = ocp.args.Composite(
      state=ocp.args.StandardSave(state), clock=ocp.args.JsonSave(clock)
    )
    metrics = None if valid_nll is None else {METRIC: valid_nll}
    self._manager.save(step, args=args, metrics=metrics)

  def wait(self) -> None:
    """Returns when everything saved is on disk."""
    self._manager.wait_until_finished()

  def restore(self, like: PyTree, which: str = "latest") -> tuple[PyTree, dict]:
    """State and clock of the 'latest' or the 'best' checkpoint.

    Args:
      like: a state of the same structure and shapes.
      which: 'latest' or 'best'.

    Raises:
      UserError: there is none, or it does not fit.
    """
    best = self._manager.best_step() if which == "best" else None
    step = self._manager.latest_step() if best is None else best
    if step is None:
      raise UserError(f"no checkpoint in {self._manager.directory}; train first")
    abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
    args = ocp.args.Composite(
      state=ocp.args.StandardRestore(abstract), clock=ocp.args.JsonRestore()
    )
    try:
      restored = self._manager.restore(step, args=args)
    except (ValueError, KeyError, OSError) as error:
      reason = str(error).splitlines()[0][:200]
      raise UserError(
        f"checkpoint {self._manager.directory}/{step} does not fit or is damaged "
        f"({reason}); delete that directory to go on from an older one"
      ) from error
    return restored["state"], restored["clock"]
