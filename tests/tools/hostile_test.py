"""Invalid files and arguments end in one line that names the place, with status 1."""

import io
import json

import matplotlib.image
import numpy as np
import pytest

from largevocab.tools import (
  advise,
  brown_clusters,
  clusters_report,
  entry,
  fit_cost_model,
  negatives_report,
  plot,
  relvar_report,
  run_sweep,
  sampler_report,
  similarity_report,
  tabulate,
)
from largevocab.tools.plots import drawing
from largevocab.tools.sweeps import records, sweepfile

ROW = {
  **{"run": "a-1", "name": "a", "config": "configs/a.py", "overrides": {}},
  **{"device": "d", "num_devices": 1, "jax": "0", "python": "3"},
  **{"git": "abc", "git_dirty": False, "test_ppl": 10.0, "train_seconds": 2.0},
}
SWEEP = """
def sweep(add):
  add("configs/quickstart.py:runlocal", name="a")

def metrics():
  return ["test_ppl"]

def figures():
  return [{"file": "f", "x": "train_seconds", "y": "test_ppl", "line": "name"}]
"""


def ends(main, argv, capsys, *says):
  """Checks for one line on stderr that has these texts, and status 1."""
  status = entry.run("script", lambda: main([str(word) for word in argv]))
  told = capsys.readouterr()
  assert status == 1, told
  last = told.err.splitlines()[-1]
  assert last.startswith("script: "), told.err
  assert "Traceback" not in told.err
  assert all(part in last for part in says), last


def test_flag_set_to_two_dashes_is_refused(capsys):
  with pytest.raises(SystemExit, match="2"):
    relvar_report.main(["full", "--workdir=--"])
  assert "argument --workdir: expected one argument" in capsys.readouterr().err


def row(**fields):
  return json.dumps({**ROW, **fields})


def without(key):
  return json.dumps({k: v for k, v in ROW.items() if k != key})


LINES = {
  "{": "not JSON",
  "[1]": "holds no object",
  "7": "holds no object",
  "null": "holds no object",
  '"text"': "holds no object",
  "{}": "it has no 'run'",
  "[" * 100_000: "not JSON",
  **{without(key): f"it has no '{key}'" for key in records.FIELDS},
  **{row(**{key: 7}): f"'{key}' is 7, not" for key in records.FIELDS},
  **{row(**{key: None}): f"'{key}' is None, not" for key in ("run", "overrides")},
  row(overrides=[]): "'overrides' is [], not an object",
  row(curve=5): "'curve' has points other than",
  row(curve=[[1, 2]]): "'curve' has points other than",
  row(curve=[["1", 2, 3]]): "'curve' has points other than",
  row(name="b"): "the run 'a-1' is on line 1 already; remove one of them",
  **{
    row(run="a-2", overrides={"train.seed": 1}, test_ppl=value): "test_ppl is"
    for value in ("12", None, True, [1.0], {"a": 1}, 10**400)
  },
}


@pytest.mark.parametrize("number", range(len(LINES)))
def test_invalid_lines_of_results_are_one_line(number, tmp_path, capsys):
  line, says = list(LINES.items())[number]
  path = tmp_path / "results.jsonl"
  path.write_text(f"{row()}\n{line}\n")
  place = str(path) if "test_ppl is" in says else f"{path}:2: "
  for argv in ([path, "--metrics", "test_ppl"], [path]):
    ends(tabulate.main, argv, capsys, place, says)
  (tmp_path / "sweep.py").write_text(SWEEP)
  needs = [f"it has no '{key}'" for key in ("name", "config", "overrides")]
  if line == "{}":
    says = needs[0]
  elif says.startswith("it has no") and says not in needs:
    return  # a figure needs no other keys
  elif '"test_ppl": null' in line:
    says = "no result has"  # null counts as a missing metric
  ends(plot.main, [tmp_path / "sweep.py"], capsys, place, says)


@pytest.mark.parametrize(
  ("content", "says"),
  [
    (b"", "no finished run"),
    (b"\n\n", "no finished run"),
    (b"\xff\xfe\n", ":1: not UTF-8"),
    (row().encode() + b"\n\x80", ":2: not UTF-8"),
    (b"\x00\x00", ":1: not JSON"),
  ],
)
def test_invalid_results_files_are_one_line(content, says, tmp_path, capsys):
  path = tmp_path / "results.jsonl"
  path.write_bytes(content)
  ends(tabulate.main, [path], capsys, str(path), says)


