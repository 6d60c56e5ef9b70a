import dataclasses
import fcntl
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

import pytest

from largevocab import config, main
from largevocab.data.digests import digests
from largevocab.errors import UserError
from largevocab.tools import run_sweep
from largevocab.tools.sweeps import campaign, launch, records, stale, sweepfile
from largevocab.tools.sweeps.campaign import Campaign
from largevocab.tools.sweeps.search import Search
from largevocab.tools.sweeps.sweep_run import Run
from largevocab.training import config_changes
from largevocab.training.data_of_run import save_data
from largevocab.training.json_files import as_json, write_json
from largevocab.training.lock import held
from largevocab.training.workdir import config_path

REPOSITORY = pathlib.Path(__file__).parents[2]
META = {
  "device": "d",
  "num_devices": 1,
  "python": "3",
  "versions": {"jax": "0"},
  "git": "abc",
  "git_dirty": False,
}
OWN = """
from largevocab import command_line

def get_config(arg):
  return command_line.load(f"quickstart:{arg}")
"""
SWEEP_OF_OWN = """
def sweep(add):
  for config in ("mine.py", "sub/mine.py", "quickstart"):
    add(f"{config}:full,runlocal", name=config)

def metrics():
  return ["test_nll"]
"""


def finish(root: pathlib.Path, run: Run, **result):
  workdir = root / run.id
  workdir.mkdir(parents=True, exist_ok=True)
  (workdir / "result.json").write_text(json.dumps(result))
  (workdir / "meta.json").write_text(json.dumps(META))


def campaign_of(root: pathlib.Path, runs: list[Run], **more) -> Campaign:
  sweep = sweepfile.Sweep(runs, ["ppl"], {}, **more)
  return Campaign(root / "name" / "sweep.py", sweep, launch.Launcher(root, []))


def failures_of(campaigns: list[Campaign]) -> dict[str, str]:
  scheduler = run_sweep.Scheduler(campaigns, jobs=1)
  scheduler.run()
  return scheduler.failed


def test_sweep_of_another_checkout_is_refused(tmp_path):
  """Its runs would silently execute code other than that beside the sweep file."""
  path = tmp_path / "clone" / "experiments" / "one" / "sweep.py"
  path.parent.mkdir(parents=True)
  path.write_text(
    "def metrics(): return []\n"
    "def sweep(add): add('configs/ptb.py:full', {}, name='full')\n"
  )
  assert campaign.of_sweep(path, tmp_path, []).runs
  package = tmp_path / "clone" / "largevocab"
  package.mkdir()
  (package / "__init__.py").touch()
  with pytest.raises(UserError, match=f"PYTHONPATH={tmp_path}/clone$"):
    campaign.of_sweep(path, tmp_path, [])


def test_sweep_without_runs_is_refused(tmp_path):
  path = tmp_path / "sweep.py"
  path.write_text("def metrics(): return []\n")
  with pytest.raises(UserError, match=r"adds no runs; its README\.md says what makes"):
    campaign.of_sweep(path, tmp_path, [])


@pytest.fixture
def project(tmp_path, monkeypatch):
  """A project with a sweep and a config, and a config in the current directory.

  The current directory is outside the project.
  """
  monkeypatch.setattr(sys, "path", [*sys.path])
  folder, here = tmp_path / "project", tmp_path / "here"
  (folder / "experiments" / "own").mkdir(parents=True)
  (folder / "experiments" / "own" / "sweep.py").write_text(SWEEP_OF_OWN)
  (folder / "mine.py").write_text(OWN)
  (folder / "quickstart").touch()  # a config name is never read as a file
  (here / "sub").mkdir(parents=True)
  (here / "sub" / "mine.py").write_text(OWN)
  monkeypatch.chdir(here)
  return folder


