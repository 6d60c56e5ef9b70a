"""Figures show what the records say."""

import json
import math
import statistics
import sys

import pytest

from largevocab.errors import UserError
from largevocab.tools import plot
from largevocab.tools.plot import Line
from largevocab.tools.sweeps import sweepfile
from largevocab.tools.tables import axes

SWEEP = """
def sweep(add): pass
def metrics(): return ["test_ppl"]
def figures():
  return [
    {"file": "samples", "x": "head.num_samples", "y": "test_ppl", "log": "xy",
     "reference": ["full"]},
    {"file": "steps", "x": "step", "y": "valid_nll", "line": "head.num_samples",
     "panel": "method", "reference": ["full"]},
  ]
"""


def record(name, m=None, seed=0, **metrics):
  overrides = {"train.seed": seed, **({"head.num_samples": m} if m else {})}
  return {"name": name, "config": "configs/a.py", "overrides": overrides, **metrics}


def figure(**fields):
  whole = {"file": "f", "x": "head.num_samples", "y": "test_ppl", **fields}
  return sweepfile.figure(whole)


# Two methods with two settings and two seeds; the second seed has one evaluation.
CURVES = ([[5, 6.0, 1.0], [10, 5.0, 3.0]], [[5, 7.0, 2.0]])
ROWS = [
  record("full", test_ppl=90.0, curve=[[5, 5.0, 1.0], [10, 4.0, 2.0]]),
  *(
    record(f"{method}, m={m}", m, seed, test_ppl=100.0 + m + 2 * seed, curve=curve)
    for method in ("unigram", "uniform")
    for m in (20, 10)
    for seed, curve in enumerate(CURVES)
  ),
]


def test_points_are_means_over_seeds_in_order_of_x():
  assert plot.panels_of(ROWS, figure(reference=["full"])) == {
    "": [
      Line("unigram", [(10, 111), (20, 121)]),
      Line("uniform", [(10, 111), (20, 121)]),
      Line("full", [(0, 90)], is_level=True, is_reference=True),
    ]
  }


def test_x_can_be_a_measured_value():
  rows = [record("a", m, train_seconds=10.0 / m, test_ppl=float(m)) for m in (1, 2)]
  panels = plot.panels_of(rows, figure(x="train_seconds"))
  assert panels == {"": [Line("a", [(5, 2), (10, 1)])]}


def test_curves_are_means_over_seeds_at_common_steps():
  curves = figure(
    x="epoch",
    y="valid_ppl",
    line="head.num_samples",
    panel="method",
    where={"method": ["unigram", "unfinished"]},
    reference=["full"],
    steps_per_epoch=5,
  )
  rows = [*ROWS, record("unfinished, m=10", 10)]
  mean = (math.exp(6) + math.exp(7)) / 2
  assert plot.panels_of(rows, curves) == {
    "unigram": [
      Line(20, [(1, mean)]),
      Line(10, [(1, mean)]),
      Line("full", [(1, math.exp(5)), (2, math.exp(4))], is_reference=True),
    ]
  }
  seconds = plot.panels_of(rows, figure(x="seconds", y="valid_nll", line="name"))
  assert seconds[""][0] == Line("full", [(1, 5), (2, 4)])
  assert seconds[""][1] == Line("unigram, m=20", [(1.5, 6.5)])


def test_bands_are_standard_deviations_over_seeds():
  points = ([[5, 0.25, 1.0], [10, 0.5, 2.0]], [[5, 0.75, 1.0], [10, 0.5, 2.0]])
  curves = [("taylor", points[0], 0), ("taylor", points[1], 1), ("full", points[0], 0)]
  rows = [record(name, seed=seed, curve_a=curve) for name, curve, seed in curves]
  shown = figure(x="step", y="curve_a", band=True)
  sd = statistics.stdev([0.25, 0.75])
  taylor, full = plot.panels_of(rows, shown)[""]
  assert taylor.points == [(5, 0.5), (10, 0.5)]
  assert taylor.band == ((5, 0.5 - sd, 0.5 + sd), (10, 0.5, 0.5))
  assert full.band == ()  # one seed
  plain = figure(x="step", y="curve_a")
  assert plot.panels_of(rows, plain)[""][0] == taylor._replace(band=())
  shaded = [len(plot.draw(rows, f).axes[0].collections) for f in (shown, plain)]
  assert shaded == [1, 0]


