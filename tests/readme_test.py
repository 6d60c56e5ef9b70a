"""README: its example runs, what it names exists, its figures are of the results."""

import re

import jax
import numpy as np
import records
import sweepfile

from tests.claims import ROOT, check

README = (ROOT / "README.md").read_text()


def test_the_example_trains(capsys):
  """As it stands: nothing is defined but what it defines itself."""
  (example,) = re.findall(r"<!-- example -->\n```python\n(.*?)```", README, re.DOTALL)
  names = {}
  exec(example, names)
  num_classes = len(names["counts"])
  assert float(capsys.readouterr().out) < 0.5 * np.log(num_classes)
  params, state = names["params"], names["head_state"]
  x = jax.random.normal(jax.random.key(1), (32, 8))
  labels = np.random.default_rng(0).integers(0, num_classes, 32)
  losses = []
  for step in range(200):
    key = jax.random.key(step)
    params, state, loss = names["train_step"](params, state, x, labels, key)
    losses.append(float(loss))
  assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])


def test_what_it_names_exists():
  for path in re.findall(
    r"(?:configs|scripts|tests|experiments|docs)/[\w/.]+\w", README
  ):
    assert (ROOT / path).exists(), path


GIVEN = [
  "over 10 thousand to a million words",
  *("Blanc and Rendle 2018", "Barber and Botev 2016", "Daghaghi et al. 2021"),
  *("Vincent et al. 2015", "Grave et al. 2017"),
  "Python >= 3.11",
  "text8, or",
]


def picture() -> list[str]:
  """What stands below it."""
  here = ROOT / "experiments" / "all_methods"
  sweep = sweepfile.load(here / "sweep.py")
  rows = sweep.complete(records.load(here / "results.jsonl"))
  ppl = {row["name"]: row.get("ppl_by_time") for row in rows}
  classes = {r["name"]: r["num_classes"] for r in records.load(here / "times.jsonl")}
  (steps,) = {r.overrides["train.max_steps"] for r in sweep.runs if r.name == SHOWN}
  return [
    f"Penn Treebank, {classes[SHOWN]:,} words: perplexity after {steps} steps",
    f"`sampled/pps` comes to {ppl['ptb: pps']:.1f} and `adaptive` to "
    f"{ppl['ptb: adaptive']:.1f}; at {classes['enwiki8: pps']:,} words, where the full "
    f"softmax comes to {ppl['enwiki8: full softmax']:,.0f}, to "
    f"{ppl['enwiki8: pps']:.1f} and {ppl['enwiki8: adaptive']:.1f}.",
  ]


SHOWN = "ptb: full softmax"


def newcomer() -> list[str]:
  path = records.load(ROOT / "experiments" / "newcomer" / "results.jsonl")
  total = {row["name"]: row["total_seconds"] / 60 for row in path}
  minutes = {row["name"]: row["seconds"] / 60 for row in path}
  return [
    f"The first result is there {total['quickstart']:.1f} minutes after `git clone`, "
    f"{minutes['installation']:.1f} of them for the installation; "
    f"{minutes['own text']:.1f} minutes later a model of a text of one's own, and "
    f"{minutes['own sampler']:.1f} after that one trained with a sampler",
  ]


def test_every_figure_is_made_from_committed_results():
  check(README, [*picture(), *newcomer()], GIVEN)
