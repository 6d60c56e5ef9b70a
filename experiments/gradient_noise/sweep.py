"""No training runs: `largevocab.tools.gradient_report` writes results;
this says what to show."""


def metrics():
  return [
    *("noise_rows", "bias_rows", "sign_rows"),
    *("noise_network", "bias_network", "sign_network"),
  ]
