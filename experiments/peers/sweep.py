"""No training runs: `scripts/bench.py` writes results.jsonl; this says what to show."""


def metrics():
  return ["ratio", "cpu_ratio", "at_least", "above_ms", "below_ms"]