def test_bars_of_points_are_standard_deviations_over_seeds():
  runs = [("a", 1.0, 2.0, 0), ("a", 3.0, 4.0, 1), ("b", 5.0, 1.0, 0)]
  rows = [record(name, seed=seed, t=t, y=y) for name, t, y, seed in runs]
  shown = figure(x="t", y="y", band=True, front="least")
  a, b = plot.panels_of(rows, shown)[""]
  sd = statistics.stdev([2.0, 4.0])
  assert (a.points, a.band) == ([(2.0, 3.0)], ((2.0, 3 - sd, 3 + sd),))
  assert (b.points, b.band) == ([(5.0, 1.0)], ())
  plain = figure(x="t", y="y", front="least")
  drawn = [len(plot.draw(rows, f).axes[0].collections) for f in (shown, plain)]
  assert drawn == [1, 0]


def test_indistinguishable_curves_are_refused():
  with pytest.raises(UserError, match="'unigram' has curves of several settings"):
    plot.panels_of(ROWS, figure(x="step", y="valid_nll"))


def test_figure_without_results_is_refused():
  with pytest.raises(UserError, match="no result has"):
    plot.panels_of(ROWS, figure(where={"method": "pps"}))


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    ({"z": 1}, "has unknown"),
    ({"x": "step"}, "y must be one of"),
    ({"x": "epoch", "y": "valid_ppl"}, "give steps_per_epoch"),
    ({"log": "z"}, "`log`"),
    ({"band": "yes"}, "band is 'yes', not True or False"),
    ({"file": "a.png"}, "without suffix"),
  ],
)
def test_invalid_figure_is_refused(fields, message):
  with pytest.raises(UserError, match=message):
    figure(**fields)


def test_figure_without_a_required_key_is_refused():
  with pytest.raises(UserError, match="lacks"):
    sweepfile.figure({"file": "a"})


def test_figures_with_the_same_file_are_refused(tmp_path):
  path = tmp_path / "sweep.py"
  path.write_text(SWEEP.replace('"steps"', '"samples"'))
  with pytest.raises(UserError, match="same `file`"):
    sweepfile.load(path)


def test_files_depend_only_on_the_results(tmp_path):
  path = tmp_path / "sweep.py"
  path.write_text(SWEEP)
  rows = "".join(json.dumps(row) + "\n" for row in ROWS)
  (tmp_path / "results.jsonl").write_text(rows)
  names = {f"{name}.{kind}" for name in ("samples", "steps") for kind in ("png", "svg")}

  def drawn(directory):
    assert plot.main([str(path), "--output", str(tmp_path / directory)]) == 0
    return {p.name: p.read_bytes() for p in (tmp_path / directory).iterdir()}

  first = drawn("first")
  assert set(first) == names
  assert drawn("second") == first
  (tmp_path / "results.jsonl").write_text(rows.replace("90.0", "95.0"))
  assert drawn("third")["samples.svg"] != first["samples.svg"]


