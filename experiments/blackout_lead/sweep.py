"""Why does BlackOut lead with 20 negatives? Rates and clipping, over the first epoch.

The two losses are from experiments/likelihood_ptb. Each token has 20 negatives of its
own.
"""

RATES = (2.5, 5.0, 10.0, 20.0)
CLIPPED = {"": {}, ", unclipped": {"train.clip_norm": 0.0}}
LENGTH = {"train.epochs": 1.0, "eval.every_epochs": 0.25, "train.seed": 0}
OWN = {"head.num_samples": 20, "head.sampler.per_example": True}
METHODS = {
  "importance": ("sampled/unigram", {}),
  "BlackOut": ("blackout/unigram", {"head.sampler.power": 0.5}),
}


def sweep(add):
  for how, clipping in CLIPPED.items():
    for name, (head, fields) in METHODS.items():
      for lr in RATES:
        overrides = {"train.lr": lr, **LENGTH, **OWN, **fields, **clipping}
        add(f"configs/ptb.py:{head}", overrides, name=f"{name}, rate {lr:g}{how}")


def metrics():
  return ["valid_ppl", "test_ppl", "steps"]
