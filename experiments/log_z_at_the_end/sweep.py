"""No training runs: `largevocab.tools.relvar_report` writes results; this says what to
show."""


def metrics():
  return ["relvar", "relvar_median", "log_z_bias"]
