"""Columns of the results of `benchmarks.compile_report`; no training runs."""


def metrics():
  return [
    "sent_mb",
    "formula_mb",
    "all-gather_mb",
    "reduce-scatter_mb",
    "all-reduce_mb",
    "collective-permute_mb",
    "arguments_mb",
    "aliased_mb",
    "temporary_mb",
    "copies",
  ]
