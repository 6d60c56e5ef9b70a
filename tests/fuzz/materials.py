"""Real workdirs and caches to be damaged, and their correct results."""

import json
import pathlib
import shutil
from typing import Any, NamedTuple

from tests.fuzz import formats
from tests.fuzz.case import HERE, ROOT, Case
from tests.fuzz.formats import Format
from tests.fuzz.pool import Worker

CONFIG = f"--config={ROOT}/configs/ptb.py:sampled/pps,runlocal"
RESTORED = "tests/fuzz/restored.py"
# What must be the same whenever it is measured; seconds are not.
METRICS = ("valid_nll", "test_nll")


class Cached(NamedTuple):
  """A run that has filled a cache.

  Attributes:
    here: of the run; it has files, cache and run.
    truth: METRICS of its result.
    vocabulary: of its workdir.
  """

  format: Format
  here: pathlib.Path
  truth: dict[str, float]
  vocabulary: bytes


class Materials(NamedTuple):
  """What is damaged.

  Attributes:
    workdir: of a finished run with the checkpoints of steps 4 and 5.
    truth: METRICS of its result.
    digests: of its states, by step.
    measured: what --mode=evaluate says of them, by step.
    caches: of a text and of documents.
  """

  workdir: pathlib.Path
  truth: dict[str, float]
  digests: dict[int, str]
  measured: dict[int, dict[str, float]]
  caches: list[Cached]


def make(root: pathlib.Path, worker: Worker) -> Materials:
  """Trains the runs and measures them, in a directory `root`."""
  shutil.rmtree(root, ignore_errors=True)
  root.mkdir(parents=True)
  workdir = root / "run"
  _run(worker, root, [CONFIG, f"--workdir={workdir}"])
  digests, measured = {}, {}
  shutil.copytree(workdir, root / "earlier")
  shutil.rmtree(root / "earlier" / "checkpoints" / "5")
  for step, where in ((5, workdir), (4, root / "earlier")):
    state = _run(worker, root, [str(where)], RESTORED)
    assert state["step"] == step
    digests[step] = state["digest"]
    measured[step] = _run(worker, root, [f"--workdir={where}", "--mode=evaluate"])
  caches = [
    _cached(worker, root / f.name, f) for f in (formats.PLAIN, formats.DOCUMENTS)
  ]
  return Materials(workdir, truth_of(workdir), digests, measured, caches)


def truth_of(workdir: pathlib.Path) -> dict[str, float]:
  """METRICS of a finished run."""
  result = json.loads((workdir / "result.json").read_text())
  return {key: result[key] for key in METRICS}


def _cached(worker: Worker, here: pathlib.Path, run: Format) -> Cached:
  here.mkdir()
  run.write(here)
  _run(worker, here, run.argv())
  vocabulary = (here / "run" / "vocabulary.txt").read_bytes()
  return Cached(run, here, truth_of(here / "run"), vocabulary)


def _run(
  worker: Worker, here: pathlib.Path, argv: list[str], script: str = ""
) -> dict[str, Any]:
  """Runs a program, which must succeed; the object that it prints, if any."""
  case = Case("material-0", "", argv, **({"script": script} if script else {}))
  done = worker.run(case, here)
  if (done.ending, done.status) != ("exit", 0):
    raise RuntimeError(f"{' '.join(argv)}: {done.ending}, {done.err}")
  return json.loads(done.out.splitlines()[-1]) if done.out else {}


__all__ = ["CONFIG", "HERE", "RESTORED", "Cached", "Materials", "make", "truth_of"]
