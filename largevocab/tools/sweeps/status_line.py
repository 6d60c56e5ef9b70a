"""Shows a status line at the bottom of a terminal."""

import shutil
import sys
import time
from typing import TextIO

# Seconds between status lines that cannot be overwritten, as in a log file.
SECONDS_BETWEEN_LINES = 60.0


class StatusLine:
  """Keeps a status line below ordinary output.

  >>> StatusLine(sys.stdout).print("started")
  started
  """

  def __init__(self, stream: TextIO = sys.stderr):
    self._stream = stream
    self._overwrite = stream.isatty()
    self._shown = time.monotonic()

  def show(self, text: str) -> None:
    """Replaces the status line."""
    if self._overwrite:
      width = shutil.get_terminal_size().columns - 1
      self._stream.write(f"\r\x1b[K{text[:width]}")
      self._stream.flush()
    elif time.monotonic() - self._shown > SECONDS_BETWEEN_LINES:
      self._shown = time.monotonic()
      self.print(text)

  def print(self, text: str) -> None:
    """Writes a permanent line."""
    self.clear()
    self._stream.write(f"{text}\n")
    self._stream.flush()

  def clear(self) -> None:
    if self._overwrite:
      self._stream.write("\r\x1b[K")
      self._stream.flush()
