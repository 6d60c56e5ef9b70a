"""PTB: how proposal distribution and number m of negatives bias a sampled softmax.

After Blanc and Rendle 2018, figures 2 to 4.
"""

STEPS = 600
FRACTION = 0.065  # of an epoch, between evaluations
STEPS_PER_EPOCH = 2323  # 929,589 tokens, 20 * 20 in a step

SAMPLERS = [
  *("uniform", "unigram", "bigram", "quadratic", "quartic", "softmax"),
  *("quadratic_prior", "block"),
]
NUM_SAMPLES = (10, 20, 40, 80, 160, 320)
SHARED = 512

LENGTH = {"train.max_steps": STEPS, "eval.every_epochs": FRACTION}


def sweep(add):
  add("configs/ptb.py:full", LENGTH, name="full softmax")
  absolute = {"head.absolute": True, **LENGTH}
  add("configs/ptb.py:full", absolute, name="full absolute softmax")
  shared = {"head.num_samples": SHARED, **LENGTH}
  add("configs/ptb.py:sampled/pps", shared, name=f"pps, shared, m={SHARED}")
  for m in NUM_SAMPLES:
    for sampler in SAMPLERS:
      add_sampled(add, sampler, m)
  add_sampled(add, "quadratic_prior", 32)
  for seed in (1, 2):
    add("configs/ptb.py:full", {**LENGTH, "train.seed": seed}, name="full softmax")
    add_sampled(add, "quadratic_prior", 32, {"train.seed": seed})


def own_draws(sampler):
  """Overrides that give each example its own draws if the sampler shares by default."""
  shares = sampler in ("uniform", "unigram")
  return {"head.sampler.per_example": True} if shares else {}


def add_sampled(add, sampler, m, more=None):
  overrides = {"head.num_samples": m, **LENGTH, **(more or {}), **own_draws(sampler)}
  add(f"configs/ptb.py:sampled/{sampler}", overrides, name=f"{sampler}, m={m}")


def comparison():
  return {"to": "full softmax", "metric": "test_ppl"}


def metrics():
  return ["valid_ppl", "test_ppl", "train_seconds"]


def figures():
  full = ["full softmax", "full absolute softmax"]
  over_epochs = {"x": "epoch", "y": "valid_ppl", "steps_per_epoch": STEPS_PER_EPOCH}
  over_epochs["y_max"] = 1000
  return [
    {
      **{"file": "samples", "x": "head.num_samples", "y": "test_ppl", "log": "xy"},
      "y_max": 600,
      **{"where": {"method": SAMPLERS}, "reference": [*full, "pps"]},
    },
    {
      **{"file": "epochs", **over_epochs, "line": "head.num_samples", "log": "y"},
      **{"panel": "method", "where": {"method": SAMPLERS}, "reference": full},
    },
    {
      **{"file": "epochs_m80", **over_epochs, "log": "y"},
      **{"where": {"head.num_samples": 80}, "reference": full},
    },
  ]
