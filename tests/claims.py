"""Claims: phrases of a page with their figures put in anew from committed results.

Beside claims, code and links a text that is checked must not have any digit.
"""

import functools
import pathlib
import re
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from largevocab.tools.sweeps import records, sweepfile

ROOT = pathlib.Path(__file__).parents[1]
TABLE = re.compile(r"<!-- results:(\S+) -->.*?<!-- /results:\1 -->", re.DOTALL)
BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
CODE_AND_LINKS = re.compile(r"`[^`]*`|\]\([^)]*\)|P@1|chi2")


class Results:
  """results("full softmax", "test_ppl") of an experiment: the mean over seeds."""

  def __init__(self, experiment: str):
    self.directory = ROOT / "experiments" / experiment

  @functools.cached_property
  def rows(self) -> list[records.Record]:
    rows = records.load(self.directory / "results.jsonl")
    return [row for row in rows if not row.get("baseline")]

  def __call__(self, name: str, metric: str) -> float:
    values = self.of_seeds(name, metric)
    assert values, f"{self.directory.name} has no results of {name!r}"
    return statistics.fmean(values)

  def of_seeds(self, name: str, metric: str) -> list[float]:
    return [row[metric] for row in self.rows if row["name"] == name]

  def paper(self, name: str, metric: str) -> float:
    return sweepfile.load(self.directory / "sweep.py").paper[name][metric]

  def setting(self, name: str, key: str) -> Any:
    """What a run was given in place of its config's."""
    (value,) = {r["overrides"][key] for r in self.rows if r["name"] == name}
    return value

  def steps(self, name: str) -> str:
    return f"{self.setting(name, 'train.max_steps'):,} steps"

  def span(self, pattern: str, metric: str = "ratio") -> str:
    """The least and the largest, of all whose names match."""
    values = [r[metric] for r in self.rows if re.search(pattern, r["name"])]
    return f"{min(values):.2f} to {max(values):.2f} times"


BENCH, PTB, TOY = Results("bench"), Results("likelihood_ptb"), Results("likelihood_toy")
KERNEL, RELVAR, LAWS = Results("kernel_bias"), Results("relvar"), Results("samplers")
XMLC, ITEMS = Results("xmlc_lns"), Results("next_item")
LST, LST_SPEED, HARD = Results("lst"), Results("lst_speed"), Results("negatives")
WIKIPEDIA, ENGLISH = Results("adaptive"), Results("adaptive_english")
FRENCH, SPEED = Results("adaptive_french"), Results("adaptive_speed")


def check(text: str, claims: Iterable[str], given: Sequence[str] = ()) -> None:
  """Fails, and tells what to write, unless the text has all claims and no other figure.

  Args:
    text: Markdown, of which tables of results are not looked at.
    claims: phrases made from results.
    given: phrases with digits that nobody measured, such as a paper's year.
  """
  text = left = " ".join(BLOCK.sub(" ", TABLE.sub(" ", text)).split())
  missing = []
  for phrase in (*claims, *given):
    missing += [] if phrase in text else [phrase]
    left = left.replace(phrase, " ")
  left = CODE_AND_LINKS.sub(" ", left)
  found = re.findall(r"(?:\S+ )?\S*\d\S*(?: \S+)?", left)
  assert not missing, "\n  ".join(["by the results the page should say:", *missing])
  assert not found, "\n  ".join(["figures that nothing makes anew:", *found])
