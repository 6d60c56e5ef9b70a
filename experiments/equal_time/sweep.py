"""PTB: twelve methods at searched rates, for the time of 5,000 steps of the exact one.

Times of a step are those of experiments/all_methods, of an idle core.
"""

import pathlib
import runpy

STEPS = 5000  # of the full softmax
SEEDS = (0, 1, 2)
METHODS = [
  *("pps", "pps + batch", "bernoulli", "unigram", "log-uniform", "ivf", "block"),
  *("adaptive", "BlackOut", "D-softmax", "Huffman", "LSH embedding"),
]
ALL = runpy.run_path(
  str(pathlib.Path(__file__).parents[1] / "all_methods" / "sweep.py")
)
FULL, PTB = ALL["FULL"], ALL["PROBLEMS"]["ptb"]


def sweep(add):
  seconds = ALL["pace"](f"ptb: {FULL}").seconds(STEPS)
  settings = {}
  ALL["sweep"](
    lambda config, overrides, name: settings.update({name: (config, overrides)})
  )
  for seed in SEEDS:
    for name in [FULL, *METHODS]:
      config, overrides = settings[f"ptb: {name}"]
      steps = round(ALL["pace"](f"ptb: {name}").steps(seconds))
      length = {
        # A constant rate: the same schedule however long a run is.
        **{"train.max_steps": steps, "train.epochs": 100, "train.hold_epochs": 100.0},
        "eval.every_epochs": round(steps / 20 / PTB.steps_per_epoch, 6),
        "train.seed": seed,
      }
      add(config, {**overrides, **length}, name=name)


def search():
  return {"steps": 500, "grid": {"train.lr": [5.0, 10.0, 20.0, 40.0]}}


def comparison():
  return {"to": FULL, "metric": "test_ppl"}


def metrics():
  return ["valid_ppl", "test_ppl", "steps"]
