"""PTB: estimates of the likelihood beside NCE and BlackOut, trained to the end.

Learning rates are searched, and there are three seeds. The losses are those of Barber
and Botev 2016 that can be judged on text by perplexity. Each token has its own K
negatives. The schedule is that of bias_at_the_end.
"""

import pathlib
import runpy

BIAS = runpy.run_path(
  str(pathlib.Path(__file__).parents[1] / "bias_at_the_end" / "sweep.py")
)
SEEDS, LENGTH, FULL = BIAS["SEEDS"], BIAS["LENGTH"], BIAS["FULL"]
OWN = {"head.sampler.per_example": True}
# By name: head and sampler, overrides, numbers of negatives.
METHODS = {
  "importance": ("sampled/unigram", {}, (20, 100)),
  "importance, f^0.5": ("sampled/unigram", {"head.sampler.power": 0.5}, (20,)),
  "BlackOut": ("blackout/unigram", {"head.sampler.power": 0.5}, (20, 100)),
  "NCE, z = 1": ("nce/unigram", {}, (20,)),
  "Bernoulli, capped": ("sampled/bernoulli", {}, (20,)),
  # The rate that the search found for importance sampling.
  "Bernoulli, capped, lr=10": ("sampled/bernoulli", {"train.lr": 10.0}, (20,)),
  # Half the rates that short trials found, and a quarter.
  "importance, lr=20": ("sampled/unigram", {"train.lr": 20.0}, (100,)),
  "importance, lr=5": ("sampled/unigram", {"train.lr": 5.0}, (20,)),
  "importance, lr=2.5": ("sampled/unigram", {"train.lr": 2.5}, (20,)),
}


def sweep(add):
  for seed in SEEDS:
    same = {**LENGTH, "train.seed": seed}
    add("configs/ptb.py:full", BIAS["EXACT"] | same, name=FULL)
    for name, (head, fields, numbers) in METHODS.items():
      for m in numbers:
        overrides = {"head.num_samples": m, **OWN, **fields, **same}
        add(f"configs/ptb.py:{head}", overrides, name=f"{name}, K={m}")


def search():
  return {"steps": 700, "grid": {"train.lr": [5.0, 10.0, 20.0, 40.0, 80.0]}}


def comparison():
  return {"to": FULL, "metric": "test_ppl"}


def metrics():
  return ["valid_ppl", "test_ppl", "steps"]
