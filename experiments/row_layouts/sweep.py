"""No training runs: `benchmarks.row_layouts` writes results;
this says what to show."""


def metrics():
  return ["aliased_mb", "temporary_mb", "accessed_mb", "copies"]
