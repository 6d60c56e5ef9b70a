"""Graceful stop on signals."""

import signal

from largevocab.training.processes import Agreement, are_several


class StopSignals:
  """Records SIGTERM and SIGINT instead of exiting; a second one kills.

  Attributes:
    caught: number of the signal, by this process; 0: none yet.
    agreed: the same, as all processes know it; see `look`.
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
    """The signal, or 0. Several processes get the same number if they look at the same
    places: that of one of them, at a later look."""
    if self._agreement is None:
      self.agreed = self.caught
    else:
      self.agreed = self._agreement.largest(self.caught)
    return self.agreed

  def pace_anew(self) -> None:
    """Before looks that are further apart in time; all processes call this."""
    if self._agreement is not None:
      self._agreement.pace_anew()

  def _note(self, number: int, frame: object) -> None:
    if self.caught:
      raise KeyboardInterrupt
    self.caught = number