def test_idle_seconds_can_be_an_axis(tmp_path):
  path, times = tmp_path / "sweep.py", tmp_path / "times.jsonl"
  path.write_text(SWEEP.replace('"x": "head.num_samples"', '"x": "idle_seconds"'))
  rows = [row | {"steps": 10} for row in ROWS]
  (tmp_path / "results.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
  with pytest.raises(UserError, match="no result has idle_seconds"):
    plot.main([str(path)])
  names = sorted({row["name"] for row in rows})
  lines = [{"name": name, "ms_per_step": 1 + n} for n, name in enumerate(names)]
  times.write_text("".join(json.dumps(line) + "\n" for line in lines))
  assert plot.main([str(path)]) == 0
  joined = axes.joined(rows, times)
  ((line, *_),) = plot.panels_of(
    joined, figure(x="idle_seconds", y="test_ppl")
  ).values()
  assert line.label == "full"
  assert line.points == [(0.01, 90.0)]
  along = plot.panels_of(joined, figure(x="idle_time", y="valid_nll", line="name"))
  assert along[""][0] == Line("full", [(0.005, 5), (0.01, 4)])
  untimed = figure(x="idle_time", y="valid_nll", line="name")
  with pytest.raises(UserError, match="no result has idle_time"):
    plot.panels_of(rows, untimed)


def test_baseline_is_a_level_and_not_a_method():
  counted = record("unigram, counted", test_ppl=639.0, baseline=True)
  levels = figure(where={"method": "unigram"}, reference=["unigram, counted"])
  (lines,) = plot.panels_of([*ROWS, counted], levels).values()
  assert [line.label for line in lines] == ["unigram", "unigram, counted"]
  assert lines[1].is_level
  assert lines[0].points == [(10, 111), (20, 121)]


def test_sweep_without_figures_is_refused(tmp_path):
  path = tmp_path / "sweep.py"
  path.write_text("def sweep(add): pass\ndef metrics(): return []\n")
  with pytest.raises(UserError, match=r"has no figures\(\)"):
    plot.main([str(path)])


def test_sweep_without_results_is_refused(tmp_path):
  path = tmp_path / "sweep.py"
  path.write_text(SWEEP)
  path.with_name("results.jsonl").touch()
  with pytest.raises(UserError, match=r"results\.jsonl has no results: run the sweep"):
    plot.main([str(path)])


def test_missing_matplotlib_names_the_extra(monkeypatch):
  monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
  with pytest.raises(UserError, match=r"pip install 'largevocab\[plot\]'"):
    plot.draw(ROWS, figure())


def test_front_joins_the_undominated_points():
  pytest.importorskip("matplotlib")
  ms = {"a": (1.0, 9.0), "b": (2.0, 9.5), "c": (3.0, 4.0), "d": (3.0, 5.0)}
  rows = [record(n, ms_per_step=x, test_ppl=y) for n, (x, y) in ms.items()]
  canvas = plot.draw(rows, figure(x="ms_per_step", front="least"))
  (ax,) = canvas.axes
  steps = [line for line in ax.lines if line.get_drawstyle() == "steps-post"]
  assert [line.get_xydata().tolist() for line in steps] == [[[1, 9], [3, 4]]]
  assert {text.get_text() for text in ax.texts} == set(ms)


def test_names_stay_in_the_panel_and_do_not_overlap():
  pytest.importorskip("matplotlib")
  rows = [
    record(f"a method, number {i}", test_ppl=100 + i % 3, ms_per_step=10 + i)
    for i in range(9)
  ]
  canvas = plot.draw(rows, figure(x="ms_per_step", front="least"))
  (ax,) = canvas.axes
  boxes = [name.get_window_extent() for name in ax.texts]
  assert len(boxes) == 9
  for i, box in enumerate(boxes):
    assert box.count_overlaps(boxes[:i]) == 0
    assert ax.bbox.contains(*box.min)
    assert ax.bbox.contains(*box.max)


def test_front_of_curves_is_refused():
  with pytest.raises(UserError, match="figure f: a front joins points"):
    figure(x="step", y="valid_ppl", front="least")


@pytest.mark.parametrize("num", [1, 2, 10, 11, 25])
@pytest.mark.parametrize("kind", [str, float])
def test_no_two_lines_share_a_colour(num, kind):
  found = plot.colors([kind(number) for number in range(num)])
  assert len(set(found.values())) == num


def test_diverged_seed_is_left_out_and_noted(capsys):
  pytest.importorskip("matplotlib")
  gone = lambda name, seed: record(name, 20, seed, diverged=5, curve=[[5, 9.0, 1.0]])
  infinite = record("uniform, m=20", 20, 3, test_ppl=math.inf, curve=CURVES[0])
  rows = [*ROWS, gone("unigram, m=20", 2), infinite, gone("lost, m=20", 0)]
  shown = figure(reference=["full", "lost"])
  unigram, uniform, full = plot.panels_of(rows, shown)[""]
  assert unigram == Line("unigram", [(10, 111), (20, 121)], notes=("2 of 3 seeds",))
  assert uniform.points == unigram.points
  assert uniform.notes == ("2 of 3 seeds",)
  assert full.notes == ()
  told = "figure f: left out, diverged or not finite: lost, m=20\n"
  assert capsys.readouterr().err == told
  (legend,) = plot.draw(rows, shown).legends
  assert [text.get_text() for text in legend.get_texts()] == [
    *("unigram (2 of 3 seeds)", "uniform (2 of 3 seeds)", "full"),
  ]
  curves = figure(x="step", y="valid_nll", line="name", where={"method": "unigram"})
  lines = {line.label: line for line in plot.panels_of(rows, curves)[""]}
  assert lines["unigram, m=20"].points == [(5, 6.5)]
  assert lines["unigram, m=20"].notes == ("2 of 3 seeds",)
  assert lines["unigram, m=10"].notes == ()
  capsys.readouterr()
  curves = figure(x="step", y="valid_nll", reference=["lost"], where={"method": "full"})
  assert [line.label for line in plot.panels_of(rows, curves)[""]] == ["full"]
  assert capsys.readouterr().err == told


def test_seed_without_a_value_is_left_out_and_noted():
  rows = [record("pps", 9, seed, test_ppl=7.0 + seed) for seed in (0, 1)]
  rows += [record("pps", 9, seed=2), record("none", 9)]
  rows[0] |= {"peak_mib": 5.0, "curve": CURVES[0]}
  (points,) = plot.panels_of(rows, figure())[""]
  assert points == Line("pps", [(9, 7.5)], notes=("2 of 3 seeds",))
  (points,) = plot.panels_of(rows, figure(x="peak_mib"))[""]
  assert points == Line("pps", [(5.0, 7.0)], notes=("1 of 3 seeds",))
  (line,) = plot.panels_of(rows, figure(x="step", y="valid_nll"))[""]
  assert line == Line("pps", [(5, 6.0), (10, 5.0)], notes=("1 of 3 seeds",))
