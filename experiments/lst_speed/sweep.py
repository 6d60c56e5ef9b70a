"""Columns and figures of the results of `benchmarks.bench`; no training runs."""

OUTPUT_LAYER = "output layer, naive / "


def metrics():
  return ["ratio", "predicted_ratio", "at_least", "at_most", "above_ms", "below_ms"]


def paper():
  # Vincent et al. 2015, table 1: speedups over the unfactorised model on a CPU, of the
  # factored model on a CPU and the hierarchical one on a GPU.
  return {
    "output layer, naive / factored, V=793,471": {"ratio": 763.3},
    "whole model, naive / factored, V=793,471": {"ratio": 501},
  }


def derived(record, _):
  """The step that a row compares with the naive step, for the output layer alone."""
  _, is_output_layer, rest = record["name"].partition(OUTPUT_LAYER)
  return {"step": rest.partition(",")[0]} if is_output_layer else {}


def figures():
  """Figure 3, left, of Vincent et al. 2015: measured and predicted speedup over V."""
  over_V = {"x": "V", "line": "step", "log": "xy"}
  return [
    {"file": "speedup", "y": "ratio", **over_V},
    {"file": "predicted_speedup", "y": "predicted_ratio", **over_V},
  ]
