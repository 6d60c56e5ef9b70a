"""Every file that is read, damaged in every way."""

import pathlib
import random
from collections.abc import Iterator

from tests.fuzz import formats
from tests.fuzz.case import Case
from tests.fuzz.formats import Format
from tests.fuzz.mutations import MUTATIONS, Mutation

ALL = [*formats.DATA, *formats.OTHERS]


def cases(seed: int, number: int) -> Iterator[Case]:
  """Each format in turn, and of a format its files and all mutations in turn."""
  rng = random.Random(f"{seed}/files")
  start = rng.randrange(10**6)
  for i in range(start, start + number):
    run = ALL[i % len(ALL)]
    name = rng.choice(list(run.files))
    own = [each for each in MUTATIONS if each.suits(run.kind_of(name))]
    mutation = own[i // len(ALL) % len(own)]
    yield case(f"files-{i - start}", run, name, mutation, rng.random())


def case(id: str, run: Format, name: str, mutation: Mutation, seed: float) -> Case:
  """A program that reads a damaged file.

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
    script=run.script,
    prepare=prepare,
    must_fail=run.kind_of(name) in mutation.ruins,
    names=(pathlib.Path(name).name,),
    check=run.check,
  )
