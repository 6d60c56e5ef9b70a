"""Draws the figures of an experiment, as described by its sweep file.

  python scripts/plot.py experiments/kernel_bias/sweep.py

Reads results.jsonl beside the sweep file and writes figures/FILE.png and .svg there,
one pair for each entry of the sweep's `figures()` (see `sweeps/sweepfile.py`). Runs
without results are left out, so that an unfinished sweep can be plotted. Seeds that
diverged are left out, too. The legend then says "2 of 3 seeds", and methods all of
whose seeds diverged are named on standard error.
"""

import math
import pathlib
import statistics
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

from largevocab.errors import UserError, nearest
from largevocab.tools import entry
from largevocab.tools.plots import drawing
from largevocab.tools.plots.curves import (
  NAMED,
  Band,
  band,
  curve,
  deviation,
  is_lost,
  mean_point,
  shown,
)
from largevocab.tools.sweeps import records, sweepfile
from largevocab.tools.sweeps.records import Record
from largevocab.tools.sweeps.sweep_run import data_of
from largevocab.tools.sweeps.sweepfile import Figure
from largevocab.tools.tables import axes, seeds

LABELS = {
  "epoch": "epochs",
  "seconds": "seconds of training",
  "train_seconds": "seconds of training",
  "idle_seconds": "seconds of an idle core",
  "idle_time": "seconds of an idle core",
  "operations": "operations of network and head",
  "seconds_for_steps": "seconds for the same number of steps",
  "ppl_by_steps": "validation perplexity",
  "p@1_by_steps": "precision of the first, validation",
  "valid_nll": "validation loss, nats",
  "valid_ppl": "validation perplexity",
  "test_ppl": "test perplexity",
  "head.num_samples": "negatives m",
  "percent": "negatives, per cent of the classes",
  "of_full": "P@1, part of the full softmax's",
  "curve_p@1": "P@1, validation",
  "curve_SimLex-999_input": "SimLex-999, rows of inputs",
  "curve_SimLex-999_output": "SimLex-999, rows of classes",
  "curve_wordsim353_combined_input": "WordSim-353, rows of inputs",
  "curve_wordsim353_combined_output": "WordSim-353, rows of classes",
}
PANEL_INCHES = 3.2
FRONT, OTHERS = "tab:blue", "0.45"
# Places for a label beside its point: the offset in typographic points, and alignment.
PLACES = [
  *((3, 3, "left", "bottom"), (-3, 3, "right", "bottom"), (3, -3, "left", "top")),
  *((-3, -3, "right", "top"), (5, 0, "left", "center"), (-5, 0, "right", "center")),
  *((0, 12, "center", "bottom"), (0, -12, "center", "top")),
  # Further away than NEAR, and therefore with a line to the point.
  *((14, 14, "left", "bottom"), (14, -14, "left", "top")),
  *((-14, 14, "right", "bottom"), (-14, -14, "right", "top")),
  *((0, 26, "center", "bottom"), (0, -26, "center", "top")),
  *((28, 26, "left", "bottom"), (-28, 26, "right", "bottom")),
  *((0, 48, "center", "bottom"), (28, 48, "left", "bottom")),
]
NEAR = 12
MAX_COLUMNS = 4
MAX_TICKS = 10
DISTINCT = 10  # number of colours in matplotlib's tab10


class Line(NamedTuple):
  """A line of a panel.

  Attributes:
    label: the value that its runs have in common.
    points: (x, y), in order of x; a level ignores x.
    is_level: whether it is a horizontal line at one value of y.
    is_reference: whether it is drawn dashed.
    band: (x, low, high), shown as shading around a curve or as bars at points.
    notes: the number of seeds in its means, if not all seeds are included.
  """

  label: Any
  points: list[tuple[float, float]]
  is_level: bool = False
  is_reference: bool = False
  band: Band = ()
  notes: tuple[str, ...] = ()


