"""What a sweep file says: its runs, the metrics of its table, the paper's numbers.

A sweep file is Python with two functions, and a third if there are published numbers:

  def sweep(add):
    for seed in range(3):
      add("configs/ptb.py:full", {"train.seed": seed}, name="full softmax")
      add("configs/ptb.py:sampled/pps", {"head.num_samples": 160, "train.seed": seed})

  def metrics():                                   # keys of result.json
    return ["test_ppl", "train_seconds"]

  def paper():                                     # by name, then by metric
    return {"full softmax": {"test_ppl": 114.5}}
"""

import hashlib
import json
import pathlib
import re
import runpy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from largevocab.errors import UserError

MAX_SLUG = 60


@dataclass(frozen=True)
class Run:
  """One run of a sweep: a config with overrides.

  Attributes:
    config: as the flag of largevocab.main takes it, relative to the repository.
    overrides: {"head.num_samples": 160}.
    name: what the table calls it; runs of one name are averaged over seeds.
  """

  config: str
  overrides: dict[str, Any] = field(default_factory=dict)
  name: str = ""

  @property
  def id(self) -> str:
    """Directory name: readable, and unique by a hash of config and overrides.

    >>> Run("configs/ptb.py:sampled/pps", {"train.seed": 1}).id
    'ptb-sampled-pps-seed=1-e8c956fa'
    """
    identity = json.dumps([self.config, self.overrides], sort_keys=True, default=list)
    digest = hashlib.sha256(identity.encode()).hexdigest()[:8]
    path, _, arg = self.config.partition(":")
    words = [pathlib.Path(path).stem, *([arg] if arg else [])]
    words += [f"{k.rpartition('.')[2]}={v}" for k, v in sorted(self.overrides.items())]
    slug = re.sub(r"[^\w.=-]+", "-", "-".join(words))
    return f"{slug[:MAX_SLUG].strip('-')}-{digest}"

  def flags(self) -> list[str]:
    """Flags of largevocab.main.

    >>> Run("configs/ptb.py", {"train.seed": 1}).flags()
    ['--config=configs/ptb.py', '--config.train.seed=1']
    """
    overrides = [f"--config.{k}={v}" for k, v in self.overrides.items()]
    return [f"--config={self.config}", *overrides]


@dataclass(frozen=True)
class Sweep:
  runs: list[Run]
  metrics: list[str]
  paper: dict[str, dict[str, float]]


def collect(sweep: Callable[[Callable[..., None]], None]) -> list[Run]:
  """The runs that `sweep(add)` adds, in order.

  >>> collect(lambda add: add("configs/ptb.py", {"train.seed": 1}))[0].overrides
  {'train.seed': 1}
  """
  runs: dict[str, Run] = {}

  def add(config, overrides=None, /, *, name=""):
    run = Run(config, dict(overrides or {}), name)
    if run.id in runs:
      raise UserError(f"the sweep adds {' '.join(run.flags())} twice; remove one")
    runs[run.id] = run

  sweep(add)
  return list(runs.values())


def load(path: pathlib.Path) -> Sweep:
  """Reads a sweep file.

  Raises:
    UserError: there is no such file, it lacks a function, or adds a run twice.
  """
  if not path.is_file():
    raise UserError(f"{path}: no such sweep file; see experiments/*/sweep.py")
  names = runpy.run_path(str(path))
  if missing := {"sweep", "metrics"} - names.keys():
    raise UserError(f"{path}: define {' and '.join(sorted(missing))}, see {__file__}")
  paper = names["paper"]() if "paper" in names else {}
  return Sweep(collect(names["sweep"]), list(names["metrics"]()), paper)
