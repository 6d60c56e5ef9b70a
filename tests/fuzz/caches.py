"""Caches with a damaged file: a run is refused, or gives the same result."""

import pathlib
import random
import shutil
from collections.abc import Callable, Iterator

from tests.fuzz.case import HERE, Case, Done
from tests.fuzz.materials import Cached, Materials, truth_of
from tests.fuzz.mutations import Mutation, choice


def cases(seed: int, number: int, materials: Materials) -> Iterator[Case]:
  """All files of caches, and mutations, in turn."""
  rng = random.Random(f"{seed}/caches")
  start = rng.randrange(10**6)
  files = [(cached, name) for cached in materials.caches for name in _files(cached)]
  for i in range(start, start + number):
    cached, name = files[i % len(files)]
    kind = {".npy": "npy", ".json": "json"}.get(name.suffix, "words")
    mutation = choice(rng, kind)
    yield _case(f"caches-{i - start}", cached, name, mutation, rng.random())


def _files(cached: Cached) -> list[pathlib.Path]:
  cache = cached.here / "cache"
  files = sorted(path for path in cache.rglob("*") if path.is_file())
  return [path.relative_to(cache) for path in files if path.suffix != ".lock"]


def _case(
  id: str, cached: Cached, name: pathlib.Path, mutation: Mutation, seed: float
) -> Case:
  def prepare(here: pathlib.Path) -> None:
    shutil.copytree(cached.here / "cache", here / "cache")
    path = here / "cache" / name
    path.write_bytes(mutation.damaged(random.Random(seed), path.read_bytes()))

  # The files that it was made from stay where they are.
  argv = [word.replace(HERE, str(cached.here)) for word in cached.format.argv()]
  argv[1] = f"--workdir={HERE}/run"
  return Case(
    id,
    f"{cached.format.name}: {name.name}: {mutation.name}",
    argv,
    prepare=prepare,
    check=_is_the_same(cached),
  )


def _is_the_same(cached: Cached) -> Callable[[pathlib.Path, Done], str]:
  def check(here: pathlib.Path, done: Done) -> str:
    if truth_of(here / "run") != cached.truth:
      return "another result than with a sound cache"
    vocabulary = (here / "run" / "vocabulary.txt").read_bytes()
    return "" if vocabulary == cached.vocabulary else "another vocabulary"

  return check
