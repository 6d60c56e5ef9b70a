"""Wikipedia, 67,890 words: each method trains for ten minutes of an idle core.

A run has as many steps as an idle core makes in that time. Learning rates are searched,
and there are three seeds. Settings are those of experiments/all_methods, except for the
learning rate schedule and the share of text that is held out.
"""

import pathlib
import runpy

ALL = runpy.run_path(
  str(pathlib.Path(__file__).parents[1] / "all_methods" / "sweep.py")
)
FULL, DATA = ALL["FULL"], "enwiki8"
SEEDS = (0, 1, 2)
STEPS_PER_EPOCH = ALL["PROBLEMS"][DATA].steps_per_epoch
# From ../all_methods/times.jsonl, including rebuilds of statistics; NCE as `pps`.
STEPS = {
  FULL: 1_800,
  "log-uniform": 35_000,
  "unigram": 35_000,
  "unigram, lr=80": 35_000,
  "pps": 35_000,
  "NCE, shared": 35_000,
  "BlackOut": 48_000,
  "adaptive": 27_000,
  "hierarchical": 7_800,
  "Huffman": 72_000,
  "D-softmax [*]": 4_200,
  "LSH embedding": 14_000,
  "block": 14_000,
  "spherical": 79_000,
  "Taylor": 79_000,
}
MORE = {
  "NCE, shared": ("nce/unigram", {"head.num_samples": 2048}),
  # The best rate of the grid after 1,000 steps.
  "unigram, lr=80": ("sampled/unigram", {"head.num_samples": 2048, "train.lr": 80.0}),
}
HELD_OUT = {"data.valid_share": 1e-3, "data.test_share": 3e-3}
EVALUATIONS = 5


def sweep(add):
  def chosen(config, overrides, name):
    if name in STEPS:
      between = STEPS[name] / EVALUATIONS / STEPS_PER_EPOCH
      length = {"train.max_steps": STEPS[name], "eval.every_epochs": round(between, 6)}
      add(config, overrides | HELD_OUT | length, name=name)

  _, shared = ALL["settings"](DATA)["pps"]
  more = {name: (head, shared | own) for name, (head, own) in MORE.items()}
  length = {"train.schedule": "cosine", "log.monitor_every_steps": 0}
  ALL["at_the_end"](chosen, DATA, more, length, SEEDS)


def search():
  # The rates that are best after 1,000 steps are too large for 35,000.
  return {"steps": 1000, "share": 0.15, "grid": {"train.lr": [10.0, 20.0, 40.0, 80.0]}}


def comparison():
  return {"to": FULL, "metric": "test_ppl"}


def metrics():
  return ["valid_ppl", "test_ppl", "steps"]


def figures():
  curves = {"file": "ppl_over_time", "x": "idle_time", "y": "valid_ppl", "log": "y"}
  return [{**curves, "band": True, "reference": ["bigram, counted"]}]
