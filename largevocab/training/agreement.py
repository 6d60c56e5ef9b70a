"""Checks that the processes of a run agree, before they compute together.

Processes that disagree would train different replicas, or wait for each other for ever.
"""

import hashlib
import json
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict
from jax.experimental import multihost_utils

from largevocab import __version__
from largevocab.data.base import Data
from largevocab.data.digests import digest
from largevocab.errors import UserError
from largevocab.training.config_changes import PLACES
from largevocab.training.lock import holder
from largevocab.training.processes import are_several

# Keys with paths of files. Files of the first kind are compared when they are read,
# those of the second kind here.
_READ_LATER = {f"config.{key}" for key in PLACES}
_FILES = re.compile(r"config\.head\.(clusters|cost_model)")


def check_settings(config: dict[str, Any], flags: Mapping[str, Any]) -> None:
  """Checks that all processes have the same versions, flags and settings.

  Paths of data may differ. Paths of a head's files may differ, too, if the files have
  the same content.

  Raises:
    UserError: the processes differ.
  """
  if not are_several():
    return
  versions = {"largevocab": __version__, "jax": jax.__version__}
  _check_same(versions, "install the same version for all of them")
  settings = {**flags, **flatten_dict({"config": config}, sep=".")}
  now = [key for key in settings if key not in _READ_LATER]
  remedy = "start all of them with the same settings"
  _check_same({key: _text(key, settings[key]) for key in now}, remedy)


def check_data(data: Data, digests: Mapping[str, str]) -> None:
  """Checks that all processes have read the same data.

  Args:
    data: the data that this process has read.
    digests: the digests of the arrays of `data`.

  Raises:
    UserError: the processes differ.
  """
  if not are_several():
    return
  counts = data.counts
  of_data = {
    "the number of classes": str(counts.num_classes),
    "the number of inputs": str(data.num_inputs),
    **{f"the data's {name!r}": each for name, each in digests.items()},
    "the counts of classes": digest([counts.unigram_V]),
  }
  _check_same(of_data, "give all of them the same files and package versions")


def check_pairs(setting: str, pairs: Mapping[str, Sequence[np.ndarray]]) -> None:
  """Checks that all processes have read the same files of word pairs.

  Raises:
    UserError: the files differ.
  """
  if are_several():
    of_files = {f"{setting}, {name}": digest(each) for name, each in pairs.items()}
    _check_same(of_files, f"give all of them the same files in {setting}")


def check_workdir(workdir: str, step: int | None) -> None:
  """Checks that all processes see the same workdir.

  Args:
    workdir: the workdir, in which the first process of a training has a lock.
    step: the last save that this process sees.

  Raises:
    UserError: the processes see different files.
  """
  remedy = "give all of them the same --workdir, in a shared file system"
  save = {"the last save that they see": str(step)}
  _check_same(save | {"the lock of --workdir": holder(workdir)}, remedy)


def _check_same(values: Mapping[str, str], remedy: str) -> None:
  """Checks that all processes have the same names and values, in the same order."""
  if not are_several():
    return
  names = list(values)
  both = ["the names of their settings"], [repr(names)]
  for what_K, text_K in (both, (names, list(values.values()))):
    if not text_K:
      continue
    crc_K = np.array([zlib.crc32(text.encode()) for text in text_K], np.uint32)
    crc_PK = multihost_utils.process_allgather(crc_K)
    other_P, at_P = np.nonzero(crc_PK != crc_PK[0])
    if len(other_P):
      what, here = what_K[at_P[0]], text_K[at_P[0]]
      which = f"processes 0 and {other_P[0]} differ in {what}"
      raise UserError(f"{which} ({here:.99} in this one): {remedy}")


def _text(key: str, value: Any) -> str:
  if _FILES.fullmatch(key) and isinstance(value, str):
    path = os.path.expanduser(value)
    if os.path.isfile(path):
      return hashlib.blake2b(Path(path).read_bytes(), digest_size=16).hexdigest()
  return json.dumps(value, default=repr)
