"""Stops all processes of a run gracefully on a signal, at the same step."""

import signal
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from largevocab.training.processes import are_several

_SECONDS = (0.1, 0.4)  # between exchanges of `Agreement`


class Agreement:
  """The maximum of a number over processes, known to all of them at the same call.

  Numbers are exchanged without blocking, several times a second. A maximum is therefore
  known some calls later. The processes also agree on how many calls later, since their
  clocks differ.
  """

  def __init__(self):
    devices = sorted(jax.devices(), key=lambda device: device.process_index)
    mesh = Mesh(np.array(devices), ("devices",))
    self._by_device = NamedSharding(mesh, PartitionSpec("devices"))
    everywhere = NamedSharding(mesh, PartitionSpec())
    self._max = jax.jit(lambda x_C2: jnp.max(x_C2, axis=0), out_shardings=everywhere)
    self._known, self._sent = 0, None
    self._every = self._calls_left = 1
    self._since = time.perf_counter()

  def pace_anew(self) -> None:
    """Exchanges at the next calls, since the following ones may be further apart.

    All processes call this at the same places.
    """
    self._every = self._calls_left = 1

  def largest(self, number: int) -> int:
    """The largest number over processes, at most 2^24, from some calls ago."""
    self._calls_left -= 1
    if self._calls_left:
      return self._known
    if self._sent is not None:
      largest, seconds = np.asarray(self._sent.addressable_data(0)).tolist()
      self._known = int(largest)
      if seconds < _SECONDS[0]:
        self._every *= 2
      elif seconds > _SECONDS[1]:
        self._every = max(self._every // 2, 1)
    self._calls_left = self._every
    seconds, self._since = time.perf_counter() - self._since, time.perf_counter()
    mine = np.array([[number, seconds]] * jax.local_device_count(), np.float32)
    shape = jax.device_count(), 2
    self._sent = self._max(
      jax.make_array_from_process_local_data(self._by_device, mine, shape)
    )
    return self._known


class StopSignals:
  """Records SIGTERM and SIGINT instead of exiting; a second signal ends the process.

  Attributes:
    caught: number of the signal that this process received; 0: none yet.
    agreed: number of the signal that all processes know of; see `look`.
  """

  def __init__(self):
    self.caught = self.agreed = 0
    self._agreement = Agreement() if are_several() else None

  def __enter__(self) -> "StopSignals":
    both = (signal.SIGTERM, signal.SIGINT)
    self._old = {number: signal.signal(number, self._note) for number in both}
    return self

  def __exit__(self, *exc: object) -> None:
    for number, handler in self._old.items():
      signal.signal(number, handler)

  def look(self) -> int:
    """The number of the signal, or 0.

    Several processes get the same number if they look at the same places. A signal that
    one of them receives is seen by all at a later look.
    """
    if self._agreement is None:
      self.agreed = self.caught
    else:
      self.agreed = self._agreement.largest(self.caught)
    return self.agreed

  def pace_anew(self) -> None:
    """Prepares for looks that are further apart in time; all processes call this."""
    if self._agreement is not None:
      self._agreement.pace_anew()

  def _note(self, number: int, frame: object) -> None:
    if self.caught:
      raise KeyboardInterrupt
    self.caught = number