def test_own_project_can_have_sweeps(project, tmp_path):
  args = run_sweep.parse_args([str(project / "experiments" / "own" / "sweep.py")])
  (found,) = run_sweep.campaigns_of(args)  # checks the configs
  assert [run.folder for run in found.runs] == [str(project), "", ""]
  commands = [found.launcher.command(run) for run in found.runs]
  assert [command[3] for command in commands] == [
    f"--config={config}:full,runlocal"
    for config in (project / "mine.py", "sub/mine.py", "quickstart")
  ]
  root = tmp_path / "here" / "runs" / "own"
  assert [found.launcher.workdir(run).parent for run in found.runs] == 3 * [root]
  data = launch.PathSetting("data.path", tmp_path)
  assert not any(data.is_for(run) for run in found.runs)


def test_sweep_of_an_own_project_has_baselines(project):
  args = run_sweep.parse_args([str(project / "experiments" / "own" / "sweep.py")])
  (found,) = run_sweep.campaigns_of(args)
  for run in found.runs:
    finish(found.launcher.root, run, test_nll=1.0)
  found.collect()
  found.count_baselines()
  rows = records.load(found.path.with_name("results.jsonl"))
  assert [row["name"] for row in rows[3:]] == ["unigram, counted", "bigram, counted"]


def test_runs_of_a_queue_go_to_the_current_directory(project, tmp_path):
  queue = project / "queue.toml"
  queue.write_text('[[sweep]]\nfile = "experiments/own/sweep.py"\n')
  (found,) = run_sweep.campaigns_of(run_sweep.parse_args(["--queue", str(queue)]))
  assert found.launcher.root == tmp_path / "here" / "runs" / "own"


def test_missing_config_is_named(project):
  (project / "mine.py").unlink()
  with pytest.raises(UserError, match=r"run 'mine\.py': .*there is no file mine\.py"):
    run_sweep.main([str(project / "experiments" / "own" / "sweep.py"), "--dry_run"])


def trained(launcher: launch.Launcher, run: Run) -> pathlib.Path:
  """Trains a run as the sweep does, and returns its workdir."""
  assert main.run(["main", *launcher.command(run)[3:]]) == 0
  return launcher.workdir(run)


@pytest.mark.long
def test_edited_config_is_not_mixed_with_old_rows(project, tmp_path):
  sweep = project / "experiments" / "own" / "sweep.py"
  flags = [str(sweep), "--root", str(tmp_path / "runs")]
  (found,) = run_sweep.campaigns_of(run_sweep.parse_args(flags))
  trained(found.launcher, found.runs[0])
  run_sweep.campaigns_of(run_sweep.parse_args(flags))
  edited = "config = command_line.load(f'quickstart:{arg}')\n  config.train.lr = 0.25\n"
  (project / "mine.py").write_text(
    OWN.replace("return command_line.load", f"{edited}  return config #")
  )
  for more in ([], ["--collect"], ["--dry_run"]):
    with pytest.raises(UserError, match=r"run 'mine\.py': .*train\.lr = .* not 0\.25"):
      run_sweep.main([*flags, *more])


def test_other_data_are_not_mixed_with_old_rows(tmp_path, monkeypatch):
  """The data may be in another place, but must have the same content."""
  monkeypatch.setenv("LARGEVOCAB_CACHE", str(tmp_path / "cache"))
  sweep = tmp_path / "own" / "sweep.py"
  sweep.parent.mkdir()
  sweep.write_text(
    "def metrics(): return ['test_ppl']\n"
    "def sweep(add): add('ptb:full', {'train.max_steps': 2}, name='full')\n"
  )
  lines = {"first": "a b a c\n", "moved": "a b a c\n", "other": "a b b c\n"}
  for place, line in lines.items():
    (tmp_path / place).mkdir()
    for split in ("train", "valid", "test"):
      (tmp_path / place / f"ptb.{split}.txt").write_text(400 * line)
  flags = lambda *place: [
    *(str(sweep), "--root", str(tmp_path / "runs")),
    *(f"--set=data.path={tmp_path / each}" for each in place),
  ]
  (found,) = run_sweep.campaigns_of(run_sweep.parse_args(flags("first")))
  trained(found.launcher, found.runs[0])
  for place in (["first"], ["moved"], []):
    assert run_sweep.main([*flags(*place), "--collect"]) == 0
  before = sweep.with_name("results.jsonl").read_text()
  (tmp_path / "first" / "ptb.test.txt").write_text(400 * lines["other"])
  for place in ("other", "first"):
    with pytest.raises(
      UserError, match=r"run 'full': .* digest of 'test' .*repeat it$"
    ):
      run_sweep.main(flags(place))
  assert sweep.with_name("results.jsonl").read_text() == before


