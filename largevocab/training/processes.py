"""One run by several processes, each with its own devices, joined by `jax.distributed`.

All take the same steps, each with its rows of tables and batches. The first alone
writes files and logs. If one ends, all do.
"""

import logging
import os
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from largevocab.errors import UserError
from largevocab.training import native_stderr

# A process that is silent for so long counts as dead. Heartbeats have threads of their
# own, so that a long compilation is no silence.
_TIMES = {"heartbeat_timeout_seconds": 30}
_ADDRESS = re.compile(r"\S+:\d{1,5}")
# One job may be a single process in a cluster too; it then keeps all its devices.
_SIZES = ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")
# Seconds for others that fail as well to say why: they end at once if the first does.
_LAST, _LAST_OF_OTHERS = 1.0, 0.1
_LOST = re.compile("gloo|nccl|connection|peer|unavailable|heartbeat", re.IGNORECASE)


def join(address: str | None, num: int | None, index: int | None) -> None:
  """Joins the other processes of a run, if there are any.

  Args:
    address: 'HOST:PORT' of the first process.
    num: of processes; 1: do not join any.
    index: of this process, 0 for the first.

  Without any of these JAX looks for a cluster: of Slurm, Open MPI, Kubernetes or TPUs.

  Raises:
    UserError: the arguments are inconsistent, or the others cannot be reached.

  >>> join(None, 2, None)
  Traceback (most recent call last):
  ...
  largevocab.errors.UserError: --coordinator and --process are missing: give \
--coordinator=HOST:PORT, --processes=N and --process=I together
  """
  if (address, num, index) == (None, 1, None):
    return
  given = {"--coordinator": address, "--processes": num, "--process": index}
  missing = [flag for flag, value in given.items() if value is None]
  if 0 < len(missing) < 3:
    raise UserError(
      f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing: give "
      "--coordinator=HOST:PORT, --processes=N and --process=I together"
    )
  if address is not None and not _ADDRESS.fullmatch(address):
    raise UserError(f"--coordinator is {address!r}: give HOST:PORT, as in host0:8476")
  if num is not None and index is not None and index >= num:
    raise UserError(f"--process is {index}, of {num} processes: give 0 to {num - 1}")
  if missing and any(os.environ.get(name) == "1" for name in _SIZES):
    return
  if address is not None:
    native_stderr.pass_through_filter()
  if not _initialize(address, num, index) or not are_several():
    return
  if address is None:
    native_stderr.pass_through_filter()
  if not is_first():
    logging.getLogger("largevocab").setLevel(logging.ERROR)


def _initialize(address: str | None, num: int | None, index: int | None) -> bool:
  """Whether there are others to join; False as well if JAX is in use already."""
  # Signals are handled by `StopSignals`, those before training by the system.
  jax.config.update("jax_enable_preemption_service", False)
  try:
    with warnings.catch_warnings():
      warnings.simplefilter("ignore")  # packages that a detection would need
      jax.distributed.initialize(address, num, index, **_TIMES)
    return True
  except (RuntimeError, ValueError) as error:
    if address is None and re.search("should be defined|before any JAX", str(error)):
      return False
    where = f"the other processes at {address}" if address else "a cluster"
    raise UserError(
      f"cannot join {where} ({' '.join(str(error).split())[:200]}); start all of them "
      "with the same --coordinator and --processes, or one alone with --processes=1"
    ) from error


def are_several() -> bool:
  """Whether this run has other processes.

  >>> are_several(), is_first()
  (False, True)
  """
  return jax.distributed.is_initialized() and jax.process_count() > 1


def is_first() -> bool:
  """Whether this is the process that writes files and logs."""
  return not are_several() or jax.process_index() == 0


def check_devices(num_blocks: int, num_devices: int) -> None:
  """Checks that the settings `mesh.blocks` and `mesh.num` suit several processes.

  Raises:
    UserError: they do not.
  """
  if not are_several():
    return
  processes, devices = jax.process_count(), jax.device_count()
  if num_blocks == 1:
    raise UserError(
      f"mesh.blocks is 1, and there are {processes} processes: set it to {devices}, "
      "the number of their devices, or a multiple"
    )
  if num_devices not in (0, devices):
    raise UserError(
      f"mesh.num is {num_devices}, and {processes} processes have {devices} devices, "
      "which all take part: set it to 0"
    )


def wait(reason: str) -> None:
  """Waits until all processes are here."""
  if are_several():
    multihost_utils.sync_global_devices(reason)


def of_first(value: bool) -> bool:
  """What the first process says; others may see a file later, or not at all."""
  if not are_several():
    return value
  return bool(multihost_utils.broadcast_one_to_all(np.bool_(value)))


def whole(x: Any) -> np.ndarray:
  """All of an array, of which each process may have a part."""
  if isinstance(x, jax.Array) and not x.is_fully_addressable:
    return multihost_utils.process_allgather(x, tiled=True)
  return np.asarray(x)


def is_of_lost(error: BaseException) -> bool:
  """Whether JAX says by this error that another process is lost.

  A step raises a RuntimeError or a ValueError, depending on where it notices.

  >>> is_of_lost(ValueError("UNKNOWN: Gloo all-reduce failed: closed by peer"))
  True
  >>> is_of_lost(ValueError("UNKNOWN: no such shape")), is_of_lost(KeyError("peer"))
  (False, False)
  """
  is_of_jax = isinstance(error, RuntimeError | ValueError)
  return is_of_jax and bool(_LOST.search(str(error)))


def together(program: Callable[[], int]) -> int:
  """Runs a program and returns its status; of several processes, all end if one fails.

  A process that fails ends soon: others may wait for it, and it must not wait for them.
  """
  is_lost = False
  try:
    status = program()
  except Exception as error:
    if not are_several():
      raise
    is_lost = is_of_lost(error)
    if is_lost:
      print(f"error: {native_stderr.lost('', str(error))}", file=sys.stderr)
    else:
      traceback.print_exc()
    status = 1
  if status and are_several():
    try:
      sys.stdout.flush()
      sys.stderr.flush()
      if not is_lost:
        time.sleep(_LAST if is_first() else _LAST_OF_OTHERS)
    finally:  # whatever signal comes
      os._exit(status)
  return status