@pytest.mark.parametrize(
  ("argv", "says"),
  [
    (["--metrics", "nosuch"], "no run has the metric 'nosuch'"),
    (["--metrics", "test_pl"], "did you mean 'test_ppl'"),
    (["--metrics", ""], "no run has the metric ''"),
    (["--metrics", "test_ppl,nosuch"], "'nosuch'"),
    (["--metrics", "device"], "device is 'd'"),
    (["--update"], "no partner"),
    (["--check", "--experiments", "no/such"], "no partner"),
  ],
)
def test_wrong_tabulate_arguments_are_one_line(argv, says, tmp_path, capsys):
  path = tmp_path / "results.jsonl"
  path.write_text(
    row() + "\n" + ("<!-- results:a -->\n" if says == "no partner" else "")
  )
  ends(tabulate.main, [path, *argv], capsys, says)


@pytest.mark.parametrize("name", ["result.json", "meta.json", "metrics.jsonl"])
@pytest.mark.parametrize("content", ["", "[]", "{", "7", '{"a": 1', "\x00", "{}"])
def test_damaged_workdirs_of_finished_runs_are_one_line(
  name, content, tmp_path, capsys
):
  meta = {
    **{k: ROW[k] for k in ("device", "num_devices", "python", "git", "git_dirty")}
  }
  files = {
    "result.json": {"test_ppl": 1.0},
    "meta.json": meta | {"versions": {"jax": "0"}},
    "metrics.jsonl": {"step": 1, "split": "valid", "nll": 1.0, "seconds": 1.0},
  }
  for file, good in files.items():
    (tmp_path / file).write_text(json.dumps(good) + "\n")
  assert entry.run("script", lambda: tabulate.main([str(tmp_path)])) == 0
  (tmp_path / name).write_text(content)
  if name == "metrics.jsonl" and content in ("", "{}"):
    assert entry.run("script", lambda: tabulate.main([str(tmp_path)])) == 0
  elif name == "metrics.jsonl":
    ends(tabulate.main, [tmp_path], capsys, name)
  else:
    lacks = "lacks 'device'" if (name, content) == ("meta.json", "{}") else ""
    advice = "; delete its directory to repeat the run"
    ends(tabulate.main, [tmp_path], capsys, name, lacks, advice)


BAD_SWEEPS = {
  "syntax": ("def metrics(:", ":1: SyntaxError"),
  "raises": ("\n1 / 0", ":2: ZeroDivisionError"),
  "import": ("import nosuch_module", ":1: ModuleNotFoundError"),
  "leaves": ("import sys\nsys.exit(0)", ":2: SystemExit"),
  "no metrics": ("", "must define metrics()"),
  "metrics": ("def metrics():\n  return 5", "metrics() returns 5"),
  "metrics of numbers": ("def metrics():\n  return [5]", "not names"),
  "metrics raise": ("def metrics():\n  return {}['a']", ":2: KeyError"),
  "metrics are no function": ("metrics = ['a']", "TypeError"),
  "add": (SWEEP + "\ndef sweep(add):\n  add(5)", "config and name must be strings"),
  "add nothing": (SWEEP + "\ndef sweep(add):\n  add()", "TypeError"),
  "overrides": (SWEEP + "\ndef sweep(add):\n  add('a', 5)", "overrides {'key': value}"),
  "key": (SWEEP + "\ndef sweep(add):\n  add('a', {1: 2})", "AttributeError"),
  "twice": (SWEEP + "\ndef sweep(add):\n  add('a')\n  add('a')", "twice"),
  "twice, almost": (
    SWEEP + "\ndef sweep(add):\n  add('a', {'k': 1})\n  add('a', {'k': 1.0})",
    "adds --config=a --config.k=1.0 twice",
  ),
  "paper": (SWEEP + "\ndef paper():\n  return [1]", "paper() returns [1]"),
  "paper's numbers": (SWEEP + "\ndef paper():\n  return {'a': 1}", "paper() returns"),
  "derived": (SWEEP + "\ndef derived(r, rs):\n  return r['x']", "KeyError: 'x'"),
  "derived no object": (
    SWEEP + "\ndef derived(r, rs):\n  return 1",
    "derived() returns",
  ),
  "comparison": (SWEEP + "\ndef comparison():\n  return 5", "returns 5"),
  "comparison lacks": (
    SWEEP + "\ndef comparison():\n  return {'to': 'a'}",
    "comparison() returns {'to': 'a'}",
  ),
  "comparison by what": (
    SWEEP + "\ndef comparison():\n  return {'to': 'a', 'metric': 'nosuch'}",
    "which metrics() lacks",
  ),
  "comparison to whom": (
    SWEEP + "\ndef comparison():\n  return {'to': 'nosuch', 'metric': 'test_ppl'}",
    "no run has this name",
  ),
  "comparison by lists": (
    SWEEP + "\ndef comparison():\n  return {'to': ['a'], 'metric': [['b']]}",
    "comparison() returns",
  ),
  "not text": ("\x00", "null bytes"),
}


