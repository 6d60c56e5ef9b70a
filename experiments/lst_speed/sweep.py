"""No training runs: `benchmarks.bench` writes results;
this says what to show."""


def metrics():
  return ["ratio", "predicted_ratio", "at_least", "at_most", "above_ms", "below_ms"]


def paper():
  # Vincent et al. 2015, table 1: on a CPU factored, and on a GPU hierarchical, over
  # unfactorised on the CPU.
  return {
    "output layer, naive / factored, V=793,471": {"ratio": 763.3},
    "whole model, naive / factored, V=793,471": {"ratio": 501},
  }
