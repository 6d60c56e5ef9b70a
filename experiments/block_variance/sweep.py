"""No training runs: `run.py` writes results; this says what to show."""


def metrics():
  return ["relvar", "ratio_to_one", "ratio_low", "ratio_high"]
