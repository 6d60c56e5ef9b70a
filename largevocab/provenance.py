"""Records where a result comes from: versions, device, and revision of the source."""

import os
import platform
import subprocess
import sys
from importlib import metadata
from typing import Any

import jax

# Result rows, which change while a sweep runs, do not count as source.
RESULTS = ":(top,exclude,glob)experiments/*/*.jsonl"
_CODE = (":/largevocab", ":/configs")


def describe_machine() -> dict[str, Any]:
  """Versions, device, source revision and command line, as a dict."""
  packages = ("jax", "jaxlib", "flax", "optax", "numpy")
  return {
    "argv": sys.argv,
    "device": device_name(),
    "num_devices": jax.device_count(),
    "git": revision(),
    "git_dirty": _git("status", "--porcelain", "--", ":/", RESULTS) != "",
    "python": platform.python_version(),
    "versions": {name: metadata.version(name) for name in packages},
  }


def revision() -> str:
  """The commit of the checkout that contains this source; '' if there is none."""
  return _git("rev-parse", "HEAD") or ""


def has_changes() -> bool:
  """Whether a file of the code, or a config, is new or differs from the commit.

  Also true if git does not answer, as changes cannot be excluded then.
  """
  return _git("status", "--porcelain", "-unormal", "--", *_CODE) != ""


def device_name() -> str:
  """Name of the device; for a CPU, with the number of available cores."""
  device = jax.devices()[0]
  return device.device_kind if device.platform != "cpu" else _cpu_name()


def _cpu_name() -> str:
  cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
  name = platform.processor() or platform.machine()
  try:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
      models = [line.split(":", 1)[1] for line in file if line.startswith("model name")]
    name = models[0].strip() if models else name
  except OSError:
    pass
  return f"{name}, {cores or os.cpu_count()} cores"


def _git(*args: str) -> str | None:
  """The output of a git command in the checkout of this source; None if it fails.

  '' if no repository tracks the source, even if the package is installed into a
  directory of a repository.
  """
  return _answer(*args) if _answer("ls-files", "--", "provenance.py") else ""


def _answer(*args: str) -> str | None:
  here = os.path.dirname(os.path.abspath(__file__))
  try:
    told = subprocess.run(
      ["git", "-C", here, *args], capture_output=True, text=True, timeout=60
    )
  except (OSError, subprocess.TimeoutExpired):
    return None
  return None if told.returncode else told.stdout.strip()
