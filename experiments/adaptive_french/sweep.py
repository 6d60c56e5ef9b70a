"""Adaptive softmax against its rivals on Europarl, French.

This is table 3 of Grave et al. 2017 for one more language. The runs are as small as
those on Wikipedia in experiments/adaptive.
"""

import pathlib
import runpy

shared = runpy.run_path(str(pathlib.Path(__file__).parents[1] / "adaptive/sweep.py"))
metrics, comparison, figures = (
  shared[key] for key in ("metrics", "comparison", "figures")
)


def sweep(add):
  length = {"train.max_steps": 400, "eval.every_epochs": 0.5}
  rest = {"data.valid_share": 0.05, "data.test_share": 0.05}
  for name, (head, overrides) in shared["rivals"](2_000).items():
    overrides = shared["SMALL"] | length | rest | overrides
    add(f"configs/europarl.py:{head}", overrides, name=name)