def value(row: Record, key: str) -> Any:
  """The value of a figure's key in a record; None if it has none.

  >>> row = {"name": "ptb: unigram, m=80", "overrides": {"head.num_samples": 80}}
  >>> value(row, "method"), value(row, "data"), value(row, "head.num_samples")
  ('unigram', 'ptb', 80)
  >>> value(row, "test_ppl")
  """
  if key in NAMED:
    data = data_of(row["name"])
    rest = row["name"].removeprefix(f"{data}: ")
    method = rest if row.get("baseline") else rest.partition(",")[0]
    return data if key == "data" else method
  return row["overrides"].get(key, row.get(key))


def chosen(row: Record, where: dict[str, Any]) -> bool:
  """Whether a record has, for every key, the value or one of the values.

  >>> row = {"name": "unigram, m=80", "overrides": {"head.num_samples": 80}}
  >>> chosen(row, {"method": ["uniform", "unigram"]}), chosen(row, {"method": "pps"})
  (True, False)
  """
  as_list = lambda wanted: wanted if isinstance(wanted, list) else [wanted]
  return all(value(row, key) in as_list(wanted) for key, wanted in where.items())


def point(
  members: list[Record], figure: Figure
) -> tuple[list[tuple[float, float]], Band]:
  """Mean of runs that differ only in the seed, with its bar.

  Empty if a run has no x or y, or if the mean cannot be shown.
  """
  pairs = [(value(row, figure.x), value(row, figure.y)) for row in members]
  if any(None in pair for pair in pairs):
    return [], ()
  for row, pair in zip(members, pairs, strict=True):
    for key, x in zip((figure.x, figure.y), pair, strict=True):
      check_number(row, key, x, figure)
  mean = mean_point(pairs)
  if not all(map(math.isfinite, mean)):
    return [], ()
  return [mean], (deviation(pairs),) if figure.band and len(pairs) > 1 else ()


def check_number(row: Record, key: str, x: Any, figure: Figure) -> None:
  """Raises a UserError that names the run if x is not a number."""
  if not records.is_number(x):
    raise UserError(
      f"figure {figure.file}: run {row.get('run')!r}: {key} is {x!r:.80}, not a "
      "number; choose others by `where`, or correct its line"
    )


def panels_of(rows: list[Record], figure: Figure) -> dict[Any, list[Line]]:
  """The lines of each panel, in the order of the results; references come last.

  Raises:
    UserError: there is nothing to draw, or two curves of a panel have the same label.
  """
  panels: dict[Any, dict[Any, list[tuple[float, float]]]] = {}
  bands: dict[tuple[Any, Any], Band] = {}
  notes: dict[tuple[Any, Any], tuple[str, ...]] = {}
  for name, every in seeds.groups(r for r in rows if chosen(r, figure.where)).items():
    first, members = every[0], shown(every, figure)
    if value(first, "method") in figure.reference:
      continue
    if not members:
      tell_lost(name, every, figure)
      continue
    panel = named(value(first, figure.panel)) if figure.panel else ""
    label = named(value(first, figure.line))
    if figure.is_curve:
      here, around = curve(members, figure), band(members, figure)
    else:
      here, around = point(members, figure)
    points = [p for p in here if can_be_shown(p, figure)]
    if label is None or not points:
      if label is not None and not here:
        tell_lost(name, every, figure)
      continue
    lines = panels.setdefault(panel, {})
    if figure.is_curve and label in lines:
      raise UserError(
        f"figure {figure.file}: {figure.line} = {label!r} has curves of several "
        "settings; choose one by `where`, or tell them apart by `line` or `panel`"
      )
    lines.setdefault(label, []).extend(points)
    bands[panel, label] = bands.get((panel, label), ()) + around
    notes[panel, label] = notes.get((panel, label), ()) + of_seeds(members, every)
  if not panels:
    raise UserError(
      f"figure {figure.file}: no result has {figure.x}, {figure.y} and {figure.line}, "
      f"finite and within the axes, where {figure.where or '{}'}; run the sweep, or "
      "correct figures()"
    )
  dashed = references(rows, figure)
  return {
    panel: [
      *(
        Line(label, sorted(points), band=bands[panel, label], notes=notes[panel, label])
        for label, points in lines.items()
      ),
      *dashed,
    ]
    for panel, lines in panels.items()
  }


