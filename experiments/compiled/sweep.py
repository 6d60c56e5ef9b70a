"""Columns of the results of `benchmarks.compile_report`; no training runs."""


def metrics():
  return [
    "temporary_mb",
    "accessed_mb",
    "floor_mb",
    "aliased_mb",
    "copies",
  ]
