"""Diginetica: does a sampled softmax reach the exact one in the time that it saves?

The task is to predict the next item.
"""

CONFIG = "configs/next_item.py:{},data=diginetica"
SEEDS = (0, 1, 2)
EPOCHS, STEPS = 4.0, 10_684  # of the full softmax, as in the benchmark
# One learning rate for all methods, as in the benchmark.
SAME = {"train.lr": 0.1, "train.schedule": "cosine", "log.monitor_every_steps": 0}
CORRECTED = {"head.loss.correct_positive": True}
FULL = "full softmax"
# By method: the head, the multiple of the full softmax's epochs, and other settings.
ROWS = {
  FULL: ("full", 1, {}),
  "adaptive": ("adaptive", 1, {}),
  "pps, 512": ("sampled/pps", 1, {"head.num_samples": 512}),
  "pps, 512, corrected": ("sampled/pps", 1, {"head.num_samples": 512, **CORRECTED}),
  "pps, 512, 8 times": ("sampled/pps", 8, {"head.num_samples": 512}),
  "pps, 512, corrected, 8 times": (
    *("sampled/pps", 8, {"head.num_samples": 512, **CORRECTED}),
  ),
  "pps, 4,096": ("sampled/pps", 1, {"head.num_samples": 4096}),
  "pps, 4,096, corrected": ("sampled/pps", 1, {"head.num_samples": 4096, **CORRECTED}),
}


def sweep(add):
  for seed in SEEDS:
    for name, (head, times, overrides) in ROWS.items():
      length = {"train.epochs": EPOCHS * times, "train.max_steps": STEPS * times}
      length["eval.every_epochs"] = 0.25 * times
      more = {**SAME, **length, **overrides, "train.seed": seed}
      add(CONFIG.format(head), more, name=name)


def comparison():
  return {"to": FULL, "metric": "test_recall@20"}


def metrics():
  return ["valid_recall@20", "test_recall@20", "test_mrr@20", "test_nll", "steps"]
