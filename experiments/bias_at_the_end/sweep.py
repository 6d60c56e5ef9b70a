"""PTB: the bias of the sampled softmax, which is where training ends.

After Blanc and Rendle 2018, figure 2, with the small model of Zaremba et al. 2014.
"""

STEPS_PER_EPOCH = 2323  # 929,589 tokens, 20 * 20 a step
# Half the schedule of Zaremba et al., which ends at a like share of its first rate.
LENGTH = {
  **{"train.epochs": 7, "train.hold_epochs": 3.0, "train.decay": 0.25},
  "eval.every_epochs": 0.5,
}
SAMPLERS = [
  *("softmax", "quadratic", "uniform", "unigram", "bigram", "quartic"),
  *("quadratic_prior", "block"),
]
SHARED_UNLESS_TOLD = ("uniform", "unigram")
NUM_SAMPLES = (10, 40)
# Of these the paper's claim is made; the others are run with the first seed.
SEVERAL_SEEDS = ("softmax", "quadratic", "uniform")
SEEDS = (0, 1, 2)
FULL, ABSOLUTE = "full softmax", "full absolute softmax"


def sweep(add):
  for seed in SEEDS:
    same = {**LENGTH, "train.seed": seed}
    if seed == SEEDS[0]:
      add("configs/ptb.py:full", {"head.absolute": True, **same}, name=ABSOLUTE)
    add("configs/ptb.py:full", same, name=FULL)
    for m in NUM_SAMPLES:
      for sampler in SAMPLERS if seed == SEEDS[0] else SEVERAL_SEEDS:
        overrides = {"head.num_samples": m, **same}
        if sampler in SHARED_UNLESS_TOLD:
          overrides["head.sampler.per_example"] = True
        add(f"configs/ptb.py:sampled/{sampler}", overrides, name=f"{sampler}, m={m}")


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
