"""No training runs: `benchmarks.bench` writes results;
this says what to show."""

OUTPUT_LAYER = "output layer, naive / "


def metrics():
  return ["ratio", "predicted_ratio", "at_least", "at_most", "above_ms", "below_ms"]


def paper():
  # Vincent et al. 2015, table 1: on a CPU factored, and on a GPU hierarchical, over
  # unfactorised on the CPU.
  return {
    "output layer, naive / factored, V=793,471": {"ratio": 763.3},
    "whole model, naive / factored, V=793,471": {"ratio": 501},
  }


def derived(record, _):
  """Which step a row compares with the naive step, of the output layer alone."""
  _, is_output_layer, rest = record["name"].partition(OUTPUT_LAYER)
  return {"step": rest.partition(",")[0]} if is_output_layer else {}


def figures():
  """Figure 3, left, of Vincent et al. 2015: speedup over V, and as predicted."""
  over_V = {"x": "V", "line": "step", "log": "xy"}
  return [
    {"file": "speedup", "y": "ratio", **over_V},
    {"file": "predicted_speedup", "y": "predicted_ratio", **over_V},
  ]
