"""No training runs: `largevocab.tools.sampler_report` writes results;
this says what to show."""


def metrics():
  return ["tv", "chi2", "ess_share", "relvar", "ratio"]
