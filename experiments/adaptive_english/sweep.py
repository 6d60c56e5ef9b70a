"""Adaptive softmax against its rivals on Europarl, English.

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
  length = {"train.max_steps": 500, "eval.every_epochs": 0.004}
  rest = {"data.valid_share": 1e-3, "data.test_share": 1e-3}
  for name, (head, overrides) in shared["rivals"](11_000).items():
    overrides = shared["SMALL"] | length | rest | overrides
    add(f"configs/europarl.py:{head}", overrides, name=name)
