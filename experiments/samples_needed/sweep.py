"""Columns of the results of `largevocab.tools.samples_report`; no training runs."""


def metrics():
  return [
    *("gap", "negatives", "negatives_low", "negatives_high", "at_most", "more_than"),
    *("times_fewer", "times_fewer_low", "times_fewer_high", "times_fewer_at_least"),
  ]
