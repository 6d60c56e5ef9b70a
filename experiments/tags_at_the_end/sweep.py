"""Tags: every head and every sampler, until the full softmax has converged.

Learning rates are searched, and there are three seeds. Settings are those of
experiments/all_methods, without the exceptions for text.
"""

import pathlib
import runpy

ALL = runpy.run_path(
  str(pathlib.Path(__file__).parents[1] / "all_methods" / "sweep.py")
)
FULL, DATA = ALL["FULL"], "citeulike_t"
SEEDS = (0, 1, 2)
# In the last epoch the full softmax hardly gains on validation data.
LENGTH = {"train.epochs": 5.0, "eval.every_epochs": 1.0, "log.monitor_every_steps": 0}
SHARED = {"head.num_samples": 2647}  # five per cent of the tags
MORE = {
  "NCE, shared": ("nce/unigram", SHARED),
  "in-batch": ("sampled/in_batch", SHARED),
  "MIDX": ("sampled/midx", {"head.num_samples": 32}),
}


def sweep(add):
  ALL["at_the_end"](add, DATA, MORE, LENGTH, SEEDS)


def search():
  # Trials have the whole length, because after three epochs greater rates are ahead.
  grid = {"train.lr": [0.05, 0.1, 0.2, 0.4]}
  return {"steps": 385, "grid": grid, "metric": "valid_p@1"}


def comparison():
  return {"to": FULL, "metric": "test_p@1"}


def metrics():
  return ["valid_p@1", "test_p@1", "test_p@5", "steps"]


def figures():
  figure = {"file": "front", "x": "idle_seconds", "y": "test_p@1", "line": "name"}
  figure |= {"log": "x", "front": "most", "band": True, "y_min": 0.4}
  return [{**figure, "reference": ["label frequency, counted"]}]