@pytest.mark.parametrize("name", BAD_SWEEPS)
def test_wrong_sweep_files_are_one_line(name, tmp_path, capsys):
  text, says = BAD_SWEEPS[name]
  path = tmp_path / "sweep.py"
  path.write_text(text)
  (tmp_path / "results.jsonl").write_text(row() + "\n")
  ends(tabulate.main, [tmp_path / "results.jsonl"], capsys, str(path), says)
  if "derived" not in name:
    argv = [path, "--dry_run", f"--root={tmp_path}"]
    ends(run_sweep.main, argv, capsys, str(path), says)


FIGURE = {"file": "f", "x": "train_seconds", "y": "test_ppl", "line": "name"}
BAD_FIGURES = {
  "no object": (5, "a figure is 5"),
  "x": ({**FIGURE, "x": 5}, "x is 5, not a string"),
  "where": ({**FIGURE, "where": ["a"]}, "not {key: value}"),
  "reference": ({**FIGURE, "reference": "a"}, "not a list of names"),
  "y_max": ({**FIGURE, "y_max": "1"}, "y_max is '1', not a number"),
  "None": ({**FIGURE, "panel": None}, "panel is None, not a string"),
  "nothing": ({**FIGURE, "y": "nosuch"}, "no result has"),
  "text": ({**FIGURE, "y": "device"}, "device is 'd', not a number"),
  "text for x": ({**FIGURE, "x": "name"}, "name is 'a', not a number"),
  "text for a level": (
    {**FIGURE, "y": "device", "reference": ["a"]},
    "is 'd', not a number",
  ),
  "above all": ({**FIGURE, "y_min": 1e9}, "within the axes"),
  "not finite": ({**FIGURE, "y": "infinite"}, "finite"),
  "no logarithm": ({**FIGURE, "y": "zero", "log": "y"}, "within the axes"),
  "path": ({**FIGURE, "file": "../f"}, "`file` must be a name without suffix"),
  "log": ({**FIGURE, "log": "z"}, "`log` must be '', 'x', 'y' or 'xy', not 'z'"),
  "front": ({**FIGURE, "front": "most of"}, "or 'most', not 'most of'"),
  "huge": ({**FIGURE, "y_max": 10**400}, "y_max is 1000"),
  "limits": ({**FIGURE, "y_min": 3, "y_max": 2.0}, "y_max is 2.0, but must be above"),
}


@pytest.mark.parametrize("name", BAD_FIGURES)
def test_wrong_figures_are_one_line(name, tmp_path, capsys):
  figure, says = BAD_FIGURES[name]
  path = tmp_path / "sweep.py"
  path.write_text(
    f"def metrics():\n  return []\ndef figures():\n  return [{figure!r}]\n"
  )
  other = row(run="b-1", name="b", infinite=float("inf"), zero=0.0)
  if name == "text for a level":
    other = row(run="b-1", name="b", device=ROW["device"])
  (tmp_path / "results.jsonl").write_text(f"{row()}\n{other}\n")
  ends(plot.main, [path], capsys, says)
  assert not (tmp_path / "figures").exists()


def test_reference_without_results_is_named(tmp_path, capsys, monkeypatch):
  monkeypatch.setattr(drawing, "DPI", 30)
  figure = {**FIGURE, "reference": ["aa"]}
  sweep = f"def metrics():\n  return []\ndef figures():\n  return [{figure!r}]\n"
  (tmp_path / "sweep.py").write_text(sweep)
  (tmp_path / "results.jsonl").write_text(f"{row()}\n")
  assert plot.main([str(tmp_path / "sweep.py")]) == 0
  hint = "figure f: no result of the reference 'aa'; did you mean 'a'?"
  assert hint in capsys.readouterr().err