def of_seeds(members: list[Record], every: list[Record]) -> tuple[str, ...]:
  """How many of the runs of a method are shown, if not all are.

  >>> of_seeds([{}], [{}, {}]), of_seeds([{}], [{}])
  (('1 of 2 seeds',), ())
  """
  shown, num = len(members), len(every)
  return (f"{shown} of {num} seeds",) if shown < num else ()


def tell_lost(name: str, members: list[Record], figure: Figure) -> None:
  """Names a method on standard error if it is left out because it diverged."""
  if any(is_lost(row, figure) for row in members):
    print(
      f"figure {figure.file}: left out, diverged or not finite: {name}", file=sys.stderr
    )


def named(label: Any) -> Any:
  """A hashable label, where lists and dicts become strings.

  >>> named([2000, 10000]), named(80)
  ('[2000, 10000]', 80)
  """
  return str(label) if isinstance(label, list | dict) else label


def can_be_shown(point: tuple[float, float], figure: Figure) -> bool:
  """Whether a point is within the axes; logarithmic axes need positive values."""
  x, y = point
  is_positive = ("x" not in figure.log or x > 0) and ("y" not in figure.log or y > 0)
  return is_positive and (not figure.y_min or y >= figure.y_min)


def references(rows: list[Record], figure: Figure) -> list[Line]:
  """Lines that are drawn in every panel: curves, or levels of y.

  References without results, as in a sweep that has not ended, are named on standard
  error.
  """
  methods = {value(row, "method") for row in rows}
  for name in figure.reference:
    if name not in methods:
      what = f"no result of the reference {name!r}{nearest(str(name), methods)}"
      print(f"figure {figure.file}: {what}", file=sys.stderr)
  lines = []
  wanted = (r for r in rows if value(r, "method") in figure.reference)
  for label, every in seeds.groups(wanted).items():
    members = shown(every, figure)
    if not members:
      tell_lost(label, every, figure)
      continue
    if figure.is_curve:
      points = curve(members, figure)
    else:
      levels = [value(row, figure.y) for row in members]
      for row, level in zip(members, levels, strict=True):
        if level is not None:
          check_number(row, figure.y, level, figure)
      points = [] if None in levels else [(0.0, statistics.fmean(levels))]
    if not all(math.isfinite(y) for _, y in points):
      points = []
    if not points:
      tell_lost(label, every, figure)
      continue
    shaded = band(members, figure) if figure.is_curve else ()
    note = of_seeds(members, every)
    lines.append(Line(label, points, not figure.is_curve, True, shaded, note))
  return lines


def colors(labels: list[Any]) -> dict[Any, Any]:
  """A colour for each label: from dark to light for numbers, distinct for names."""
  from matplotlib import colormaps

  last = max(len(labels) - 1, 1)
  if are_numbers(labels):
    shades = [colormaps["viridis"](0.9 * i / last) for i in range(len(labels))]
  elif len(labels) <= DISTINCT:
    shades = [colormaps["tab10"](i) for i in range(len(labels))]
  else:
    shades = [colormaps["turbo"](i / last) for i in range(len(labels))]
  return dict(zip(labels, shades, strict=True))


