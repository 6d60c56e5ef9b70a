"""No training runs: `run.py` writes results; this says what to show."""


def metrics():
  ratios = ("ratio_to_one", "typical_ratio")
  return ["relvar", *(name + end for name in ratios for end in ("", "_low", "_high"))]
