"""No sweep: `run.py` writes results.jsonl; this says what to show."""


def metrics():
  return ["seconds", "total_seconds", "test_ppl"]