def test_other_sources_are_not_mixed_with_old_rows(tmp_path):
  run = Run("configs/xmlc.py:full,data=stdlib_calls", name="full")
  cache = launch.PathSetting("data.cache_dir", tmp_path)
  places = {"old": "x", "moved": "x", "other": "x, y"}
  for place, words in places.items():
    (tmp_path / place).mkdir()
    for number in range(60):  # some for validation, and some for the test
      functions = f"def f(): walk({words})\ndef g(): run(x)\n"
      (tmp_path / place / f"m{number}.py").write_text(functions)
  setting_of = lambda place: launch.PathSetting("data.sources", tmp_path / place)
  finish(tmp_path, run, test_nll=1.0)
  workdir = str(tmp_path / run.id)
  block = launch.settings_of(run, [cache, setting_of("old")])
  write_json(config_path(workdir), as_json(block.to_dict()))
  data = config.build(block).data.load()
  save_data(workdir, data, digests(data))
  check = lambda *settings: stale.check_finished(
    tmp_path / "sweep.py", [run], launch.Launcher(tmp_path, [cache, *settings]), {}
  )
  check(setting_of("moved"))
  check()  # as if they were only collected: the data are those of the run
  with pytest.raises(UserError, match=r"run 'full': .* digest of 'test' .*repeat it$"):
    check(setting_of("other"))


def test_runs_at_searched_rates_are_checked_too(tmp_path):
  """They differ from the runs of the sweep file, which have no rates."""
  run = Run("quickstart:full,runlocal", {"train.max_steps": 2}, "full")
  search = Search(1, {"train.lr": [0.5]})
  made = campaign_of(tmp_path / "runs", [run], search=search)
  made.path.parent.mkdir(parents=True)
  for trial in made.trials():
    trained(made.launcher, trial)
  chosen = made.chosen(run)
  workdir = trained(made.launcher, chosen)
  stale.check_finished(made.path, made.ready(), made.launcher, known={})
  content = json.loads((workdir / "config.json").read_text())
  content["train"]["clip_norm"] = 7.0
  (workdir / "config.json").write_text(json.dumps(content))
  with pytest.raises(UserError, match=r"run 'full': .*clip_norm = 7\.0, not"):
    stale.check_finished(made.path, made.ready(), made.launcher, known=None)


def test_key_of_an_older_version_is_not_compared(tmp_path):
  run = Run("quickstart:full,runlocal", {"train.max_steps": 2}, "full")
  made = campaign_of(tmp_path, [run])
  workdir = trained(made.launcher, run)
  content = json.loads((workdir / "config.json").read_text())
  content["train"]["former"] = 1
  del content["log"]
  (workdir / "config.json").write_text(json.dumps(content))
  stale.check_finished(made.path, [run], made.launcher, known={})


