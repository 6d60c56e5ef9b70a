"""Columns and figures of `largevocab.tools.product_report`; no training runs."""


def metrics():
  return ["k", "B", "d", "ms", "predicted_ms"]


def figures():
  """Figure 1 of Grave et al. 2017: time is flat at first, then proportional to k."""
  over_k = {"x": "k", "line": "B", "panel": "device", "log": "xy"}
  return [
    {"file": "measured", "y": "ms", **over_k},
    {"file": "predicted", "y": "predicted_ms", **over_k},
  ]
