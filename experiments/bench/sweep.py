"""No training runs: `scripts/bench.py` writes results.jsonl; this says what to show."""


def metrics():
  return ["ratio", "at_least", "at_most", "memory_ratio", "break_even"]
