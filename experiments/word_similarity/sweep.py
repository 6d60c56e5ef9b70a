"""No training runs: `largevocab.tools.similarity_report` writes results; this says what
to show."""


def metrics():
  rho = [f"rho{end}" for end in ("", "_low", "_high")]
  return [*rho, *(name.replace("rho", "difference") for name in rho), "pairs"]
