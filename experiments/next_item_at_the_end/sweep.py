"""Next item, Diginetica, trained to the end: laws at 20 draws, and equal time."""

EPOCHS = 10
STEPS_PER_EPOCH = 2810  # 719,470 examples, 256 a step
SAMPLERS = ("softmax", "quadratic", "block", "unigram", "uniform")
SHARED_UNLESS_TOLD = ("uniform", "unigram")
LENGTH = {"train.epochs": EPOCHS, "eval.every_epochs": 0.5, "train.seed": 0}
CONFIG = "configs/next_item.py:{}"


def sweep(add):
  add(CONFIG.format("full"), LENGTH, name="full softmax")
  shared = {"head.num_samples": 512, **LENGTH}
  add(CONFIG.format("sampled/pps"), shared, name="pps, shared, m=512")
  for sampler in SAMPLERS:
    overrides = {"head.num_samples": 20, **LENGTH}
    if sampler in SHARED_UNLESS_TOLD:
      overrides["head.sampler.per_example"] = True
    add(CONFIG.format(f"sampled/{sampler}"), overrides, name=f"{sampler}, m=20")
  longer = {**shared, "train.epochs": 4 * EPOCHS, "train.hold_epochs": 4.0}
  longer["train.decay"] = 0.5 ** (1 / 4)
  add(CONFIG.format("sampled/pps"), longer, name="pps, shared, m=512, 4 times as long")
  absolute = {"head.absolute": True, **LENGTH}
  add(CONFIG.format("full"), absolute, name="full absolute softmax")


def search():
  return {"steps": 1000, "grid": {"train.lr": [0.05, 0.1, 0.2]}}


def comparison():
  return {"to": "full softmax", "metric": "test_nll"}


def metrics():
  return ["test_nll", "test_recall@20", "test_mrr@20", "steps"]
