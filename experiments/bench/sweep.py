"""Columns of the results of `benchmarks.bench`; no training runs."""


def metrics():
  return ["ratio", "at_least", "at_most", "memory_ratio", "break_even"]
