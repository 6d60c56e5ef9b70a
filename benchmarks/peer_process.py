"""Runs a peer's program in its own process, to be timed in turns with ours."""

import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np

from largevocab.errors import UserError


class Missing(UserError):
  """The peer is not installed, or lacks the function to measure."""


def is_there(package: str) -> bool:
  """Whether a peer is installed; does not import it. Prints a message if not."""
  if importlib.util.find_spec(package):
    return True
  print(f"{package} is missing: pip install {package}", file=sys.stderr)
  return False


class PeerProcess:
  """One of `peers.PROGRAMS`, to be called and timed like our functions.

  Use it as a context manager, which ends the process and removes its files.

  >>> ones = np.ones((2, 3), np.float32)
  >>> with PeerProcess("numpy product", {"h_ND": ones, "w_VD": ones}) as peer:
  ...   peer()
  ...   peer.results()[0].tolist()
  [[3.0, 3.0], [3.0, 3.0]]

  Raises:
    Missing: the peer is not available.
    UserError: the process ended unexpectedly.
  """

  def __init__(self, program: str, given: dict[str, Any], **settings: Any):
    self._name = program
    self._files = tempfile.TemporaryDirectory(prefix="peer.")
    directory = pathlib.Path(self._files.name)
    arrays: dict[str, Any] = {key: np.asarray(x) for key, x in given.items()}
    np.savez(directory / "given.npz", **arrays)
    (directory / "settings.json").write_text(json.dumps(settings))
    self._answers = directory / "answers.npz"
    script = pathlib.Path(__file__).with_name("peers.py")
    self._process = subprocess.Popen(
      # -P: otherwise files of this directory would shadow modules that peers import.
      [sys.executable, "-P", str(script), program, str(directory)],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
    )
    try:
      reply = self._reply()
    except UserError:
      self.close()
      raise
    if "missing" in reply:
      self.close()
      raise Missing(reply["missing"])

  def __enter__(self) -> "PeerProcess":
    return self

  def __exit__(self, *_: Any) -> None:
    self.close()

  def __call__(self) -> None:
    self._ask("call")

  def results(self) -> tuple[np.ndarray, ...]:
    """The results of the last call."""
    self._ask("answers")
    with np.load(self._answers) as answers:
      return tuple(answers[key] for key in sorted(answers))

  def turn(self, seconds: float) -> tuple[float, float]:
    """See `measure.turn`."""
    wall, cpu = self._ask(f"turn {seconds}")["seconds"]
    return wall, cpu

  def close(self) -> None:
    """Ends the process and removes its files."""
    if self._process.stdin and not self._process.stdin.closed:
      self._process.communicate()
    self._files.cleanup()

  def _ask(self, what: str) -> dict[str, Any]:
    assert self._process.stdin
    try:
      self._process.stdin.write(f"{what}\n")
      self._process.stdin.flush()
    except BrokenPipeError:
      pass  # `_reply` reports how it ended
    return self._reply()

  def _reply(self) -> dict[str, Any]:
    assert self._process.stdout
    line = self._process.stdout.readline()
    if not line:
      code = self._process.wait()
      raise UserError(f"{self._name} ended with status {code}; its output is above")
    return json.loads(line)
