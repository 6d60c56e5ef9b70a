"""Columns of the results that `run.py` writes; no training runs."""


def metrics():
  ratios = ("ratio_to_one", "typical_ratio")
  return ["relvar", *(name + end for name in ratios for end in ("", "_low", "_high"))]
