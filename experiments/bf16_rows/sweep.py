"""PTB: bfloat16 rows with stochastic rounding against float32 rows, three seeds.

Runs of a seed are paired: they begin with the same rows and network, read the same text
in the same order, and draw the same negatives.
"""

SAME = {"head.num_samples": 2048, "train.epochs": 6, "eval.every_epochs": 0.5}
SEEDS = (0, 1, 2)
FLOAT32 = "float32 rows"
ROWS = {FLOAT32: "float32", "bfloat16 rows": "bfloat16"}


def sweep(add):
  for seed in SEEDS:
    for name, dtype in ROWS.items():
      overrides = {**SAME, "train.seed": seed, "optimizer.row_dtype": dtype}
      add("configs/ptb.py:sampled/pps", overrides, name=name)


def metrics():
  return ["valid_ppl", "test_ppl", "steps"]


def comparison():
  return {"to": FLOAT32, "metric": "test_ppl"}
