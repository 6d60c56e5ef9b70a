"""Tags: do losses of the spherical family reach the softmax in the time that they save?

After Vincent et al. 2015, section 6. Compare these rows with those of tags_at_the_end,
which end earlier.
"""

import pathlib
import runpy

TAGS = runpy.run_path(
  str(pathlib.Path(__file__).parents[1] / "tags_at_the_end" / "sweep.py")
)
CONFIG = "configs/xmlc.py:{},data=citeulike_t"
SEEDS = (0, 1, 2)
FACTORED = {"train.head_lr_factor": 1000.0}
LONG = {**TAGS["LENGTH"], "train.epochs": 40.0, "eval.every_epochs": 2.0}
# Twice as long as in tags_at_the_end, at the rate chosen there, without a new search.
TWICE = {**TAGS["LENGTH"], "train.epochs": 10.0, "train.lr": 0.1}
ROWS = {
  "full softmax": ("full", TWICE),
  "spherical": ("spherical/spherical", FACTORED | LONG),
  "Taylor": ("spherical/taylor", FACTORED | LONG),
  # The rate that the search chose for Taylor.
  "Taylor, V starts at zero": (
    "spherical/taylor",
    FACTORED | LONG | {"head.init_scale": 0.0, "train.lr": 0.4},
  ),
}


def sweep(add):
  for seed in SEEDS:
    for name, (head, overrides) in ROWS.items():
      add(CONFIG.format(head), {**overrides, "train.seed": seed}, name=name)


def search():
  # Trials have 10 epochs.
  grid = {"train.lr": [0.05, 0.1, 0.2, 0.4, 0.8]}
  return {"steps": 770, "grid": grid, "metric": "valid_p@1"}


def comparison():
  return {"to": "full softmax", "metric": "test_p@1"}


def metrics():
  return ["valid_p@1", "test_p@1", "test_p@5", "train_seconds", "steps"]


def figures():
  figure = {"file": "seconds", "x": "seconds", "y": "curve_p@1", "line": "name"}
  return [{**figure, "log": "x", "band": True, "y_min": 0.2}]
