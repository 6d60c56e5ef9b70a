"""Columns of the results of `benchmarks.bench`; no training runs."""


def metrics():
  return ["ratio", "cpu_ratio", "at_least", "above_ms", "below_ms"]
