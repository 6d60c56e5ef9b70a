"""Columns of the results of `benchmarks.bench`, and the paper's; no training runs."""


def metrics():
  errors = ["median_error", "within_a_quarter"]
  return ["ratio", "at_least", "at_most", *errors, "above_ms", "below_ms"]


def paper():
  # Grave et al. 2017, table 1: minutes on a GPU, over 30 of the adaptive softmax.
  minutes = {
    **{"full softmax": 83, "sampling": 41, "HSM (freq)": 34, "HSM (sim)": 41},
    **{"D-softmax": 53, "D-softmax [*]": 54},
  }
  step = "training step, {} / adaptive softmax, V=67,852"
  return {
    step.format(name): {"ratio": round(time / 30, 2)} for name, time in minutes.items()
  }
