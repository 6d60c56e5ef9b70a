"""Columns of the results that `run.py` writes; this is no sweep."""


def metrics():
  return ["seconds", "total_seconds", "test_ppl"]