@pytest.mark.parametrize("log", ["", "y", "xy"])
def test_curve_of_one_point_is_drawn(log, tmp_path, monkeypatch):
  """It has a marker, since a line needs two points. Labels can be lists."""
  monkeypatch.setattr(drawing, "DPI", 30)
  figure = {
    "file": "f",
    "x": "step",
    "y": "valid_ppl",
    "line": "head.cutoffs",
    "log": log,
  }
  sweep = f"def metrics():\n  return []\ndef figures():\n  return [{figure!r}]\n"
  (tmp_path / "sweep.py").write_text(sweep)
  lengths = {}
  for points in ([], [[5, 2.0, 1.0]]):
    second = row(run="b-1", name="b", overrides={"head.cutoffs": [1, 2]}, curve=points)
    first = row(overrides={"head.cutoffs": 3}, curve=[[5, 3.0, 1.0], [9, 2.0, 1.0]])
    (tmp_path / "results.jsonl").write_text(f"{first}\n{second}\n")
    assert plot.main([str(tmp_path / "sweep.py")]) == 0
    rows = records.load(tmp_path / "results.jsonl")
    canvas = plot.draw(rows, sweepfile.figure(figure))
    seen = [line for line in canvas.axes[0].lines if line.get_marker() == "o"]
    lengths[len(points)] = len(seen)
  assert lengths == {0: 0, 1: 1}
  picture = matplotlib.image.imread(tmp_path / "figures" / "f.png")
  assert len(np.unique(picture.reshape(-1, picture.shape[-1]), axis=0)) > 10


COUNTS = {
  "nan": np.array([1.0, np.nan]),
  "inf": np.array([1.0, np.inf]),
  "fraction": np.array([1.5, 2.0]),
  "negative": np.array([1, -1]),
  "2-D": np.ones((2, 2), int),
  "0-D": np.int64(5),
  "empty": np.zeros(0, int),
  "zeros": np.zeros(3, int),
  "text": np.array(["1", "2"]),
  "bool": np.array([True, False]),
  "complex": np.array([1j, 2]),
  "records": np.zeros(2, [("a", int)]),
  "dates": np.array(["2020-01-01"], "M8[D]"),
  "huge": np.array([2**63], np.uint64),
  "objects": np.array([{}, 1], object),
}


@pytest.mark.parametrize("script", [advise, clusters_report])
@pytest.mark.parametrize("name", COUNTS)
def test_invalid_counts_are_one_line(script, name, tmp_path, capsys):
  path = tmp_path / "counts.npy"
  np.save(path, COUNTS[name], allow_pickle=True)
  ends(script.main, [f"--counts={path}"], capsys, f"--counts={path}: ")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x93NUMPY", b"text", None])
def test_invalid_counts_files_are_one_line(content, tmp_path, capsys):
  path = tmp_path / "counts.npy"
  path.mkdir() if content is None else path.write_bytes(content)
  ends(advise.main, [f"--counts={path}"], capsys, f"--counts={path}: ")
  whole = io.BytesIO()
  np.savez(whole, a=np.ones(2))
  (tmp_path / "counts.npz").write_bytes(whole.getvalue())
  given = f"--counts={tmp_path}/counts.npz"
  ends(advise.main, [given], capsys, "no array of numbers")
  (tmp_path / "counts.txt").write_text("3\n2\n")
  given = f"--counts={tmp_path}/counts.txt"
  ends(advise.main, [given], capsys, "it is not a .npy file; give a")


