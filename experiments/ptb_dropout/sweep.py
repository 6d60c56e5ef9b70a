"""PTB with dropout: is NCE ahead of the exact softmax only if the network overfits?

The small LSTM is trained to the end as in ../ptb_sampled, but with dropout and with
three seeds.
"""

import pathlib
import runpy

SAMPLED = runpy.run_path(
  str(pathlib.Path(__file__).parents[1] / "ptb_sampled" / "sweep.py")
)
SEEDS = (0, 1, 2)
FULL = "full softmax"
LENGTH = {"eval.every_epochs": 0.5, "model.dropout": 0.3}
METHODS = {
  FULL: ("full", {}),
  "pps, 512": ("sampled/pps", {"head.num_samples": 512}),
  "nce, 512": ("nce/unigram", {"head.num_samples": 512}),
}


def sweep(add):
  for seed in SEEDS:
    for name, (head, overrides) in METHODS.items():
      overrides = {**overrides, **LENGTH, "train.seed": seed}
      add(f"configs/ptb.py:{head}", overrides, name=name)


def comparison():
  return {"to": FULL, "metric": "test_ppl"}


metrics, derived = SAMPLED["metrics"], SAMPLED["derived"]
