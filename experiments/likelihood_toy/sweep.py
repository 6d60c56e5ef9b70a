"""No training runs: `run.py` beside this file writes results.jsonl; this says what to
show."""


def metrics():
  return ["log_likelihood", "bias_exact", "bias_true"]
