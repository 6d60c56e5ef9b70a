"""PTB: negatives drawn in 64 blocks of classes against one block.

Each run has one epoch, and there are three seeds. Runs with the same seed read the same
text in the same order. Their initial rows and their draws differ, because the random
numbers depend on the number of blocks.
"""

SAME = {"head.num_samples": 512, "train.epochs": 1, "eval.every_epochs": 0.5}
SEEDS = (0, 1, 2)
ONE = "PTB, 1 block"
BLOCKS = {ONE: 1, "PTB, 64 blocks": 64}


def sweep(add):
  for seed in SEEDS:
    for name, blocks in BLOCKS.items():
      overrides = {**SAME, "train.seed": seed, "mesh.blocks": blocks}
      add("configs/ptb.py:sampled/pps", overrides, name=name)


def metrics():
  return ["valid_ppl", "test_ppl"]


def comparison():
  return {"to": ONE, "metric": "test_ppl"}
