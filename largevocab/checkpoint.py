"""Checkpoints: the only file that knows orbax."""

import functools
import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers as policies

from largevocab.errors import UserError, remedy
from largevocab.workdir import read_json, write_json

PyTree = Any


class Checkpoints:
  """The latest few states of a run and its best one, saved in the background.

  A state is saved before it is measured, so that no evaluation, however long, can lose
  it; what was measured is therefore kept beside the states, in valid_nll.json.
  """

  def __init__(self, directory: str, keep: int = 2):
    self._directory = os.path.abspath(directory)
    self._nll_path = os.path.join(self._directory, "valid_nll.json")
    self._nll: dict[str, float] = {}
    if os.path.exists(self._nll_path):
      self._nll = read_json(self._nll_path)
    options = ocp.CheckpointManagerOptions(
      preservation_policy=policies.AnyPreservationPolicy(
        [policies.LatestN(keep), _KeepBest(self)]
      ),
      enable_async_checkpointing=True,
    )
    try:
      self._manager = ocp.CheckpointManager(
        self._directory,
        options=options,
        item_handlers={
          "state": ocp.StandardCheckpointHandler(),
          "clock": ocp.JsonCheckpointHandler(),
        },
      )
    except (OSError, ValueError) as error:
      raise UserError(
        f"{self._directory} is damaged or cannot be written ({_reason(error)}); "
        + remedy(error, "delete the checkpoint that is damaged, or make room")
      ) from error

  def __enter__(self) -> "Checkpoints":
    return self

  def __exit__(self, *exc: object) -> None:
    with self._writing():
      self._manager.close()

  @property
  def latest_step(self) -> int | None:
    return self._manager.latest_step()

  def best_of(self, steps: Sequence[int]) -> int | None:
    """The step with the lowest loss on validation data; None: none was measured."""
    measured = [step for step in steps if str(step) in self._nll]
    return min(measured, key=lambda step: self._nll[str(step)], default=None)

  def save(self, step: int, state: PyTree, clock: dict[str, float]) -> None:
    """Saves the state; the training goes on while it is written.

    Raises:
      UserError: this one or the one before cannot be written.
    """
    if step in self._manager.all_steps():
      return
    args = ocp.args.Composite(
      state=ocp.args.StandardSave(state), clock=ocp.args.JsonSave(clock)
    )
    with self._writing():
      self._manager.save(step, args=args)

  def note_loss(self, step: int, valid_loss: float) -> None:
    """Notes the loss on validation data of a state that was saved."""
    if math.isfinite(valid_loss):
      self._nll[str(step)] = valid_loss
      write_json(self._nll_path, self._nll)

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
        f"cannot write to {self._directory} ({_reason(error)}); "
        f"{remedy(error, 'make room there')}, and the same command goes on from the "
        "last whole checkpoint"
      ) from error

  def restore(self, like: PyTree, which: str = "latest") -> tuple[PyTree, dict]:
    """State and clock of the 'latest' or the 'best' checkpoint.

    Args:
      like: a state of the same structure and shapes.
      which: 'latest' or 'best'; where no loss was measured yet, the latest.

    Raises:
      UserError: there is none, it does not fit, or it is damaged.
    """
    best = self.best_of(self._manager.all_steps()) if which == "best" else None
    step = self._manager.latest_step() if best is None else best
    if step is None:
      raise UserError(f"there is no checkpoint in {self._directory}; train first")
    abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
    self._check_fits(step, abstract)
    args = ocp.args.Composite(
      state=ocp.args.StandardRestore(abstract), clock=ocp.args.JsonRestore()
    )
    try:
      restored = self._manager.restore(step, args=args)
      state, clock = restored["state"], restored["clock"]
    except (ValueError, KeyError, TypeError, OSError) as error:
      raise UserError(
        f"checkpoint {self._directory}/{step} is damaged ({_reason(error)}); delete "
        "that directory to go on from an older one"
      ) from error
    return state, clock

  def _check_fits(self, step: int, like: PyTree) -> None:
    """Raises UserError if other arrays are saved; what cannot be read is left alone."""
    try:
      saved = _shapes(self._manager.item_metadata(step)["state"])
    except (ValueError, KeyError, TypeError, OSError):
      return
    if not saved:
      return
    wanted = _shapes(like)
    for name in sorted(saved.keys() | wanted.keys()):
      was, shall_be = saved.get(name, "none"), wanted.get(name, "none")
      if was != shall_be:
        raise UserError(
          f"checkpoint {self._directory}/{step} is whole, but of another model: its "
          f"array {name} is {was}, not {shall_be}; use the config, the data and the "
          "version that the run was begun with (config.json, meta.json)"
        )


class _KeepBest(policies.PreservationPolicy):
  """Keeps the state that was best on validation data, of those still there."""

  def __init__(self, saved: Checkpoints):
    self._saved = saved

  def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> list[bool]:
    best = self._saved.best_of([each.step for each in checkpoints])
    return [each.step == best for each in checkpoints]


def _shapes(tree: PyTree) -> dict[str, tuple[int, ...]]:
  """Of each array, by its name."""
  name = functools.partial(jax.tree_util.keystr, simple=True, separator="/")
  leaves = jax.tree_util.tree_leaves_with_path(tree)
  return {name(path): tuple(leaf.shape) for path, leaf in leaves}


def _reason(error: Exception) -> str:
  """The innermost of the causes that orbax strings up, or else the first line.

  >>> text = "Failed: Disk is full [spec='a: {b: true}'] [os_error_code='28']"
  >>> _reason(ValueError(text))
  'Disk is full'
  """
  if "[os_error_code=" in str(error):
    # What it says of a cause follows in brackets, in any order.
    cause = re.search(r"([^:\[\]]+) \[\w[\w ]*='", str(error))
    if cause:
      return cause[1].strip()
  return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
