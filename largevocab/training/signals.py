"""Graceful stop on signals."""

import signal


class StopSignals:
  """Records SIGTERM and SIGINT instead of exiting; a second one kills.

  Attributes:
    caught: the signal's number; 0: none yet.
  """

  def __init__(self):
    self.caught = 0

  def __enter__(self) -> "StopSignals":
    both = (signal.SIGTERM, signal.SIGINT)
    self._old = {number: signal.signal(number, self._note) for number in both}
    return self

  def __exit__(self, *exc: object) -> None:
    for number, handler in self._old.items():
      signal.signal(number, handler)

  def _note(self, number: int, frame: object) -> None:
    if self.caught:
      raise KeyboardInterrupt
    self.caught = number
