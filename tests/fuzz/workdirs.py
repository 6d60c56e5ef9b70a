"""Workdirs and checkpoints of which a file is damaged, and what becomes of the run.

Whatever is done to a file, a program ends in one line or goes on as if nothing had been
done: with the numbers, bit by bit, that an undamaged run has.
"""

import json
import pathlib
import random
import shutil
from collections.abc import Callable, Iterator
from typing import Any

from tests.fuzz import oracle
from tests.fuzz.case import HERE, MAIN, Case, Done
from tests.fuzz.materials import CONFIG, RESTORED, Materials, truth_of
from tests.fuzz.mutations import MUTATIONS, Mutation, choice

JSON = (
  *("config.json", "meta.json", "data.json", "result.json"),
  "checkpoints/valid_cost.json",
)
FILES = {
  **dict.fromkeys(JSON, "json"),
  "metrics.jsonl": "records",
  "vocabulary.txt": "words",
}
RUN = f"--workdir={HERE}/run"
# What is done with the workdir. A run is finished, or is to go on from step 4.
TABULATE = "scripts/tabulate.py"
MODES: dict[str, list[str]] = {
  "finished": [CONFIG, RUN],
  "goes on": [CONFIG, RUN],
  "evaluate": [RUN, "--mode=evaluate"],
  "evaluate the best": [RUN, "--mode=evaluate", "--checkpoint=best"],
  "predict": [RUN, "--mode=predict", "--text=w1 w2", "--top_k=2"],
  "tabulate": [f"{HERE}/run"],
}
# Of files of checkpoints, whatever they hold.
OF_BYTES = [each for each in MUTATIONS if not each.only and "line" not in each.name]


def cases(seed: int, number: int, materials: Materials) -> Iterator[Case]:
  """All files of a workdir, modes and mutations in turn."""
  rng = random.Random(f"{seed}/workdirs")
  start = rng.randrange(10**6)
  for i in range(start, start + number):
    name = list(FILES)[i % len(FILES)]
    mode = list(MODES)[i // len(FILES) % len(MODES)]
    mutation = choice(rng, FILES[name])
    yield _of_file(
      f"workdirs-{i - start}", materials, name, mode, mutation, rng.random()
    )


def of_checkpoints(seed: int, number: int, materials: Materials) -> Iterator[Case]:
  """Files of the latest checkpoint, most often those that hold the arrays."""
  rng = random.Random(f"{seed}/checkpoints")
  latest = materials.workdir / "checkpoints" / "5"
  files = [path for path in latest.rglob("*") if path.is_file()]
  sizes = {path.relative_to(materials.workdir): path.stat().st_size for path in files}
  names = sorted(sizes, key=lambda name: (_public(name), sizes[name]))
  arrays = [name for name in names if "DATA" in _public(name)]
  for i in range(number):
    name = rng.choice(arrays if rng.random() < 0.7 else names)
    id = f"checkpoints-{i}"
    change = rng.randrange(len(OF_BYTES) + 3)
    about = f"{_public(name)}: "
    if change < len(OF_BYTES):
      mutation = OF_BYTES[change]
      damage = _damaged(name, mutation, rng.random())
      about += mutation.name
    else:
      other = rng.choice(names)
      damage, what = [
        (lambda run, name=name: (run / name).unlink(), "gone"),
        (
          lambda run, name=name, other=other: shutil.copy(
            materials.workdir / other, run / name
          ),
          "another of its files",
        ),
        (
          lambda run, name=name: shutil.rmtree((run / name).parent),
          "its directory gone",
        ),
      ][change - len(OF_BYTES)]
      about += what
    yield Case(
      id,
      about,
      [f"{HERE}/run"],
      script=RESTORED,
      prepare=_copy(materials, damage),
      check=_is_true(materials),
    )


def _public(name: pathlib.Path) -> str:
  """The name of a file of a checkpoint, without what is random in it."""
  return "/".join("DATA" if len(part) == 32 else part for part in name.parts[2:])


def _of_file(
  id: str, materials: Materials, name: str, mode: str, mutation: Mutation, seed: float
) -> Case:
  damage = _damaged(pathlib.Path(name), mutation, seed)

  def damage_and_stop(run: pathlib.Path) -> None:
    damage(run)
    if mode == "goes on":
      (run / "result.json").unlink()
      shutil.rmtree(run / "checkpoints" / "5")

  return Case(
    id,
    f"{mode}: {name}: {mutation.name}",
    MODES[mode],
    script=TABULATE if mode == "tabulate" else MAIN,
    prepare=_copy(materials, damage_and_stop),
    check=_check(materials, name, mode),
  )


def _copy(
  materials: Materials, damage: Callable[[pathlib.Path], Any]
) -> Callable[[pathlib.Path], None]:
  def prepare(here: pathlib.Path) -> None:
    shutil.copytree(materials.workdir, here / "run")
    damage(here / "run")

  return prepare


def _damaged(
  name: pathlib.Path, mutation: Mutation, seed: float
) -> Callable[[pathlib.Path], None]:
  def damage(run: pathlib.Path) -> None:
    path = run / name
    before = path.read_bytes()
    path.write_bytes(mutation.damaged(random.Random(seed), before))
    if name.name == "metrics.jsonl":
      shutil.copy(path, run.parent / "damaged.jsonl")

  return damage


def _is_true(materials: Materials) -> Callable[[pathlib.Path, Done], str]:
  """That the state restored is one that was saved."""

  def check(here: pathlib.Path, done: Done) -> str:
    found = json.loads(done.out.splitlines()[-1])
    is_true = materials.digests.get(found["step"]) == found["digest"]
    return "" if is_true else f"another state than that of step {found['step']}"

  return check


def _check(
  materials: Materials, name: str, mode: str
) -> Callable[[pathlib.Path, Done], str]:
  """That numbers are finite and, unless the config is another now, the true ones."""

  def check(here: pathlib.Path, done: Done) -> str:
    if mode in ("predict", "tabulate"):
      return "" if done.out else "nothing was answered"
    if mode.startswith("evaluate"):
      found = json.loads(done.out.splitlines()[-1])
      is_other = name != "config.json" and found != materials.measured[found["step"]]
      return "other metrics than before" if is_other else oracle.not_finite(found)
    if wrong := oracle.not_finite(json.loads((here / "run/result.json").read_text())):
      return wrong
    if mode == "goes on":
      if truth_of(here / "run") != materials.truth:
        return "another result than that of a run that was not stopped"
      return _lost(here, materials)
    return ""

  return check


def _lost(here: pathlib.Path, materials: Materials) -> str:
  """A sound line of metrics.jsonl, of a step up to 4, that is no longer there."""
  damaged = here / "damaged.jsonl"
  if not damaged.exists():
    return ""
  kept = (here / "run" / "metrics.jsonl").read_bytes().splitlines()
  real = (materials.workdir / "metrics.jsonl").read_bytes().splitlines()
  for line in damaged.read_bytes().splitlines():
    if line in real and json.loads(line)["step"] <= 4 and line not in kept:
      return f"metrics.jsonl has lost {line.decode()[:60]}"
  return ""
