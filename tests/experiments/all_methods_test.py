"""all_methods: every method is in it, and its page says what came out."""

import runpy

import pytest
import records
import sweepfile

from largevocab.heads import HEADS
from largevocab.samplers import SAMPLERS
from tests.claims import ROOT, check

HERE = ROOT / "experiments" / "all_methods"
SWEEP = runpy.run_path(str(HERE / "sweep.py"))
PROBLEMS, METHODS = SWEEP["PROBLEMS"], SWEEP["METHODS"]
FULL = SWEEP["FULL"]
LOADED = sweepfile.load(HERE / "sweep.py")
ROWS = {
  row["name"]: row for row in LOADED.complete(records.load(HERE / "results.jsonl"))
}


def figures(data: str, metric: str, form: str, *names: str) -> list[str]:
  return [f"{ROWS[f'{data}: {name}'][metric]:{form}}" for name in names]


def share_of_full(data: str, *names: str) -> list[float]:
  full = ROWS[f"{data}: {FULL}"]["step_ms"]
  return [ROWS[f"{data}: {name}"]["step_ms"] / full for name in names]


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


def verdict() -> list[str]:
  by_steps = ("pps", "own unigram", "block", FULL, "adaptive")
  pps, own, block, full, adaptive = figures("ptb", "ppl_by_steps", ".1f", *by_steps)
  tags = figures("citeulike_t", "p@1_by_steps", ".3f", "hierarchical", "adaptive", FULL)
  tags_in_time = ("pps", "ivf", "bernoulli", "adaptive")
  (tags_full,) = figures("citeulike_t", "p@1_by_time", ".3f", FULL)
  in_time = ("pps", "adaptive", "bernoulli", FULL)
  wiki = (
    "log-uniform",
    "unigram",
    "Taylor",
    "adaptive",
    "BlackOut",
    "spherical",
    "pps",
  )
  wiki_time = figures("enwiki8", "ppl_by_time", ".1f", *wiki)
  (wiki_full,) = figures("enwiki8", "ppl_by_time", ",.0f", FULL)
  (covered,) = figures("enwiki8", "time_share", ".2f", "pps")
  (pps_share,) = share_of_full("enwiki8", "pps")
  dear = share_of_full("ptb", "own unigram", "bigram", "NCE")
  kernels = ("quadratic", "quadratic + prior", "quartic", "ideal sampler")
  shares = share_of_full("enwiki8", *kernels)
  (block_share,) = share_of_full("enwiki8", "block")
  perplexities = {
    step: f"{SWEEP['math'].exp(nll):,.0f}"
    for step, nll, _ in ROWS[f"enwiki8: {FULL}"]["curve"]
  }
  return [
    f"`pps` comes to {pps}, `own unigram` to {own}, `block` to {block}, the full "
    f"softmax to {full}. Other models may do better: `adaptive` {adaptive}",
    "of tags `hierarchical` has {}, `adaptive` {}, the full softmax {}".format(*tags),
    "`pps` {}, `adaptive` {}, `bernoulli` {}, the full softmax {}. Wikipedia:".format(
      *figures("ptb", "ppl_by_time", ".1f", *in_time)
    ),
    "Tags: `pps` {}, `ivf` {}, `bernoulli` {}, `adaptive` {}, the full softmax".format(
      *figures("citeulike_t", "p@1_by_time", ".3f", *tags_in_time)
    )
    + f" {tags_full}.",
    "`log-uniform` {}, `unigram` {}, `Taylor` {}, `adaptive` {}, `BlackOut` "
    "{}, `spherical` {}, `pps` {} in ".format(*wiki_time)
    + f"{covered} of the time, the full softmax {wiki_full}: a step of `pps` takes "
    f"1/{1 / pps_share:.0f} of one of it there",
    f"100 negatives of each word's own take {min(dear):.1f} to {max(dear):.1f} times "
    "as long as all 10,000 classes",
    f"kernels and the ideal sampler {min(shares):.2f} to {max(shares):.2f} of the full "
    f"softmax at {ROWS_CLASSES:,}. `block` takes {block_share:.2f} there",
    f"the full softmax has {perplexities[100]} after 100 steps and "
    f"{perplexities[250]} after 250",
  ]


ROWS_CLASSES = SWEEP["TIMES"][f"enwiki8: {FULL}"]["num_classes"]
ENDS = {figure.file: figure for figure in LOADED.figures}
GIVEN = ["(of 1, 10, 100 and 1000 times", "5 and 25 times"]


def outside() -> list[str]:
  """What the page says of methods that the figures leave out."""
  above = [ENDS[f"front_{data}"].y_max for data in ("ptb", "enwiki8")]
  return [
    "Above {:,} and {:,} are".format(*above),
    f"Below {ENDS['front_citeulike_t'].y_min} are",
  ]


def test_the_page_says_what_came_out():
  check((HERE / "README.md").read_text(), [*setting(), *verdict(), *outside()], GIVEN)


def test_every_head_and_every_sampler_is_in_it():
  paths = [path for path, *_ in METHODS.values()]
  assert {path.partition("/")[0] for path in paths} == set(HEADS)
  sampled = {path.partition("/")[2] for path in paths if path.startswith("sampled/")}
  assert sampled == set(SAMPLERS)


def test_every_run_is_finished_and_timed():
  names = {run.name for run in LOADED.runs}
  assert set(ROWS) == names == set(SWEEP["TIMES"])


def test_estimates_do_not_beat_what_they_estimate():
  full = ROWS[f"ptb: {FULL}"]["ppl_by_steps"]
  for name, (head, *_) in METHODS.items():
    if head.startswith("sampled/"):
      assert ROWS[f"ptb: {name}"]["ppl_by_steps"] > full, name


def test_what_lies_outside_the_figures():
  above = {
    data: {
      name.removeprefix(f"{data}: ")
      for name, row in ROWS.items()
      if name.startswith(f"{data}: ")
      and row["ppl_by_steps"] > ENDS[f"front_{data}"].y_max
    }
    for data in ("ptb", "enwiki8")
  }
  useless = {"uniform", "top k", "negative sampling"}
  assert above["ptb"] == useless | {"ranking", "Huffman"}
  assert above["enwiki8"] == useless | {"log-uniform", "unigram"}
  lowest = ENDS["front_citeulike_t"].y_min
  assert {
    name.removeprefix("citeulike_t: ")
    for name, row in ROWS.items()
    if row.get("p@1_by_steps", 1) < lowest
  } == {"uniform", "top k", "ranking", "Taylor"}


def test_methods_not_for_text_are_behind_all_others():
  useless = {"uniform", "top k", "negative sampling", "ranking"}
  for data in ("ptb", "enwiki8"):
    ppl = {name: ROWS[f"{data}: {name}"]["ppl_by_time"] for name in METHODS}
    others = set(METHODS) - useless
    ahead = {name for name in others if ppl[name] < min(ppl[bad] for bad in useless)}
    assert others - ahead == ({FULL} if data == "enwiki8" else set())


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
