"""No training runs: `benchmarks.bench` writes results;
this says what to show."""


def metrics():
  return ["ratio", "cpu_ratio", "at_least", "above_ms", "below_ms"]
