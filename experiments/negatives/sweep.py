"""No training runs: `scripts/negatives_report.py` writes results.jsonl; this says what
to show."""


def metrics():
  return ["classes", "rank", "mass", "top10"]
