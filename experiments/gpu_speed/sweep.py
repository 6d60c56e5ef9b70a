"""No training runs: `benchmarks.bench` writes results;
this says what to show."""


def metrics():
  return ["ratio", "memory_ratio", "above_ms", "below_ms", "turns"]
