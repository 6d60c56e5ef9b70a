"""No training runs: `scripts/relvar_report.py` writes results.jsonl; this says what to
show."""


def metrics():
  return ["classes", "relvar", "relvar_median", "log_z_bias"]
