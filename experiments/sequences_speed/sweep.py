"""Item sequences: step time and memory with each loss, on an idle core.

The settings are those of experiments/sequences. Each run has 300 steps and no
evaluation before the end. Run this sweep with --jobs 1, pinned to one core, with
nothing else running.
"""

import pathlib
import runpy

_OF_QUALITY = pathlib.Path(__file__).parents[1] / "sequences" / "sweep.py"
STEPS = 300


def sweep(add):
  quality = runpy.run_path(str(_OF_QUALITY))
  for data, files in quality["SETS"].items():
    for name, (head, fields) in quality["LOSSES"].items():
      overrides = {**quality["LENGTH"], **files, **fields, "train.max_steps": STEPS}
      overrides["eval.every_epochs"] = 0.0
      add(f"configs/sequences.py:{head}", overrides, name=f"{data}: {name}")


def metrics():
  return ["ms_per_step", "peak_mib"]
