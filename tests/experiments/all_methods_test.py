"""all_methods: every method is in it, and its page says what the problems are."""

import runpy

import pytest

from largevocab.heads import HEADS
from largevocab.samplers import SAMPLERS
from largevocab.tools.sweeps import records, sweepfile
from tests.claims import ROOT, TABLE, check

HERE = ROOT / "experiments" / "all_methods"
SWEEP = runpy.run_path(str(HERE / "sweep.py"))
PROBLEMS, METHODS = SWEEP["PROBLEMS"], SWEEP["METHODS"]
FULL = SWEEP["FULL"]
LOADED = sweepfile.load(HERE / "sweep.py")
ROWS = {
  row["name"]: row
  for row in LOADED.complete(records.load(HERE / "results.jsonl"))
  if not row.get("baseline")
}


def setting() -> list[str]:
  """What the page says of the problems."""
  classes = {row["name"]: row["num_classes"] for row in SWEEP["TIMES"].values()}
  ptb, wiki, tags = (f"{classes[f'{data}: {FULL}']:,}" for data in PROBLEMS)
  steps = [problem.steps for problem in PROBLEMS.values()]
  shared = [f"{p.num_samples['shared']:,}" for p in PROBLEMS.values()]
  own = {m for _, m, *_ in METHODS.values() if isinstance(m, int) and m}
  words, _, papers = (problem.examples for problem in PROBLEMS.values())
  return [
    f"Penn Treebank, {ptb} words | the small LSTM of Zaremba et al. 2014, batches of "
    f"{words} words | {steps[0]} |",
    f"lower-case Wikipedia, {wiki} words | an LSTM of width "
    f"{PROBLEMS['enwiki8'].overrides['model.hidden']}, batches of {words} words, plain "
    f"gradient descent as on Penn Treebank | {steps[1]} |",
    f"tags of papers, {tags} | sums of 128 features, batches of {papers} papers, "
    f"Adagrad | {steps[2]} |",
    "shares are {}, {} and {}".format(*shared),
    "an example's own {} or {}".format(*sorted(own)),
    f"from hash tables {PROBLEMS['citeulike_t'].num_samples['hashed']} of tags",
  ]


GIVEN = ["(of 1, 10, 100 and 1000 times", "5 and 25 times"]


def test_the_page_says_what_the_problems_are():
  page = (HERE / "README.md").read_text()
  check(page[: TABLE.search(page).start()], setting(), GIVEN)


NOT_RUN = {"upper_bound"}  # it came after the page was measured


def test_every_head_and_every_sampler_is_in_it():
  paths = [path for path, *_ in METHODS.values()]
  assert {path.partition("/")[0] for path in paths} == set(HEADS) - NOT_RUN
  sampled = {path.partition("/")[2] for path in paths if path.startswith("sampled/")}
  assert sampled == set(SAMPLERS)


def test_every_run_is_finished_and_timed():
  names = {run.name for run in LOADED.runs}
  assert set(ROWS) == names == set(SWEEP["TIMES"])


def test_pace():
  pace = SWEEP["Pace"](10, 100, [1, 2, 4])
  assert [pace.seconds(n) for n in (0, 1, 3, 4, 9)] == [0, 0.11, 0.23, 0.34, 0.39]
  assert [pace.steps(t) for t in (0.11, 0.23, 0.39)] == pytest.approx([1, 3, 9])
  assert pace.steps(0.05) == 1  # it is rebuilding


def test_curves_are_read_between_their_points():
  curve = [[10, 2.0, 0], [20, 1.0, 30]]
  assert [SWEEP["at"](curve, step) for step in (10, 15, 20)] == [2.0, 1.5, 1.0]
  assert SWEEP["at"](curve, 9) is None
  assert SWEEP["at"](curve, 21) is None
