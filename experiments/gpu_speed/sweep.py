"""No training runs: `benchmarks.bench` writes results;
this says what to show."""


def metrics():
  return ["ratio", "median_error", "within_a_quarter", "above_ms", "below_ms"]
