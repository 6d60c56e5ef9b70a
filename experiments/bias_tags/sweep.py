"""Tags: the bias of the sampled softmax by number of negatives when training ends.

After Blanc and Rendle 2018, figure 2, on other data.
"""

CONFIG = "configs/xmlc.py:{},data=citeulike_t"
SEEDS = (0, 1, 2)
# Numbers of negatives; each example has its own. Proposal distributions that follow the
# model are run with few negatives, and fixed distributions also with many.
FEW, MANY = (2, 8, 32, 128), (8, 32, 128, 512, 2048)
NUM_SAMPLES = {
  **{"softmax": FEW, "quartic": FEW, "quadratic": FEW},
  **{"unigram": MANY, "uniform": MANY},
}
FULL, ABSOLUTE = "full softmax", "full absolute softmax"
LENGTH = {"train.epochs": 5.0, "eval.every_epochs": 1.0, "log.monitor_every_steps": 0}


def sweep(add):
  for seed in SEEDS:
    same = {**LENGTH, "train.seed": seed}
    add(CONFIG.format("full"), same, name=FULL)
    add(CONFIG.format("full"), {"head.absolute": True, **same}, name=ABSOLUTE)
    for sampler, numbers in NUM_SAMPLES.items():
      own = {"head.sampler.per_example": True} if numbers == MANY else {}
      for m in numbers:
        overrides = {"head.num_samples": m, **own, **same}
        add(CONFIG.format(f"sampled/{sampler}"), overrides, name=f"{sampler}, m={m}")


def search():
  # Trials have the whole length. A rate of 0.05 is not tried, as it is behind in all
  # searches of tags_at_the_end by this loss.
  grid = {"train.lr": [0.1, 0.2, 0.4]}
  return {"steps": 385, "grid": grid, "metric": "valid_nll"}


def comparison():
  return {"to": FULL, "metric": "test_nll"}


def metrics():
  return ["valid_nll", "test_nll", "test_p@1", "left_after_1_epoch", "steps"]


def derived(record, _):
  """How much the loss on validation data falls after the first epoch.

  The smaller the fall, the nearer the method is to its own end after that epoch.
  """
  nll = [value for _, value, _ in record.get("curve", [])]
  return {"left_after_1_epoch": nll[0] - nll[-1]} if nll else {}


def figures():
  return [
    {
      **{"file": file, "x": "head.num_samples", "y": metric, "log": "x", "band": True},
      **{"where": {"method": list(NUM_SAMPLES)}, "reference": [FULL, ABSOLUTE]},
      **limits,
    }
    for file, metric, limits in (
      ("samples", "test_nll", {"y_max": 8.6}),
      ("samples_p1", "test_p@1", {"y_min": 0.2}),
    )
  ]
