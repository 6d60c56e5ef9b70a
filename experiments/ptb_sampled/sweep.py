"""PTB, small LSTM, trained to the end: exact and sampled softmax, three seeds.

Runs with the same seed are paired: they begin with the same rows and network, and read
the same text in the same order.
"""

import math

LENGTH = {"eval.every_epochs": 0.5}
SEEDS = (0, 1, 2)
FULL = "full softmax"
# Samplers whose draws the batch shares.
SHARED = {
  "pps, 2,048": {"head.num_samples": 2048},
  "pps, 512": {"head.num_samples": 512},
  "pps, 512, and the batch": {"head.num_samples": 512, "head.exact_batch": True},
  "pps, 1,024": {"head.num_samples": 1024},
}
OTHERS = {
  "adaptive": ("adaptive", {}),
  "blackout, 512": (
    "blackout/unigram",
    {"head.num_samples": 512, "head.sampler.power": 0.5},
  ),
  "nce, 512": ("nce/unigram", {"head.num_samples": 512}),
}
# One seed of each: a step of these takes longer than one of the full softmax.
SLOW = {
  "block, 64": ("sampled/block", {"head.num_samples": 64}),
  "quadratic + prior, 64": ("sampled/quadratic_prior", {"head.num_samples": 64}),
}


def sweep(add):
  for seed in SEEDS:
    same = {**LENGTH, "train.seed": seed}
    add("configs/ptb.py:full", same, name=FULL)
    for name, overrides in SHARED.items():
      add("configs/ptb.py:sampled/pps", {**overrides, **same}, name=name)
    for name, (head, overrides) in {**OTHERS, **(SLOW if seed == 0 else {})}.items():
      add(f"configs/ptb.py:{head}", {**overrides, **same}, name=name)


def metrics():
  return ["valid_ppl", "lowest_valid_ppl", "test_ppl", "steps"]


def derived(record, records):
  """The lowest perplexity on validation text among all evaluations.

  The method overfits where this is well below the final perplexity.
  """
  nll = [value for _, value, _ in record.get("curve", [])]
  return {"lowest_valid_ppl": math.exp(min(nll))} if nll else {}


def comparison():
  return {"to": FULL, "metric": "test_ppl"}


def paper():
  # Zaremba et al. 2014, table 1: the non-regularized LSTM, which is the network here.
  return {FULL: {"valid_ppl": 120.7, "test_ppl": 114.5}}


def figures():
  figure = {"file": "front", "x": "idle_seconds", "y": "test_ppl", "line": "name"}
  figure |= {"log": "xy", "front": "least", "band": True, "y_min": 105}
  return [{**figure, "reference": ["bigram, counted"]}]
