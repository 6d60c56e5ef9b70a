"""Columns of the results of `benchmarks.row_layouts`; no training runs."""


def metrics():
  return ["aliased_mb", "temporary_mb", "accessed_mb", "copies"]
