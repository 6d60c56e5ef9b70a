"""Creates matplotlib figures and saves them to files."""

import pathlib
from typing import TYPE_CHECKING

from largevocab import atomic
from largevocab.errors import UserError

if TYPE_CHECKING:
  from matplotlib.figure import Figure

# Makes SVG files reproducible: their ids are hashed with this salt instead of random.
SALT = {"svg.hashsalt": "largevocab"}
DPI = 150


def new_figure(width: float, height: float) -> "Figure":
  """Makes an empty figure of this size in inches.

  Raises:
    UserError: matplotlib is missing.
  """
  try:
    from matplotlib.figure import Figure
  except ImportError as error:
    raise UserError(
      f"drawing needs matplotlib ({error}): pip install 'largevocab[plot]'"
    ) from error
  return Figure(figsize=(width, height), layout="constrained")


def save(figure: "Figure", directory: pathlib.Path, name: str) -> list[pathlib.Path]:
  """Writes NAME.png and NAME.svg; the same figure gives the same bytes."""
  from matplotlib import rc_context

  directory.mkdir(parents=True, exist_ok=True)
  png, svg = directory / f"{name}.png", directory / f"{name}.svg"
  with rc_context(SALT):
    with atomic.replacing(png) as file:
      figure.savefig(file, format="png", dpi=DPI, metadata={"Software": None})
    with atomic.replacing(svg) as file:
      figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
  return [png, svg]
