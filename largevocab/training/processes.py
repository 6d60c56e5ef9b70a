"""Joins several processes, each with its own devices, into one run.

The processes are joined by `jax.distributed`. All take the same steps, each with its
own rows of tables and batches. Only the first process writes files and logs. If one
process ends, all end.
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

# A process that sends no heartbeat for this long counts as dead. Heartbeats have their
# own threads, so that a long compilation does not interrupt them.
_TIMES = {"heartbeat_timeout_seconds": 30}
_ADDRESS = re.compile(r"\S+:\d{1,5}")
# A job in a cluster may be a single process, which then keeps all its devices.
_SIZES = ("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")
# Seconds for which a failed process waits, so that other failing processes can report
# why. They end at once when the first process ends.
_LAST, _LAST_OF_OTHERS = 1.0, 0.1
_LOST = re.compile("gloo|nccl|connection|peer|unavailable|heartbeat", re.IGNORECASE)


def join(address: str | None, num: int | None, index: int | None) -> None:
  """Joins the other processes of a run, if there are any.

  Args:
    address: 'HOST:PORT' of the first process.
    num: number of processes; 1: do not join any.
    index: number of this process; 0 for the first.

  Without any of these arguments, JAX looks for a cluster of Slurm, Open MPI, Kubernetes
  or TPUs.

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
    raise UserError(
      f"--process is {index}, but there are {num} processes: give 0 to {num - 1}"
    )
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
  """Whether there are processes to join; also False if JAX is already in use."""
  # `StopSignals` handles signals; before training, the system handles them.
  jax.config.update("jax_enable_preemption_service", False)
  try:
    with warnings.catch_warnings():
      warnings.simplefilter("ignore")  # on packages that the detection would need
      jax.distributed.initialize(address, num, index, **_TIMES)
    return True
  except (RuntimeError, ValueError) as error:
    if address is None and re.search("should be defined|before any JAX", str(error)):
      return False
    where = f"the other processes at {address}" if address else "a cluster"
    raise UserError(
      f"cannot join {where} ({' '.join(str(error).split())[:200]}); start all of them "
      "with the same --coordinator and --processes, or only one with --processes=1"
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
    UserError: the settings do not suit several processes.
  """
  if not are_several():
    return
  processes, devices = jax.process_count(), jax.device_count()
  if num_blocks == 1:
    raise UserError(
      f"mesh.blocks is 1, but there are {processes} processes: set it to {devices}, "
      "the number of their devices, or to a multiple of it"
    )
  if num_devices not in (0, devices):
    raise UserError(
      f"mesh.num is {num_devices}, but {processes} processes have {devices} devices, "
      "which must all be used: set it to 0"
    )


def wait(reason: str) -> None:
  """Waits until all processes have reached this point."""
  if are_several():
    multihost_utils.sync_global_devices(reason)


def of_first(value: bool) -> bool:
  """The value on the first process; others may see a file later, or not at all."""
  if not are_several():
    return value
  return bool(multihost_utils.broadcast_one_to_all(np.bool_(value)))


def whole(x: Any) -> np.ndarray:
  """The whole array, of which each process may have only a part."""
  if isinstance(x, jax.Array) and not x.is_fully_addressable:
    return multihost_utils.process_allgather(x, tiled=True)
  return np.asarray(x)


def is_of_lost(error: BaseException) -> bool:
  """Whether this error is JAX's report that another process is lost.

  A step raises a RuntimeError or a ValueError, depending on where the loss is noticed.

  >>> is_of_lost(ValueError("UNKNOWN: Gloo all-reduce failed: closed by peer"))
  True
  >>> is_of_lost(ValueError("UNKNOWN: no such shape")), is_of_lost(KeyError("peer"))
  (False, False)
  """
  is_of_jax = isinstance(error, RuntimeError | ValueError)
  return is_of_jax and bool(_LOST.search(str(error)))


def together(program: Callable[[], int]) -> int:
  """Runs a program and returns its status; if one of several processes fails, all end.

  A process that fails ends soon, because others may be waiting for it and it must not
  wait for them.
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
    finally:  # whichever signal arrives
      os._exit(status)
  return status
