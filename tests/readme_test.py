"""README: its example runs, what it names exists, its figures are of the results."""

import re

import jax
import numpy as np

from largevocab.tools.sweeps import records
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
  *("Vincent et al. 2015", "Grave et al. 2017", "Zaremba et al. 2014"),
  "Python >= 3.11",
  "text8, or",
]


def steps() -> list[str]:
  """Of a training step of each method over one with the full softmax; and sizes."""
  rows = records.load(ROOT / "experiments" / "all_methods" / "times.jsonl")
  (device,) = {row["device"] for row in rows}
  ratio = {row["name"]: row["ratio"] for row in rows}
  classes = {row["name"].partition(":")[0]: row["num_classes"] for row in rows}
  given = {row["name"]: row["overrides"] for row in rows}
  share = lambda data, name: f"{ratio[f'{data}: {name}']:.2f}"
  negatives = lambda data: f"{given[f'{data}: pps']['head.num_samples']:,}"
  assert device == "AMD EPYC, 1 cores"
  return [
    "on one core of an idle AMD EPYC",
    f"`sampled/pps` and {negatives('ptb')} shared negatives {share('ptb', 'pps')} "
    f"of its time with the full softmax at {classes['ptb']:,} words, with "
    f"{negatives('enwiki8')} shared negatives {share('enwiki8', 'pps')} at "
    f"{classes['enwiki8']:,} words; with `adaptive` {share('ptb', 'adaptive')} and "
    f"{share('enwiki8', 'adaptive')}",
    f"untested above {max(classes.values()):,} classes",
  ]


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
  check(README, [*steps(), *newcomer()], GIVEN)
