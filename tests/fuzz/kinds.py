"""The kinds of cases, and how many of each."""

from collections.abc import Callable, Iterator, Sequence

from tests.fuzz import files, keys
from tests.fuzz.case import Case

# What makes cases from a seed, and its share of all.
KINDS: dict[str, tuple[Callable[[int, int], Iterator[Case]], float]] = {
  "keys": (keys.cases, 0.7),
  "files": (files.cases, 0.3),
}


def cases(seed: int, number: int, names: Sequence[str]) -> Iterator[Case]:
  """Cases of these kinds, in proportion to their shares."""
  total = sum(KINDS[name][1] for name in names)
  for name in names:
    make, share = KINDS[name]
    yield from make(seed, round(number * share / total))
