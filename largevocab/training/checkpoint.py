"""Saves and restores checkpoints; the only module that uses orbax."""

import errno
import itertools
import logging
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
from largevocab.paths import PlainName
from largevocab.training.checkpoint_note import (
  Damaged,
  SavedArray,
  arrays_of,
  as_saved,
  check_arrays,
  data_of,
  named_leaves,
  note_of,
  read_note,
)
from largevocab.training.json_files import read_numbers, write_json
from largevocab.training.processes import are_several, is_first

PyTree = Any
_LOG = logging.getLogger("largevocab")
# Errors that may be temporary, as opposed to a damaged checkpoint.
_TRANSIENT = {
  *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EPERM),
  *(errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT, errno.ESTALE),
}


def shapes_of(state: PyTree) -> PyTree:
  """Shapes, types and shardings of a state's arrays; keys alone stay as they are.

  They allow a state to be restored without another one in memory.
  """

  def of_leaf(leaf):
    is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return leaf if is_key else ocp.utils.to_shape_dtype_struct(leaf)

  return jax.tree.map(of_leaf, state)


class Checkpoints:
  """The latest few states of a run and its best one, saved in the background.

  A state is saved before it is evaluated, so that it cannot be lost in a long
  evaluation. Its cost on validation data
  (`largevocab.training.settings.Evaluating.cost`) is therefore kept next to the states,
  in valid_cost.json. If a run ends between two scheduled evaluations, the cost at its
  end is also kept in end_cost.json. The best state has the lowest cost.

  Args:
    directory: directory of the checkpoints, which is created if needed.
    keep: number of latest states to keep.
    is_owner: whether this run holds the lock of the workdir, so that it may remove the
      remains of saves that were cut off.
  """

  def __init__(self, directory: str, keep: int = 2, is_owner: bool = False):
    self._directory = os.path.abspath(directory)
    self._cost_path = os.path.join(self._directory, "valid_cost.json")
    self._cost: dict[str, float] = {}
    earlier = os.path.join(self._directory, "valid_nll.json")  # its former name
    for path in (self._cost_path, earlier):
      if not self._cost and os.path.exists(path):
        costs = read_numbers(path)
        self._cost = {at: cost for at, cost in costs.items() if math.isfinite(cost)}
    self._end_path = os.path.join(self._directory, "end_cost.json")
    is_there = os.path.exists(self._end_path)
    self._end = read_numbers(self._end_path) if is_there else {}
    options = ocp.CheckpointManagerOptions(
      preservation_policy=policies.AnyPreservationPolicy(
        [policies.LatestN(keep), _KeepBest(self)]
      ),
      enable_async_checkpointing=True,
      cleanup_tmp_directories=is_owner,
    )
    try:
      os.makedirs(self._directory, exist_ok=True)
      # orbax interprets brackets and other characters in a path as patterns.
      self._plain_name = PlainName(self._directory)
      self._manager = ocp.CheckpointManager(
        self._plain_name.path,
        options=options,
        item_handlers={
          "state": ocp.StandardCheckpointHandler(),
          "clock": ocp.JsonCheckpointHandler(),
        },
      )
    except UserError:
      raise
    except (OSError, ValueError) as error:
      what_to_do = remedy(_code(error), "make room there, or choose another --workdir")
      raise UserError(
        f"{self._directory} cannot be used ({_reason(error)}); {what_to_do}"
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
    """The step with the lowest cost on validation data; None if none was measured."""
    measured = [step for step in steps if str(step) in self._cost]
    return min(measured, key=lambda step: self._cost[str(step)], default=None)

  def save(self, step: int, state: PyTree, clock: dict[str, float]) -> None:
    """Saves the state asynchronously, while training continues.

    The clock is saved in a note, with a checksum of each array and a digest of the
    note.

    Raises:
      UserError: this checkpoint or the previous one cannot be written.
    """
    if step in self._manager.all_steps():
      return
    note = note_of(step, clock, arrays_of(state))
    args = ocp.args.Composite(
      state=ocp.args.StandardSave(state), clock=ocp.args.JsonSave(note)
    )
    with self._writing():
      self._manager.save(step, args=args)

  def note_cost(self, step: int, cost: float, in_schedule: bool = True) -> None:
    """Records the cost of a saved state on validation data."""
    if not math.isfinite(cost):
      return
    self._cost[str(step)] = cost
    if not in_schedule:
      self._end[str(step)] = cost
      if is_first():
        write_json(self._end_path, self._end)
    if is_first():
      write_json(self._cost_path, self._cost)

  def forget_costs(self, after: int) -> None:
    """Forgets the costs of states after a step, which training takes again.

    A run that was killed may have noted the cost of a state that was never on disk.
    """
    for costs in (self._cost, self._end):
      for step in [step for step in costs if int(step) > after]:
        del costs[step]

  def since_best(self, step: int) -> int:
    """Number of scheduled validations, up to a step, since the one of lowest cost."""
    steps = sorted(map(int, self._cost.keys() - self._end.keys()))
    costs = [self._cost[str(at)] for at in steps if at <= step]
    return len(costs) - 1 - costs.index(min(costs)) if costs else 0

  def wait(self) -> None:
    """Waits until everything saved is on disk."""
    with self._writing():
      self._manager.wait_until_finished()

  @contextmanager
  def _writing(self) -> Iterator[None]:
    """Converts errors of writing, which orbax may raise only at the next call."""
    try:
      yield
    except (OSError, ValueError) as error:
      what_to_do = remedy(_code(error), "make room there")
      raise UserError(
        f"cannot write to {self._directory} ({_reason(error)}); {what_to_do}, and the "
        "same command goes on from the last intact checkpoint"
      ) from error

  def restore(
    self, like: PyTree, which: str = "latest", set_aside: bool = False
  ) -> tuple[PyTree, dict[str, float]]:
    """Restores state and clock of the 'latest' or the 'best' checkpoint.

    If this checkpoint is damaged, the next older or next best one is taken, and this is
    logged.

    Args:
      like: a state of the same structure and shapes, or its `shapes_of`.
      which: 'latest' or 'best'; if no value of this metric is known, the latest one
        is taken, and this is logged.
      set_aside: whether to move damaged checkpoints to `damaged-STEP` next to this
        directory, so that their steps can be saved again.

    Raises:
      UserError: there is no checkpoint, it does not fit, or all are damaged.
    """
    damaged: dict[int, str] = {}
    steps = self._manager.all_steps()
    if which == "best" and steps and self.best_of(steps) is None:
      _LOG.warning(
        "the best checkpoint is unknown, as %s has no loss for the existing ones; "
        "taking the latest, of step %d; restore that file, or train until the next "
        "evaluation",
        *(self._cost_path, max(steps)),
      )
    for step in self._in_order(which):
      try:
        restored = self._restore(step, like)
      except Damaged as error:
        if are_several():  # other processes may have read their parts of it
          raise UserError(
            f"checkpoint {self._directory}/{step} is damaged ({error}); move it away, "
            "and the same command goes on from the previous one"
          ) from error
        damaged[step] = str(error)
        continue
      for other, reason in damaged.items():
        moved = f", which is now in {self._set_aside(other)}" if set_aside else ""
        _LOG.warning(
          "checkpoint %s/%d is damaged (%s)%s; taking that of step %d instead",
          *(self._directory, other, reason, moved, step),
        )
      return restored
    if not damaged:
      raise UserError(f"there is no checkpoint in {self._directory}; train first")
    step, reason = next(iter(damaged.items()))
    raise UserError(
      f"all checkpoints in {self._directory} are damaged (that of step {step}: "
      f"{reason}); copy an intact one there, or delete that directory to train from "
      "the start"
    )

  def _in_order(self, which: str) -> Iterator[int]:
    """The steps with checkpoints, the requested one first."""
    steps = sorted(self._manager.all_steps())
    while steps:
      best = self.best_of(steps) if which == "best" else None
      step = steps[-1] if best is None else best
      steps.remove(step)
      yield step

  def _restore(self, step: int, like: PyTree) -> tuple[PyTree, dict[str, float]]:
    """Raises Damaged, or UserError if other checkpoints would fail in the same way."""
    with self._reading(step):
      args = ocp.args.Composite(clock=ocp.args.JsonRestore())
      note = self._manager.restore(step, args=args)["clock"]
      clock, arrays = read_note(note, step)
    abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
    self._check_fits(step, arrays, abstract)
    with self._reading(step):
      wanted = ocp.args.StandardRestore(as_saved(abstract, arrays))
      args = ocp.args.Composite(state=wanted)
      state = self._manager.restore(step, args=args)["state"]
      check_arrays(state, arrays)
      return jax.tree.map(_of_type, like, state), clock

  @contextmanager
  def _reading(self, step: int) -> Iterator[None]:
    try:
      yield
    except (Damaged, MemoryError, jax.errors.JaxRuntimeError):
      raise
    except Exception as error:  # orbax raises exceptions of many types
      code = _code(error)
      if code in _TRANSIENT:
        what_to_do = remedy(code, "try again")
        raise UserError(
          f"checkpoint {self._directory}/{step} cannot be read ({_reason(error)}); "
          f"{what_to_do}"
        ) from error
      raise Damaged(_reason(error)) from error

  def _set_aside(self, step: int) -> str:
    """Moves a checkpoint away; returns the new path."""
    wanted = os.path.join(os.path.dirname(self._directory), f"damaged-{step}")
    names = itertools.chain([wanted], (f"{wanted}-{i}" for i in itertools.count(2)))
    path = next(name for name in names if not os.path.lexists(name))
    with self._writing():
      os.rename(os.path.join(self._directory, str(step)), path)
      self._manager.reload()
    return path

  def _check_fits(self, step: int, saved: dict[str, SavedArray], like: PyTree) -> None:
    """Raises UserError if the saved arrays differ from those of `like`."""
    was_of = {name: tuple(array.shape) for name, array in saved.items()}
    wanted = {name: tuple(leaf.shape) for name, leaf in named_leaves(like).items()}
    for name in sorted(was_of.keys() | wanted.keys()):
      was, shall_be = was_of.get(name, "none"), wanted.get(name, "none")
      if was != shall_be:
        raise UserError(
          f"checkpoint {self._directory}/{step} is intact, but of another model: its "
          f"array {name} is {was}, not {shall_be}; use the config, the data and the "
          "version that the run was started with (config.json, meta.json)"
        )


class _KeepBest(policies.PreservationPolicy):
  """Keeps the state with the lowest cost (`eval.best`) among those that still exist."""

  def __init__(self, saved: Checkpoints):
    self._saved = saved

  def should_preserve(self, checkpoints: Sequence[Any], *, context: Any) -> list[bool]:
    best = self._saved.best_of([each.step for each in checkpoints])
    return [each.step == best for each in checkpoints]


def _of_type(like: jax.Array, saved: jax.Array) -> jax.Array:
  """The saved array, cast to the type of `like`."""
  if saved.dtype == like.dtype:
    return saved
  if jax.dtypes.issubdtype(like.dtype, jax.dtypes.prng_key):
    return jax.random.wrap_key_data(data_of(saved), impl=jax.random.key_impl(like))
  return saved.astype(like.dtype)


def _causes(error: BaseException) -> list[BaseException]:
  """An error and the errors that caused it."""
  found = [error]
  while (cause := found[-1].__cause__) is not None:
    found.append(cause)
  return found


def _code(error: BaseException) -> int | None:
  """The errno of an operating system error, else None.

  >>> _code(ValueError("Failed: Disk is full [os_error_code='28']"))
  28
  """
  for cause in _causes(error):
    if isinstance(cause, OSError) and cause.errno is not None:
      return cause.errno
    if match := re.search(r"\[os_error_code='(\d+)'", str(cause)):
      return int(match[1])
  return None


def _reason(error: BaseException) -> str:
  """The message of the innermost cause of an error of orbax.

  >>> text = "NOT_FOUND: Failed: No such file [spec='a: {b: true}'] [os_error_code='2']"
  >>> _reason(ValueError(text))
  'No such file'
  """
  innermost = _causes(error)[-1]
  if isinstance(innermost, OSError) and innermost.strerror:
    return innermost.strerror
  # The details of a cause follow in brackets, in any order.
  text, *details = re.split(r" \[\w[\w ]*='", str(innermost).strip())
  if details or re.match("[A-Z_]+: ", text):
    text = text.rpartition(": ")[2]
  return (text or type(innermost).__name__).splitlines()[0][:200]