WORKDIR = "--workdir=no/such"
ARGUMENTS = [
  (advise, ["--counts=c.npy", "--budget_ms=nan"], "--budget_ms=nan"),
  (advise, ["--counts=c.npy", "--budget_mib=-1"], "--budget_mib=-1"),
  (advise, ["--counts=c.npy", "--budget_ms=inf"], "--budget_ms=inf"),
  (advise, ["--counts=c.npy", "--dim=10000000000"], "--dim=10000000000: must be at"),
  (advise, ["--counts=c.npy", "--num_samples", "8", "0"], "--num_samples=0"),
  (advise, [WORKDIR], "no/such"),
  (advise, [WORKDIR, "--dim=8"], "--dim is for --counts; with --workdir"),
  (clusters_report, ["--counts=c.npy", "--dim=0"], "--dim=0: must be positive"),
  (clusters_report, ["--counts=c.npy", "--batch=-5"], "--batch=-5: must be positive"),
  (clusters_report, ["--counts=c.npy", "--measure=-1"], "--measure=-1"),
  (clusters_report, ["--counts=c.npy", "--nosuch=1"], "unexpected argument"),
  (clusters_report, ["--config=no/such.py"], "no/such.py"),
  (sampler_report, [WORKDIR], "no/such"),
  (sampler_report, [WORKDIR, "--samplers="], "unknown ''"),
  (sampler_report, [WORKDIR, "--samplers=pps:power"], "power is ''"),
  (sampler_report, [WORKDIR, "--samplers=pps:nosuch=1"], "'nosuch' is not a field"),
  (sampler_report, [WORKDIR, "--chunk=0"], "--chunk=0: must be positive"),
  (sampler_report, [WORKDIR, f"--positions={10**30}"], "must be at most"),
  (relvar_report, [WORKDIR, "pps"], "no/such"),
  (relvar_report, [WORKDIR, "pps", "--draws=0"], "--draws=0: must be positive"),
  (negatives_report, [WORKDIR, "pps"], "no/such"),
  (negatives_report, [WORKDIR, "pps", f"--draws={10**12}"], "must be at most"),
  (similarity_report, ["a=no/such", "--pairs=no/such.txt"], "no/such"),
  (similarity_report, ["a=b", "--pairs=c", "--resamples=0"], "--resamples=0: must be"),
  (fit_cost_model, ["--points=1"], "--points=1"),
  (fit_cost_model, [f"--points={10**9}"], "--points=1000000000"),
  (fit_cost_model, ["--dim=0"], "--dim=0: must be positive"),
  (fit_cost_model, ["--out=no/such/a.json"], "no such directory"),
  (run_sweep, ["no/such.py"], "no such sweep file"),
  (run_sweep, ["no/such.py", "--jobs=0"], "--jobs=0: must be positive"),
  (
    run_sweep,
    ["a.py", "--jobs=99999", "--spare"],
    "with --spare each run needs a core",
  ),
  (run_sweep, ["a.py", "--index=0", "--collect"], "leave one of them out"),
  (plot, ["no/such.py"], "no such sweep file"),
  (tabulate, ["no/such.jsonl"], "no such file"),
  (tabulate, ["no/such.md", "--check"], "no such file"),
  (
    tabulate,
    ["a.md", "--check", "--metrics=a"],
    "its marker has metrics=a,b",
  ),
  (tabulate, ["a.jsonl", "--experiments=b"], "give --update or --check too"),
]


@pytest.mark.parametrize("number", range(len(ARGUMENTS)))
def test_wrong_arguments_are_one_line(number, capsys, tmp_path, monkeypatch):
  script, argv, says = ARGUMENTS[number]
  monkeypatch.chdir(tmp_path)
  np.save("c.npy", np.arange(9, 0, -1))
  ends(script.main, argv, capsys, says)


def test_setting_below_a_key_that_is_no_block_is_refused(tmp_path, capsys):
  path = tmp_path / "sweep.py"
  path.write_text(SWEEP)
  argv = [path, "--dry_run", f"--root={tmp_path}", f"--set=train.lr.x={tmp_path}"]
  says = "'train.lr.x' is not a location of data, as data.cache"
  ends(run_sweep.main, argv, capsys, says)


def test_unwritable_figures_are_one_line(tmp_path, capsys):
  (tmp_path / "sweep.py").write_text(SWEEP)
  (tmp_path / "results.jsonl").write_text(row() + "\n")
  (tmp_path / "figures").write_text("a file")
  ends(plot.main, [tmp_path / "sweep.py"], capsys, "figures")


@pytest.mark.parametrize(
  ("argv", "says"),
  [
    (["--config=no/such.py", "--out=a.npy"], "no file no/such.py"),
    (["--config=no/such.py", "--out=a.txt"], "name a file that ends in .npy"),
    (["--config=bad.py", "--out=a.npy"], "bad.py, line 1: ZeroDivisionError"),
  ],
)
def test_wrong_brown_clusters_arguments_are_one_line(
  argv, says, tmp_path, capsys, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "bad.py").write_text("1 / 0\n")
  ends(brown_clusters.main, argv, capsys, says)
