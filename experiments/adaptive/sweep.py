"""Adaptive softmax against its rivals on Wikipedia: table 1 of Grave et al. 2017.

The experiment is reduced to what a CPU does in some hours: an LSTM of half the width,
32 streams and few steps.
"""

TOKENS = 32 * 20  # in a step; the paper has 128 * 20
SMALL = {
  **{"model.hidden": 256, "train.batch_size": 32, "eval.batch_size": 32},
  "log.monitor_every_steps": 0,
}
PLAN = {"head.batch_examples": TOKENS, "head.min_head_mass": 0.8}
FULL, ADAPTIVE = "full softmax", "adaptive softmax"


def rivals(fifth):
  """Heads and overrides, in the order of the paper's tables.

  Args:
    fifth: a fifth of the number of words, which is the number of negatives of
      "sampling".
  """
  return {
    FULL: ("full", {}),
    "sampling": ("sampled/unigram", {"head.num_samples": fifth}),
    "HSM (freq)": ("hierarchical", {"head.binning": "sqrt"}),
    "HSM (sim)": ("hierarchical", {"head.binning": "brown"}),
    "D-softmax": ("d_softmax", PLAN),
    "D-softmax [*]": ("d_softmax", PLAN | {"head.projected": True}),
    ADAPTIVE: ("adaptive", PLAN),
  }


def sweep(add):
  length = {"train.max_steps": 2500, "eval.every_epochs": 0.0095}
  rest = {"data.valid_share": 1e-3, "data.test_share": 1e-3}
  less = PLAN | {"head.min_head_mass": 0.7}
  heads = rivals(13_570) | {"adaptive softmax (70 %)": ("adaptive", less)}
  # With an initial accumulator of 1e-8, as for the others, sampling diverges.
  tamed = {"head.num_samples": 13_570, "optimizer.initial_accumulator": 1e-5}
  heads["sampling"] = "sampled/pps", tamed
  for name, (head, overrides) in heads.items():
    overrides = SMALL | length | rest | overrides
    add(f"configs/enwiki8.py:{head}", overrides, name=name)


def metrics():
  return ["test_ppl", "train_seconds", "ms_per_step", "steps"]


def comparison():
  return {"to": FULL, "metric": "test_ppl"}


def paper():
  """Text8, 5 epochs, hidden width 512; the times were given in minutes, on a GPU."""
  figures = {
    FULL: (144, 83),
    "sampling": (166, 41),
    "HSM (freq)": (166, 34),
    "HSM (sim)": (155, 41),
    "D-softmax": (195, 53),
    "D-softmax [*]": (147, 54),
    ADAPTIVE: (147, 30),
  }
  return {
    name: {"test_ppl": ppl, "train_seconds": 60 * minutes}
    for name, (ppl, minutes) in figures.items()
  }


def figures():
  return [
    {"file": "perplexity_over_steps", "x": "step", "y": "valid_ppl"},
    {"file": "perplexity_over_time", "x": "seconds", "y": "valid_ppl"},
  ]
