"""Columns of the results that `run.py` writes; no training runs."""


def metrics():
  return ["checks", "none", "one", "several", "most", "small", "inverse_error"]
