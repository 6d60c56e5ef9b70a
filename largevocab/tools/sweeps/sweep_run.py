"""Defines one run of a sweep."""

import hashlib
import json
import os
import pathlib
import re
from dataclasses import dataclass, field, replace
from typing import Any

MAX_SLUG = 60


def is_seed(key: str) -> bool:
  """Whether an override sets a seed.

  >>> is_seed("train.seed"), is_seed("train.lr")
  (True, False)
  """
  return key.split(".")[-1] == "seed"


def data_of(name: str) -> str:
  """The data that a name begins with, see `Run.name`; '' if it names no data.

  >>> data_of("ptb: unigram, m=80"), data_of("unigram")
  ('ptb', '')
  """
  return name.rpartition(": ")[0]


@dataclass(frozen=True)
class Run:
  """One run of a sweep: a config with overrides.

  Attributes:
    config: as for --config of largevocab.main, relative to `folder`.
    overrides: values by key, such as {"head.num_samples": 160}.
    name: label in tables; runs with the same name are averaged over seeds. In
      "ptb: unigram, m=80" the method is "unigram", and the data is "ptb". The data is
      needed only in a sweep on several data sets.
    folder: directory of the config; "": the current directory. It is not part of the
      run's identity.
  """

  config: str
  overrides: dict[str, Any] = field(default_factory=dict)
  name: str = ""
  folder: str = field(default="", repr=False, compare=False)

  @property
  def source(self) -> str:
    """The config, relative to the current directory or as a whole path.

    >>> Run("mine.py:full", folder="/project").source
    '/project/mine.py:full'
    >>> Run("mine.py:full", folder=os.getcwd()).source
    'mine.py:full'
    """
    is_here = self.folder in ("", os.getcwd())
    return self.config if is_here else os.path.join(self.folder, self.config)

  @property
  def id(self) -> str:
    """The directory name, readable, and unique by a hash of config and overrides.

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
    """The run as flags of largevocab.main.

    >>> Run("configs/ptb.py", {"train.seed": 1}).flags()
    ['--config=configs/ptb.py', '--config.train.seed=1']
    """
    overrides = [f"--config.{k}={v}" for k, v in self.overrides.items()]
    return [f"--config={self.source}", *overrides]

  def with_overrides(self, more: dict[str, Any]) -> "Run":
    """The run with additional or changed overrides.

    >>> Run("configs/ptb.py", {"train.lr": 1.0}).with_overrides({"train.lr": 2.0})
    Run(config='configs/ptb.py', overrides={'train.lr': 2.0}, name='')
    """
    return replace(self, overrides={**self.overrides, **more})

  def without_seed(self) -> "Run":
    """The run without its seeds, which is equal for runs that differ only in the seed.

    >>> Run("configs/ptb.py", {"train.seed": 1}).without_seed()
    Run(config='configs/ptb.py', overrides={}, name='')
    """
    same = {k: v for k, v in self.overrides.items() if not is_seed(k)}
    return replace(self, overrides=same)
