"""Columns of the results of `largevocab.tools.negatives_report`; no training runs."""


def metrics():
  return ["classes", "rank", "mass", "top10"]
