"""The kinds of cases, and how many of each."""

from collections.abc import Callable, Iterator, Sequence

from tests.fuzz import arguments, caches, files, keys, workdirs
from tests.fuzz.case import Case
from tests.fuzz.materials import Materials

# What makes cases from a seed, and its share of all.
_ALONE: dict[str, tuple[Callable[[int, int], Iterator[Case]], float]] = {
  "keys": (keys.cases, 0.575),
  "files": (files.cases, 0.2),
}
# The same of what needs trained runs.
_OF_RUNS: dict[str, tuple[Callable[[int, int, Materials], Iterator[Case]], float]] = {
  "workdirs": (workdirs.cases, 0.075),
  "checkpoints": (workdirs.of_checkpoints, 0.05),
  "caches": (caches.cases, 0.025),
  "arguments": (arguments.cases, 0.075),
}
SHARES = {name: share for name, (_, share) in [*_ALONE.items(), *_OF_RUNS.items()]}


def needs_materials(names: Sequence[str]) -> bool:
  """Whether one of these kinds needs trained runs."""
  return any(name in _OF_RUNS for name in names)


def cases(
  seed: int, numbers: dict[str, int], materials: Materials | None
) -> Iterator[Case]:
  """The given number of cases of each kind."""
  for name, number in numbers.items():
    if name in _ALONE:
      yield from _ALONE[name][0](seed, number)
    else:
      assert materials is not None
      yield from _OF_RUNS[name][0](seed, number, materials)


def numbers(total: int, names: Sequence[str]) -> dict[str, int]:
  """How many cases of each of these kinds, in proportion to their shares."""
  of_all = sum(SHARES[name] for name in names)
  return {name: round(total * SHARES[name] / of_all) for name in names}
