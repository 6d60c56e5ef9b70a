"""Next item: the bias of the sampled softmax by number of negatives, at the end.

The data are Amazon Video Games, and models are compared at the end of training. After
Blanc and Rendle 2018, figure 2, on other data.
"""

import pathlib
import runpy

EXPERIMENTS = pathlib.Path(__file__).parents[1]
KERNEL = runpy.run_path(str(EXPERIMENTS / "kernel_bias" / "sweep.py"))
CONFIG = "configs/next_item.py:{},data=video_games"
SEEDS = (0, 1, 2)
STEPS_PER_EPOCH = 759  # 194,292 examples, 256 in a step
# In the third epoch the loss of the full softmax on validation data rises.
EPOCHS = 2
# Numbers of negatives; each example has its own.
NUM_SAMPLES = {
  **{"softmax": (10, 40, 160), "quadratic": (10, 40, 160)},
  **{"unigram": (10, 40, 160), "uniform": (10, 40, 160)},
  **{"quartic": (40,), "block": (40,)},
}
OVER_M = [sampler for sampler, numbers in NUM_SAMPLES.items() if len(numbers) > 1]
FULL, ABSOLUTE = "full softmax", "full absolute softmax"
LENGTH = {
  **{"train.epochs": EPOCHS, "train.schedule": "cosine", "eval.every_epochs": 0.25},
  "log.monitor_every_steps": 0,
}


def sweep(add):
  for seed in SEEDS:
    same = {**LENGTH, "train.seed": seed}
    add(CONFIG.format("full"), same, name=FULL)
    add(CONFIG.format("full"), {"head.absolute": True, **same}, name=ABSOLUTE)
    shared = {"head.num_samples": 512, **same}
    add(CONFIG.format("sampled/pps"), shared, name="pps, shared, m=512")
    for sampler, numbers in NUM_SAMPLES.items():
      own = KERNEL["own_draws"](sampler)
      for m in numbers:
        overrides = {"head.num_samples": m, **own, **same}
        add(CONFIG.format(f"sampled/{sampler}"), overrides, name=f"{sampler}, m={m}")


def search():
  grid = {"train.lr": [0.05, 0.1, 0.2]}
  return {"steps": STEPS_PER_EPOCH, "grid": grid, "metric": "valid_nll"}


def comparison():
  return {"to": FULL, "metric": "test_nll"}


def metrics():
  return ["valid_nll", "test_nll", "test_recall@20", "test_mrr@20", "steps"]


def figures():
  return [
    {
      **{"file": "samples", "x": "head.num_samples", "y": "test_nll", "log": "x"},
      **{"band": True, "where": {"method": OVER_M}, "reference": [FULL, ABSOLUTE]},
    }
  ]