def draw(rows: list[Record], figure: Figure):
  """Draws a figure with matplotlib.

  Raises:
    UserError: see `panels_of`; or matplotlib is missing.
  """
  panels = panels_of(rows, figure)
  columns = min(len(panels), MAX_COLUMNS)
  rows_of_panels = -(-len(panels) // columns)
  size = PANEL_INCHES if len(panels) > 1 else 1.5 * PANEL_INCHES
  wide = 1.4 if figure.front else 1.0  # labels need space
  canvas = drawing.new_figure(
    wide * columns * size + 1.8, 0.8 * rows_of_panels * size + 0.3
  )
  grid = canvas.subplots(
    rows_of_panels, columns, sharex=True, sharey=True, squeeze=False
  )
  every = [line for lines in panels.values() for line in lines]
  own = in_order(line.label for line in every if not line.is_reference)
  dashed = in_order(line.label for line in every if line.is_reference)
  greys = {label: str(0.7 * i / len(dashed)) for i, label in enumerate(dashed)}
  color_of = {**colors(own), **greys}
  handles, names_of_panels = {}, []
  for ax, (panel, lines) in zip(grid.flat, panels.items(), strict=False):
    for line in lines:
      how = {"color": color_of[line.label], "ls": "--" if line.is_reference else "-"}
      x, y = zip(*line.points, strict=True)
      if line.is_level:
        handles[line.label] = ax.axhline(y[0], **how)
      elif not figure.front:
        marker = "" if figure.is_curve and len(line.points) > 1 else "o"
        (handles[line.label],) = ax.plot(x, y, marker=marker, **how)
      if line.band and figure.is_curve:
        shade = {"color": color_of[line.label], "alpha": 0.2, "lw": 0}
        ax.fill_between(*zip(*line.band, strict=True), **shade)
      elif line.band:
        colour = OTHERS if figure.front else color_of[line.label]
        ax.vlines(*zip(*line.band, strict=True), color=colour, lw=1)
    if figure.front:
      names_of_panels.append(draw_front(ax, lines, figure))
    ax.set_title(str(panel))
    dress(ax, figure, every)
  for ax in grid.flat[len(panels) :]:
    ax.remove()
  canvas.supxlabel(LABELS.get(figure.x, figure.x))
  canvas.supylabel(LABELS.get(figure.y, figure.y))
  if labels := [label for label in (*own, *dashed) if label in handles]:
    canvas.legend(
      [handles[label] for label in labels],
      [titled(label, every) for label in labels],
      loc="outside right upper",
      title=None if figure.front else LABELS.get(figure.line, figure.line),
    )
  if names_of_panels:
    canvas.draw_without_rendering()  # Positions of points are unknown before this.
  for names in names_of_panels:
    spread(names)
  return canvas


def titled(label: Any, lines: Iterable[Line]) -> str:
  """A label with the notes of its lines.

  >>> titled("pps", [Line("pps", [], notes=("2 of 3 seeds",)), Line("full", [])])
  'pps (2 of 3 seeds)'
  """
  notes = in_order(note for line in lines if line.label == label for note in line.notes)
  return f"{label} ({', '.join(notes)})" if notes else str(label)


def front(
  points: Iterable[tuple[float, float]], best: str = "least"
) -> list[tuple[float, float]]:
  """The Pareto front, by x: points with better y than all points of smaller x.

  >>> front([(3, 1), (1, 3), (2, 4), (2, 2)])
  [(1, 3), (2, 2), (3, 1)]
  >>> front([(3, 1), (1, 3), (2, 4), (2, 2)], "most")
  [(1, 3), (2, 4)]
  """
  sign = {"least": 1, "most": -1}[best]
  found: list[tuple[float, float]] = []
  for x, y in sorted(set(points), key=lambda point: (point[0], sign * point[1])):
    if not found or sign * y < sign * found[-1][1]:
      found.append((x, y))
  return found


def draw_front(ax, lines: list[Line], figure: Figure) -> list[Any]:
  """Draws all points, and the front as a step line; returns the labels of points."""
  labelled = [
    (p, titled(line.label, [line]))
    for line in lines
    if not line.is_level
    for p in line.points
  ]
  on_front = front((point for point, _ in labelled), figure.front)
  x, y = zip(*on_front, strict=True)
  ax.step(x, y, where="post", color=FRONT, lw=1, zorder=0)
  names = []
  for point, label in sorted(labelled, key=lambda pair: pair[0] not in on_front):
    color = FRONT if point in on_front else OTHERS
    ax.plot(*point, marker="o", ms=4, color=color)
    style = {"fontsize": 7, "color": color, "annotation_clip": True}
    style |= {"arrowprops": {"arrowstyle": "-", "color": color, "lw": 0.4}}
    text = ax.annotate(label, point, (0, 0), textcoords="offset points", **style)
    names.append(text)
  return names


def spread(names: list[Any]) -> None:
  """Moves each label to the first free place within the panel.

  At a free place, neither the label nor the line to its point covers a point or another
  label. Lines may be crossed. If there is no free place, the label takes the first one.
  """
  import numpy as np
  from matplotlib.text import Text
  from matplotlib.transforms import Bbox

  centres = [name.axes.transData.transform(name.xy) for name in names]
  taken = [Bbox([centre - 3, centre + 3]) for centre in centres]
  for own, name in enumerate(names):
    others = [box for number, box in enumerate(taken) if number != own]

    def put(place, name=name):
      x, y, ha, va = place
      name.set(position=(x, y), ha=ha, va=va)
      name.arrow_patch.set_visible(max(abs(x), abs(y)) > NEAR)
      return Text.get_window_extent(name)  # without the line

    def fault(place, name=name, own=own, others=others, put=put):
      box = put(place)
      inside = all(name.axes.bbox.contains(*corner) for corner in (box.min, box.max))
      if not inside or box.count_overlaps(taken):
        return 2
      line = np.linspace(centres[own], np.clip(centres[own], box.min, box.max), 20)
      return int(any(other.contains(*point) for other in others for point in line))

    taken.append(put(min(PLACES, key=fault)))


def in_order(labels: Iterable[Any]) -> list[Any]:
  """Distinct labels: numbers sorted, names in order of appearance.

  >>> in_order([20, 10, 20]), in_order(["b", "a"])
  ([10, 20], ['b', 'a'])
  """
  distinct = list(dict.fromkeys(labels))
  return sorted(distinct) if are_numbers(distinct) else distinct


def are_numbers(labels: list[Any]) -> bool:
  return all(isinstance(label, int | float) for label in labels)


def dress(ax, figure: Figure, lines: list[Line]) -> None:
  """Sets scales, ticks and grid of a panel."""
  ax.grid(alpha=0.3, which="both")
  if "y" in figure.log:
    ax.set_yscale("log")
    plain_numbers(ax.yaxis)
  if "x" in figure.log:
    ax.set_xscale("log")
    ticks = {x for line in lines if not line.is_level for x, _ in line.points}
    if len(ticks) <= MAX_TICKS and not figure.front:  # such as numbers of samples
      ax.set_xticks(sorted(ticks), [f"{x:g}" for x in sorted(ticks)])
      ax.xaxis.minorticks_off()
    else:
      plain_numbers(ax.xaxis)
  shown = [y for line in lines for _, y in line.points if y <= figure.y_max]
  if figure.y_max and shown:
    ax.set_ylim(0.95 * min(shown), figure.y_max)
  if figure.y_min:
    ax.set_ylim(bottom=figure.y_min)


def plain_numbers(axis) -> None:
  """Labels a logarithmic axis with 20 instead of 2 x 10^1."""
  from matplotlib.ticker import LogFormatter

  axis.set_major_formatter(LogFormatter())
  axis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))


def main(argv: list[str] | None = None) -> int:
  parser = entry.Parser(__doc__)
  parser.add_argument("sweep", type=pathlib.Path, help="experiments/NAME/sweep.py")
  parser.add_argument(
    "--output", type=pathlib.Path, help="default: figures/ beside the sweep file"
  )
  args = parser.parse_args(argv)
  sweep = sweepfile.load(args.sweep)
  if not sweep.figures:
    raise UserError(f"{args.sweep} has no figures(); see {sweepfile.__file__}")
  results = args.sweep.with_name("results.jsonl")
  rows = records.load(results, ["name", "config", "overrides"])
  rows = sweep.complete(axes.joined(rows, results.with_name("times.jsonl")))
  if not rows:
    raise UserError(f"{results} has no results: run the sweep")
  output = args.output or args.sweep.with_name("figures")
  for figure in sweep.figures:
    with records.naming(results):
      drawn = draw(rows, figure)
    for path in drawing.save(drawn, output, figure.file):
      print(path)
  return 0


def cli() -> int:
  return entry.run("plot", main)


if __name__ == "__main__":
  sys.exit(cli())
