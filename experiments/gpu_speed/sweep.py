"""Columns of the results of `benchmarks.bench`; no training runs."""


def metrics():
  return ["ratio", "memory_ratio", "above_ms", "below_ms", "turns"]
