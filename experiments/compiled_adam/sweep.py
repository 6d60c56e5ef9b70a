"""No training runs: `benchmarks.compile_report` writes results;
this says what to show."""


def metrics():
  return ["temporary_mb", "accessed_mb", "aliased_mb", "copies"]
