"""No training runs: `run.py` beside this file writes results.jsonl; this says what to
show."""


def metrics():
  return ["checks", "none", "one", "several", "most", "small", "inverse_error"]
