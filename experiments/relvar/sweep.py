"""Columns of the results of `largevocab.tools.relvar_report`; no training runs."""


def metrics():
  return ["classes", "relvar", "relvar_median", "log_z_bias"]
