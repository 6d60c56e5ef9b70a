"""Every file that is read, damaged in every way."""

import pathlib
import random
from collections.abc import Iterator

from tests.fuzz import formats, oracle
from tests.fuzz.case import Case
from tests.fuzz.formats import Format
from tests.fuzz.mutations import MUTATIONS, Mutation


def cases(seed: int, number: int) -> Iterator[Case]:
  """Each format in turn, and of a format its files and all mutations in turn."""
  rng = random.Random(f"{seed}/files")
  start = rng.randrange(10**6)
  for i in range(start, start + number):
    run = formats.ALL[i % len(formats.ALL)]
    turn = i // len(formats.ALL)
    mutation = MUTATIONS[turn % len(MUTATIONS)]
    name = rng.choice(list(run.files))
    yield case(f"files-{i - start}", run, name, mutation, rng.random())


def case(id: str, run: Format, name: str, mutation: Mutation, seed: float) -> Case:
  """A run that reads a damaged file.

  Args:
    seed: of the damage.
  """

  def prepare(here: pathlib.Path) -> None:
    run.write(here)
    rng = random.Random(seed)
    (here / name).write_bytes(mutation.damaged(rng, run.files[name]))

  return Case(
    id,
    f"{run.name}: {pathlib.Path(name).name}: {mutation.name}",
    run.argv(),
    prepare=prepare,
    must_fail=run.kind in mutation.ruins,
    names=(pathlib.Path(name).name,),
    check=oracle.trained,
  )
