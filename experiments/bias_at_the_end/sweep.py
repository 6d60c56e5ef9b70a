"""PTB: the bias of the sampled softmax, which is where training ends.

After Blanc and Rendle 2018, figure 2, with the small model of Zaremba et al. 2014.
"""

STEPS_PER_EPOCH = 2323  # 929,589 tokens, 20 * 20 a step
# Half the schedule of Zaremba et al., which ends at a like share of its first rate.
LENGTH = {
  **{"train.epochs": 7, "train.hold_epochs": 3.0, "train.decay": 0.25},
  "eval.every_epochs": 0.5,
}
SEEDS = (0, 1, 2)
FULL, ABSOLUTE = "full softmax", "full absolute softmax"
# Draws of samplers whose proposal distribution depends on the model: each word has its
# own. With three seeds, and with the first.
ADAPTIVE = {"softmax": (10,), "quadratic": (10, 40)}
ONE_SEED = {"bigram": (10,), "quartic": (10,), "quadratic_prior": (10,), "block": (10,)}
# Draws from one proposal distribution for all words are shared by the batch, which has
# the bias of draws of each word's own.
COMMON = {"uniform": (100, 1000)}
ONE_SEED_COMMON = {"uniform": (10,), "unigram": (10, 100)}
SAMPLERS = [*ADAPTIVE, *COMMON, "unigram", *ONE_SEED]


def sweep(add):
  for seed in SEEDS:
    same = {**LENGTH, "train.seed": seed}
    add("configs/ptb.py:full", same, name=FULL)
    every = [ADAPTIVE, COMMON, *([ONE_SEED, ONE_SEED_COMMON] if seed == 0 else [])]
    for sampler, numbers in [item for group in every for item in group.items()]:
      for m in numbers:
        overrides = {"head.num_samples": m, **same}
        add(f"configs/ptb.py:sampled/{sampler}", overrides, name=f"{sampler}, m={m}")
  overrides = {"head.absolute": True, **LENGTH, "train.seed": SEEDS[0]}
  add("configs/ptb.py:full", overrides, name=ABSOLUTE)


def search():
  # The config's rate was made for the exact softmax; a noisy estimate may need less.
  return {"steps": 700, "grid": {"train.lr": [1.25, 5.0, 20.0, 40.0]}}


def comparison():
  return {"to": FULL, "metric": "test_ppl"}


def metrics():
  return ["valid_ppl", "test_ppl", "steps"]


def figures():
  return [
    {
      **{"file": "samples", "x": "head.num_samples", "y": "test_ppl", "log": "xy"},
      **{"where": {"method": SAMPLERS}, "reference": [FULL, ABSOLUTE]},
    },
    {
      **{"file": "epochs", "x": "epoch", "y": "valid_ppl", "log": "y"},
      **{"steps_per_epoch": STEPS_PER_EPOCH, "line": "head.num_samples"},
      **{"panel": "method", "where": {"method": SAMPLERS}, "reference": [FULL]},
    },
  ]
