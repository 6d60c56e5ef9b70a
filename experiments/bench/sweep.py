"""No training runs: `benchmarks.bench` writes results;
this says what to show."""


def metrics():
  return ["ratio", "at_least", "at_most", "memory_ratio", "break_even"]
