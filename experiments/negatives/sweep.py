"""No training runs: `largevocab.tools.negatives_report` writes results;
this says what to show."""


def metrics():
  return ["classes", "rank", "mass", "top10"]
