"""Columns of the results of `largevocab.tools.sampler_report`; no training runs."""


def metrics():
  return ["tv", "chi2", "ess_share", "relvar", "ratio"]
