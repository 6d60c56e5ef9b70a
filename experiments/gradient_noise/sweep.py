"""Columns of the results of `largevocab.tools.gradient_report`; no training runs."""


def metrics():
  return [
    *("noise_rows", "bias_rows", "sign_rows"),
    *("noise_network", "bias_network", "sign_network"),
  ]
