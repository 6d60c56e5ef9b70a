"""Next item: proposal distributions compared on two sets of purchases and clicks."""

import pathlib
import runpy

EXPERIMENTS = pathlib.Path(__file__).parents[1]
KERNEL = runpy.run_path(str(EXPERIMENTS / "kernel_bias" / "sweep.py"))
STEPS = 800
SETS = ("diginetica", "video_games")
SAMPLERS = [
  *("uniform", "unigram", "quadratic", "quartic", "softmax"),
  *("quadratic_prior", "block"),
]
NUM_SAMPLES = (20, 160)

LENGTH = {"train.max_steps": STEPS, "eval.every_epochs": 0}


def sweep(add):
  for data in SETS:
    config = f"configs/next_item.py:{{}},data={data}"
    add(config.format("full"), LENGTH, name=f"{data}: full softmax")
    absolute = {"head.absolute": True, **LENGTH}
    add(config.format("full"), absolute, name=f"{data}: full absolute softmax")
    shared = {"head.num_samples": 512, **LENGTH}
    add(config.format("sampled/pps"), shared, name=f"{data}: pps, shared, m=512")
    for m in NUM_SAMPLES:
      for sampler in SAMPLERS:
        overrides = {"head.num_samples": m, **LENGTH, **KERNEL["own_draws"](sampler)}
        name = f"{data}: {sampler}, m={m}"
        add(config.format(f"sampled/{sampler}"), overrides, name=name)


def metrics():
  return ["test_nll", "test_recall@20", "test_mrr@20", "train_seconds"]


def comparison():
  return {"to": "full softmax", "metric": "test_nll"}
