"""Columns of the results of `largevocab.tools.similarity_report`; no training runs."""


def metrics():
  rho = [f"rho{end}" for end in ("", "_low", "_high")]
  return [*rho, *(name.replace("rho", "difference") for name in rho), "pairs"]
