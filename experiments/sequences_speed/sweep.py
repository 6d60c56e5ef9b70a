"""Item sequences: time of a step and memory with each loss, on an idle core.

The settings are those of experiments/sequences; 300 steps each, without an evaluation
before the end. Run it with --jobs 1 and nothing else, pinned to one core.
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
