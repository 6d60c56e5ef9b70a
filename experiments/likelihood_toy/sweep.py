"""Columns of the results that `run.py` writes; no training runs."""


def metrics():
  return ["log_likelihood", "bias_exact", "bias_true"]
