"""No training runs: `largevocab.tools.product_report` writes results;
this says what to show."""


def metrics():
  return ["k", "B", "d", "ms", "predicted_ms"]


def figures():
  """Figure 1 of Grave et al. 2017: flat at first, then in proportion to k."""
  over_k = {"x": "k", "line": "B", "panel": "device", "log": "xy"}
  return [
    {"file": "measured", "y": "ms", **over_k},
    {"file": "predicted", "y": "predicted_ms", **over_k},
  ]