def test_sweeps_of_the_checkout_start_in_the_checkout(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  for run in sweepfile.load(REPOSITORY / "experiments/ptb_sampled/sweep.py").runs:
    assert run.folder == str(REPOSITORY)
    assert run.source == f"{REPOSITORY}/{run.config}"
    monkeypatch.chdir(REPOSITORY)
    assert run.source == run.config
    monkeypatch.chdir(tmp_path)


@pytest.mark.long
def test_run_uses_this_package_and_the_current_directory(project, tmp_path):
  """Even if that directory has another package of this name."""
  here = tmp_path / "here"
  (here / "largevocab").mkdir()
  (here / "largevocab" / "__init__.py").write_text("raise SystemExit('another')")
  (here / "beside_all.py").touch()
  (project / "mine.py").write_text(
    OWN + "\nimport beside_all, os\nprint(os.getcwd())\n"
  )
  run = Run("mine.py:full,runlocal", folder=str(project))
  launcher = launch.Launcher(tmp_path / "runs", [])
  assert launcher.start(run).wait() == 0, launch.log_path(
    launcher.workdir(run)
  ).read_text()
  assert str(here) in launch.log_path(launcher.workdir(run)).read_text()


def test_id_depends_only_on_config_and_overrides():
  run = Run("configs/a.py:x", {"head.m": 1, "train.seed": 0}, name="one", folder="/a")
  assert run.id == Run("configs/a.py:x", {"train.seed": 0, "head.m": 1}, name="two").id
  others = [
    Run("configs/a.py:y", {"head.m": 1, "train.seed": 0}),
    Run("configs/a.py:x", {"head.m": 2, "train.seed": 0}),
    Run("configs/a.py:x", {"model.m": 1, "train.seed": 0}),
    Run("configs/a.py:x", {"head.m": 1}),
  ]
  assert len({run.id, *(other.id for other in others)}) == 5


def test_id_is_one_short_directory_name():
  run = Run("configs/a.py:x/y", {"data.name": "a b/../c" * 50})
  assert pathlib.PurePath(run.id).name == run.id
  assert len(run.id) < 80
  assert " " not in run.id


def test_runs_keep_their_order_and_overrides():
  def sweep(add):
    add("configs/a.py")
    add("configs/a.py", {"head.m": 1, "train.seed": 1}, name="label")

  first, second = sweepfile.collect(sweep)
  assert first == Run("configs/a.py")
  assert second == Run("configs/a.py", {"head.m": 1, "train.seed": 1}, "label")


def test_record_of_a_resumed_run_has_its_other_starts(tmp_path):
  run = Run("configs/a.py")
  finish(tmp_path, run, ppl=2.0)
  path = tmp_path / run.id / "meta.json"
  first = META | {"git": "older", "device": "e"}
  path.write_text(json.dumps(META | {"earlier": [first, first, META]}))
  row = records.of_run(run, tmp_path / run.id)
  assert (row["git"], row["device"]) == ("abc", "d")
  (start,) = row["earlier"]
  assert (start["git"], start["device"]) == ("older", "e")
  assert not records.problem(row)
  path.write_text(json.dumps(META | {"earlier": [META]}))
  assert "earlier" not in records.of_run(run, tmp_path / run.id)
  for damaged in ({"earlier": 3}, {"earlier": ["a"]}):
    path.write_text(json.dumps(META | damaged))
    with pytest.raises(UserError, match=r"meta\.json is damaged"):
      records.of_run(run, tmp_path / run.id)


def test_duplicate_run_is_refused():
  def sweep(add):
    add("configs/a.py", {"train.seed": 0}, name="one")
    add("configs/a.py", {"train.seed": 0}, name="two")

  with pytest.raises(UserError, match="twice"):
    sweepfile.collect(sweep)


def test_sweep_file_without_metrics_is_refused(tmp_path):
  path = tmp_path / "sweep.py"
  path.write_text("def sweep(add): pass\n")
  with pytest.raises(UserError, match=r"must define metrics\(\)"):
    sweepfile.load(path)


def test_results_follow_the_sweep(tmp_path, capsys):
  runs = [Run("configs/a.py", {"train.seed": seed}) for seed in range(3)]
  root, path = tmp_path / "root", tmp_path / "results.jsonl"
  records.update(path, runs, root)
  assert not path.exists()

  finish(root, runs[2], ppl=2.0)
  records.update(path, runs, root)
  finish(root, runs[0], ppl=0.0)
  records.update(path, runs, root)
  rows = records.load(path)
  assert [row["ppl"] for row in rows] == [0.0, 2.0]
  assert rows[0]["overrides"] == {"train.seed": 0}
  assert (rows[0]["jax"], rows[0]["git"]) == ("0", "abc")

  # A run measured elsewhere keeps its line. Lines of runs that left the sweep, or were
  # measured again, are moved to a file beside it.
  assert not capsys.readouterr().out
  records.update(path, runs[:2], tmp_path / "elsewhere")
  assert [row["ppl"] for row in records.load(path)] == [0.0]
  aside = tmp_path / "results.removed.jsonl"
  assert f"removed or replaced: 1; {aside} has them" in capsys.readouterr().out
  finish(root, runs[0], ppl=5.0)
  records.update(path, runs[:2], root)
  assert [row["ppl"] for row in records.load(path)] == [5.0]
  assert [json.loads(line) for line in aside.read_text().splitlines()] == rows[::-1]


def test_results_depend_only_on_the_runs(tmp_path):
  runs = [Run("configs/a.py", {"train.seed": seed}) for seed in range(2)]
  for run in runs:
    finish(tmp_path, run, b=1, a=2)
  path = tmp_path / "results.jsonl"
  records.update(path, runs, tmp_path)
  first = path.read_bytes()
  records.update(path, runs, tmp_path)
  assert path.read_bytes() == first


def test_validation_curve_is_kept(tmp_path):
  run = Run("configs/a.py")
  finish(tmp_path, run, ppl=1.0)
  before = records.of_run(run, tmp_path / run.id)
  lines = [
    {"step": 3, "split": "train", "loss": 9.0},
    {"step": 5, "split": "valid", "nll": 6.1234567, "ppl": 456.0, "seconds": 123456.7},
    {"step": 5, "split": "test", "nll": 1.0, "seconds": 1.0},
    {"step": 1234567, "split": "valid", "nll": 0.5, "seconds": 0.0012345678},
  ]
  text = "".join(json.dumps(line) + "\n" for line in lines)
  (tmp_path / run.id / "metrics.jsonl").write_text(text)
  record = records.of_run(run, tmp_path / run.id)
  curve = [[5, 6.1235, 123460.0], [1234567, 0.5, 0.0012346]]
  assert record == {**before, "curve": curve}


def test_only_paths_can_be_set_on_the_command_line(tmp_path, monkeypatch):
  monkeypatch.setenv("HOME", str(tmp_path))
  assert launch.PathSetting.parse("data.path=~").path == tmp_path
  setting = launch.PathSetting.parse(f"data.path={tmp_path}")
  assert setting.flag == f"--config.data.path={tmp_path}"
  wrong = [f"{key}={tmp_path}" for key in ("train.lr", "data.name", "eval.best")]
  for setting in (*wrong, "train.steps=5", "data.path", f"data.path={tmp_path}/none"):
    with pytest.raises(UserError, match="belong in the sweep file"):
      launch.PathSetting.parse(setting)


def test_every_location_of_data_can_be_set(tmp_path):
  (tmp_path / "a").write_text("")
  for name in config_changes.LOCATIONS:
    setting = launch.PathSetting.parse(f"data.{name}={tmp_path}/a")
    assert setting.flag == f"--config.data.{name}={tmp_path}/a"
  sources = launch.PathSetting("data.sources", tmp_path)
  assert sources.is_for(Run("configs/xmlc.py:data=stdlib_calls"))


def test_paths_go_to_the_runs_that_have_the_key(tmp_path):
  anywhere = launch.PathSetting("data.path", tmp_path)
  ptb, xmlc = Run("configs/ptb.py"), Run("configs/xmlc.py:data=eurlex4k")
  without = [Run("configs/quickstart.py"), Run("configs/xmlc.py:data=stdlib_calls")]
  assert [anywhere.is_for(run) for run in (ptb, xmlc)] == [True, True]
  assert not any(anywhere.is_for(run) for run in without)
  one = launch.PathSetting("data.path", tmp_path, config="ptb")
  assert [one.is_for(run) for run in (ptb, xmlc)] == [True, False]
  launcher = launch.Launcher(tmp_path, [one])
  commands = [launcher.command(run) for run in (ptb, xmlc)]
  assert [one.flag in command for command in commands] == [True, False]
  path = tmp_path / "sweep.py"
  path.write_text("def sweep(add): add('configs/quickstart.py')\nmetrics = list\n")
  with pytest.raises(UserError, match=r"no such config with this key"):
    run_sweep.main([str(path), "--dry_run", "--set", f"data.path={tmp_path}"])


@pytest.mark.parametrize(
  ("overrides", "grid", "says"),
  [
    ({"train.lrr": 1.0}, {}, r"--config\.train\.lrr: .* did you mean 'lr'"),
    ({"train.lr": -1.0}, {}, r"config\.train\.lr is -1\.0"),
    ({"train.lr": float("nan")}, {}, r"config\.train\.lr is nan"),
    ({}, {"train.lr": [1.0, -2.0]}, r"config\.train\.lr is -2\.0"),
  ],
)
def test_wrong_configs_are_named_before_anything_starts(
  overrides, grid, says, tmp_path
):
  path = tmp_path / "sweep.py"
  values = repr(overrides).replace("nan", "float('nan')")
  text = f"def sweep(add): add('configs/ptb.py:full', {values}, name='mine')\n"
  if grid:
    text += f"def search(): return {{'steps': 5, 'grid': {grid}}}\n"
  path.write_text(f"{text}def metrics(): return ['nll']\n")
  wrong = rf"sweep\.py: run 'mine': {says}"
  for more in ([], ["--dry_run"]):
    with pytest.raises(UserError, match=wrong):
      run_sweep.main([str(path), "--root", str(tmp_path / "root"), *more])
  assert not (tmp_path / "root").exists()


def test_rows_stay_while_a_search_lacks_trials(tmp_path):
  """A wider grid, or a lost search.jsonl, does not remove earlier measurements."""
  run = Run("configs/a.py", {"train.seed": 0}, "a")
  rates = Search(5, {"train.lr": [1.0, 2.0]})
  found = campaign_of(tmp_path, [run], search=rates)
  path = found.path.with_name("results.jsonl")
  path.parent.mkdir()
  for trial, nll in zip(rates.trials(run), (3.0, 2.0), strict=True):
    finish(tmp_path, trial, valid_nll=nll)
  finish(tmp_path, run.with_overrides({"train.lr": 2.0}), ppl=7.0)
  found.collect()
  before = records.load(path)
  assert [row["ppl"] for row in before] == [7.0]
  wider = campaign_of(tmp_path, [run], search=Search(5, {"train.lr": [1.0, 2.0, 4.0]}))
  wider.collect()
  assert records.load(path) == before


def test_one_run_of_a_job_array_writes_no_results(tmp_path, monkeypatch):
  runs = [Run("configs/a.py", {"train.seed": seed}, "a") for seed in (0, 1)]
  found = campaign_of(tmp_path, runs)

  def start(launcher, run):
    finish(tmp_path, run, ppl=1.0)
    return subprocess.Popen(["true"])

  monkeypatch.setattr(launch.Launcher, "start", start)
  path = found.path.with_name("results.jsonl")
  path.parent.mkdir()
  assert not failures_of([run_sweep.choose(found, 1)])
  assert not path.exists()
  assert not failures_of([found])
  assert len(records.load(path)) == 2


def test_search_with_a_wrong_metric_does_not_stop_other_sweeps(tmp_path):
  (tmp_path / "bad" / "name").mkdir(parents=True)
  (tmp_path / "good" / "name").mkdir(parents=True)
  run, rates = Run("configs/a.py", name="a"), Search(5, {"train.lr": [1.0]})
  bad = campaign_of(tmp_path / "bad", [run], search=rates)
  finish(tmp_path / "bad", rates.trials(run)[0], valid_loss=1.0)
  good = campaign_of(tmp_path / "good", [run])
  finish(tmp_path / "good", run, ppl=2.0)
  scheduler = run_sweep.Scheduler([bad, good], jobs=1)
  scheduler.run()
  scheduler.collect()
  (reason,) = scheduler.failed.values()
  assert "has no 'valid_nll'" in reason
  (row,) = records.load(good.path.with_name("results.jsonl"))
  assert row["ppl"] == 2.0


def test_missing_data_do_not_stop_other_baselines(tmp_path):
  """Results may come from another machine that has the data."""
  campaigns = []
  for name, own in (("missing", {"data.path": str(tmp_path / "none")}), ("made", {})):
    run = Run(f"configs/ptb.py:full{'' if own else ',runlocal'}", own, "full softmax")
    each = campaign_of(tmp_path / name, [run])
    each.path.parent.mkdir(parents=True)
    finish(tmp_path / name, run, ppl=1.0)
    each.collect()
    campaigns.append(each)
  scheduler = run_sweep.Scheduler(campaigns, jobs=1)
  scheduler.count_baselines()
  (reason,) = scheduler.failed.values()
  assert "no ptb.train.txt" in reason
  rows = records.load(campaigns[1].path.with_name("results.jsonl"))
  assert [row["name"] for row in rows if row.get("baseline")] == [
    "unigram, counted",
    "bigram, counted",
  ]


def test_index_out_of_range_is_refused(tmp_path):
  with pytest.raises(UserError, match="runs 0 to 0"):
    run_sweep.choose(campaign_of(tmp_path, [Run("configs/a.py")]), 1)


def test_sweep_with_a_search_refuses_an_index(tmp_path):
  search = Search(5, {"train.lr": [1.0, 2.0]})
  found = campaign_of(tmp_path, [Run("configs/a.py")], search=search)
  with pytest.raises(UserError, match=r"--index=0: .* has a search; leave --index out"):
    run_sweep.choose(found, 0)


def test_dry_run_marks_finished_runs(tmp_path, capsys):
  path = tmp_path / "sweep.py"
  path.write_text(
    "def sweep(add):\n"
    "  for s in (0, 1): add('configs/quickstart.py', {'train.seed': s})\n"
    "def metrics(): return ['ppl']\n"
  )
  finish(tmp_path / "root", Run("configs/quickstart.py", {"train.seed": 0}), ppl=1.0)
  args = [str(path), "--root", str(tmp_path / "root"), "--dry_run"]
  assert run_sweep.main(args) == 0
  first, second = capsys.readouterr().out.splitlines()
  assert first.startswith("# finished: ")
  assert not second.startswith("#")
  assert (
    "-m largevocab.main --config=configs/quickstart.py --config.train.seed=1" in second
  )
  assert not path.with_name("results.jsonl").exists()


def test_last_line_of_a_log_is_found(tmp_path):
  log = tmp_path / "log.txt"
  log.write_bytes(b"x" * 10_000 + b"\nerror: no such file\n\n")
  assert launch.last_line(log) == "error: no such file"


def test_run_of_another_launcher_is_awaited(tmp_path):
  run = Run("configs/a.py")
  (tmp_path / run.id).mkdir()
  log = (tmp_path / run.id / "log.txt").open("ab")
  fcntl.flock(log, fcntl.LOCK_EX)

  def finish_elsewhere():
    finish(tmp_path, run, ppl=1.0)
    log.close()

  other = threading.Timer(3 * run_sweep.POLL_SECONDS, finish_elsewhere)
  other.start()
  campaign = campaign_of(tmp_path, [run])
  assert campaign.launcher.in_hand(run)
  assert failures_of([campaign]) == {}
  other.join()
  assert not campaign.launcher.in_hand(run)


def test_run_started_by_hand_is_awaited(tmp_path):
  """Its process holds the lock of the workdir, but not that of the log."""
  run = Run("configs/a.py")
  launcher = launch.Launcher(tmp_path, [])

  def train():
    with held(str(tmp_path / run.id)):
      begun.set()
      time.sleep(3 * run_sweep.POLL_SECONDS)
      finish(tmp_path, run, ppl=1.0)

  begun = threading.Event()
  other = threading.Thread(target=train)
  other.start()
  begun.wait()
  assert launcher.in_hand(run)
  assert launcher.start(run) is None
  assert failures_of([campaign_of(tmp_path, [run])]) == {}
  other.join()
  assert not launcher.in_hand(run)


@pytest.mark.skipif(not os.path.exists("/proc/self/environ"), reason="reads /proc")
@pytest.mark.parametrize("given", [None, "glibc.malloc.hugetlb=0"])
def test_runs_use_huge_pages_unless_the_environment_sets_them(
  tmp_path, monkeypatch, given
):
  if given is None:
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
  else:
    monkeypatch.setenv("GLIBC_TUNABLES", given)
  process = launch.Launcher(tmp_path, []).start(Run("configs/missing.py"))
  environment = []
  while process.poll() is None and len(environment) < 2:  # the program is being loaded
    environment = pathlib.Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
  process.kill()
  process.wait()
  asked = given or "glibc.malloc.hugetlb=1"
  assert f"GLIBC_TUNABLES={asked}".encode() in environment


def test_spare_runs_have_one_core_each_and_the_lowest_priority():
  """Also relative to processes of other sessions."""
  command = [sys.executable, "-c", "input()"]
  pipe = {"stdin": subprocess.PIPE, "start_new_session": True}
  processes = [subprocess.Popen(command, **pipe) for _ in range(2)]
  for slot, process in enumerate(processes):
    launch.give_core(process, slot)
    assert os.getpriority(os.PRIO_PROCESS, process.pid) == 19
    session = pathlib.Path(f"/proc/{process.pid}/autogroup")
    weighed = pathlib.Path("/proc/sys/kernel/sched_autogroup_enabled")
    if (
      weighed.exists() and weighed.read_text() == "1\n" and os.access(session, os.W_OK)
    ):
      assert session.read_text().endswith("nice 19\n")
  if hasattr(os, "sched_getaffinity"):
    cores = [os.sched_getaffinity(process.pid) for process in processes]
    assert [len(own) for own in cores] == [1, 1]
    assert len(set.union(*cores)) == min(2, len(os.sched_getaffinity(0)))
  for process in processes:
    process.communicate(b"\n", timeout=60)


def test_baselines_are_counted_for_the_data_of_chosen_runs(tmp_path):
  runs = [
    Run("ptb:full,runlocal", {"train.lr": rate}, f"{data}: full")
    for rate, data in enumerate("abc", start=1)
  ]
  found = campaign_of(tmp_path, runs)
  path = found.path.with_name("results.jsonl")
  path.parent.mkdir()
  for run in runs:
    finish(tmp_path, run, ppl=1.0)
  found.collect()
  names = lambda: [row["name"] for row in records.load(path) if row.get("baseline")]
  of = lambda *chosen: dataclasses.replace(found, names=frozenset(chosen))
  of("a: full").count_baselines()
  assert names() == ["a: unigram, counted", "a: bigram, counted"]
  before = path.read_text()
  of("a: full").count_baselines()
  assert path.read_text() == before
  of("a: full", "b: full").count_baselines()
  assert names()[2:] == ["b: unigram, counted", "b: bigram, counted"]


def test_baselines_are_counted_for_new_data_seeds(tmp_path):
  runs = [Run("ptb:full,runlocal", {"data.seed": seed}, "full") for seed in (0, 1)]
  for num in (1, 2):
    found = campaign_of(tmp_path, runs[:num])
    path = found.path.with_name("results.jsonl")
    path.parent.mkdir(exist_ok=True)
    finish(tmp_path, runs[num - 1], ppl=1.0)
    found.collect()
    found.count_baselines()
  rows = [row for row in records.load(path) if row.get("baseline")]
  seeds = [row["overrides"]["data.seed"] for row in rows if "unigram" in row["name"]]
  assert seeds == [0, 1]
