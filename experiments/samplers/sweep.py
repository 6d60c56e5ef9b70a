"""No training runs: `scripts/sampler_report.py` writes results.jsonl; this says what to
show."""


def metrics():
  return ["tv", "chi2", "ess_share", "relvar", "ratio"]
