"""No training runs: `scripts/bench.py` writes results.jsonl; this says what to show."""


def metrics():
  return ["ratio", "median_error", "within_a_quarter", "above_ms", "below_ms"]
