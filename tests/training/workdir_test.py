"""Workdirs: their owner, changes allowed when a run continues, and damaged files."""

import json
import pathlib
import shutil
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest

from largevocab import config, main, train
from largevocab.errors import UserError
from largevocab.training.config_changes import (
  LOCATIONS,
  Change,
  check_ended,
  check_model,
)
from largevocab.training.json_files import write_json
from largevocab.training.lock import is_held
from largevocab.training.state import restore
from largevocab.training.workdir import changes_of
from tests.long import others_long

REPOSITORY = pathlib.Path(__file__).parents[2]
TINY = f"--config={REPOSITORY}/configs/ptb.py:sampled/pps,runlocal"


@pytest.fixture
def run(capsys):
  """Runs the program; returns exit status, stdout and the lines on stderr."""

  def call(*flags):
    status = main.run(["main", *map(str, flags)])
    out, err = capsys.readouterr()
    return status, out, err.splitlines()

  return call


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  workdir = tmp_path_factory.mktemp("trained") / "run"
  assert main.run(["main", TINY, f"--workdir={workdir}"]) == 0
  return workdir


@pytest.fixture
def workdir(trained, tmp_path):
  """A copy of a finished run."""
  return shutil.copytree(trained, tmp_path / "run")


def read(path):
  return json.loads(path.read_text())


def leaves(workdir):
  exp = config.build(config.of_workdir(str(workdir)))
  state = restore(exp, str(workdir), "latest")[1]
  return jax.tree.leaves(state._replace(key=jax.random.key_data(state.key)))


NAMES = ["a[1]", "a\\b", "a*b?", "a b", "ünï", "gs:", "{x}", "~", "%d"]


def test_workdir_can_have_any_name(run, tmp_path):
  """The trained model is found again, and no file is written elsewhere."""
  workdir = tmp_path.joinpath(*NAMES)  # nested directories
  flags = [f"--workdir={workdir}", "--config.log.monitor_every_steps=0"]
  assert run(TINY, *flags)[0] == 0
  for parent, name in zip(reversed(workdir.parents), workdir.parts[1:], strict=True):
    if parent.is_relative_to(tmp_path):
      assert [path.name for path in parent.iterdir()] == [name]
  status, out, _ = run("--mode=evaluate", f"--workdir={workdir}")
  assert status == 0
  assert json.loads(out)["test_nll"] == read(workdir / "result.json")["test_nll"]


def test_home_directory_is_expanded(run, workdir, monkeypatch):
  monkeypatch.setenv("HOME", str(workdir.parent))
  monkeypatch.chdir(workdir.parent)
  there = f"--workdir=~/{workdir.name}"
  status, _, lines = run(TINY, there, "--config.train.max_steps=3")
  assert status == 1
  assert f"{workdir}" in lines[-1]
  assert run("--mode=evaluate", there)[0] == 0
  assert not (workdir.parent / "~").exists()


@pytest.mark.parametrize("workdir", ["~nosuch/a", "gs://bucket/a", "a\nb", "a\udcff"])
def test_impossible_workdir_is_reported_in_one_line(
  run, tmp_path, monkeypatch, workdir
):
  monkeypatch.chdir(tmp_path)
  status, _, lines = run(TINY, f"--workdir={workdir}")
  assert status == 1
  (line,) = lines
  assert line.startswith(f"error: --workdir is {workdir!r}")
  assert not list(tmp_path.iterdir())


def test_file_as_workdir_is_refused(run, tmp_path):
  (tmp_path / "a").write_text("mine")
  for workdir in (tmp_path / "a", tmp_path / "a" / "b"):
    status, _, lines = run(TINY, f"--workdir={workdir}")
    assert status == 1
    assert f"{workdir} cannot be written" in lines[-1]
    assert "the path, or a part of it, is a file" in lines[-1]
    assert "checkpoint" not in lines[-1]


@pytest.mark.long
def test_only_one_process_can_train_in_a_workdir(run, workdir):
  """A second process names the first and changes nothing; evaluation still works."""
  code = (
    "import sys; from largevocab.training.lock import held\n"
    f"with held({str(workdir)!r}): print('in', flush=True); sys.stdin.read()"
  )
  pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
  other = subprocess.Popen([sys.executable, "-c", code], cwd=REPOSITORY, **pipes)
  assert other.stdout.readline() == b"in\n"
  assert is_held(workdir)
  before = {path: path.read_bytes() for path in workdir.iterdir() if path.is_file()}
  status, _, lines = run(TINY, f"--workdir={workdir}", "--config.train.lr=0.5")
  assert status == 1
  assert f"error: {workdir} is in use: process {other.pid} on " in lines[-1]
  assert " (since 20" in lines[-1]
  assert before == {path: path.read_bytes() for path in before}
  assert run("--mode=evaluate", f"--workdir={workdir}")[0] == 0
  # The lock of a killed run is no obstacle.
  other.send_signal(signal.SIGKILL)
  other.communicate()
  assert not is_held(workdir)
  assert run(TINY, f"--workdir={workdir}")[0] == 0


def test_links_in_a_workdir_are_not_followed(run, tmp_path):
  mine, workdir = tmp_path / "mine", tmp_path / "run"
  mine.write_text("mine")
  workdir.mkdir()
  names = ["config.json", "meta.json", "result.json", "metrics.jsonl"]
  names += ["vocabulary.txt", "metrics.jsonl.damaged"]
  for name in names:
    (workdir / f"{name}.tmp").symlink_to(mine)
  for name in ("meta.json", "metrics.jsonl", "vocabulary.txt", "lock"):
    (workdir / name).symlink_to(mine)
  status, _, lines = run(TINY, f"--workdir={workdir}")
  assert (status, len(lines)) == (1, 1)
  assert f"{workdir}/lock cannot be written" in lines[0]
  assert "the path is a link, or a loop of links: remove it" in lines[0]
  (workdir / "lock").unlink()
  assert run(TINY, f"--workdir={workdir}")[0] == 0
  assert mine.read_text() == "mine"
  assert not any((workdir / name).is_symlink() for name in names if name != "lock")


ODD = [
  *("", "{", "[]", "7", "null", '"text"', "[" * 10**5, '{"train": ' * 10**5, "\x00"),
  *('{"steps": "5"}', '{"steps": [[5]]}', '{"steps": null}', '{"5": true}'),
  *('{"earlier": 7}', '{"earlier": {"a": 1}}', '{"train": [1, 2]}', '{"eval": "x"}'),
  *('{"steps": 1' + "0" * 400 + "}", '{"steps": 1' + "0" * 9999 + "}"),
  '{"data": {"name": {}}, "train": null, "log": [], "x.y": 1, "__class__": 2}',
]


FILES = [
  *("config.json", "meta.json", "data.json", "result.json"),
  *("checkpoints/valid_cost.json", "checkpoints/end_cost.json"),
]


@pytest.mark.parametrize(
  ("name", "content"),
  others_long(
    [(name, content) for name in FILES for content in ODD],
    [(FILES[i % len(FILES)], content) for i, content in enumerate(ODD)],
  ),
)
def test_unexpected_file_content_is_reported_in_one_line(run, workdir, name, content):
  """Unless it is not read, or is valid. There is never a traceback."""
  assert (workdir / name).exists()
  (workdir / name).write_text(content)
  for flags in (["--mode=evaluate", "--checkpoint=best"], [TINY]):
    status, _, lines = run(*flags, f"--workdir={workdir}")
    errors = [line for line in lines if line.startswith("error: ")]
    assert errors == lines[-1:] * status
    assert all(len(line) < 600 for line in errors)


def test_changes_of_a_config_are_listed_or_refused(tmp_path):
  there = {
    "train": {"lr": 1.0, "epochs": 1},
    "eval": {"batch_size": 5, "unroll": 3},
    "log": {"a": 1},
  }
  assert changes_of(str(tmp_path), there) == []
  write_json(str(tmp_path / "config.json"), there)
  assert changes_of(str(tmp_path), {}) == []  # there is no run yet
  write_json(str(tmp_path / "result.json"), {})
  new = {
    "train": {"lr": 1.0, "epochs": 2},
    "eval": {"batch_size": 7, "unroll": 3},
    "log": {"a": 1},
  }
  assert changes_of(str(tmp_path), new) == [
    Change("config.eval.batch_size", 5, 7),
    Change("config.train.epochs", 1, 2),
  ]
  new["train"]["lr"] = 2.0
  with pytest.raises(UserError, match=r"config\.train\.lr = 1.0, not 2.0"):
    changes_of(str(tmp_path), new)
  longer = there | {"eval": {"batch_size": 5, "unroll": 9}}
  with pytest.raises(UserError, match=r"config\.eval\.unroll = 3, not 9"):
    changes_of(str(tmp_path), longer)


@pytest.mark.parametrize("name", LOCATIONS)
def test_locations_of_data_do_not_change_a_run_that_has_ended(name):
  was, moved, other = (
    {"data": {name: path, "seed": seed}, "eval": {"word_pairs": [path]}}
    for path, seed in (("old", 0), ("new", 0), ("old", 1))
  )
  check_ended("run", was, moved, "")
  check_model("run", was, moved)
  for check, more in ((check_ended, [""]), (check_model, [])):
    with pytest.raises(UserError, match=r"config\.data\.seed = 0, not 1"):
      check("run", was, other, *more)


@pytest.mark.long
def test_extended_run_ends_bitwise_like_a_long_one(run, tmp_path):
  """Keys that do not affect the training can change in between."""
  keys = {"train.lr": 0.5, "model.dropout": 0.3, "train.epochs": 100}
  keys |= {"checkpoint.every_steps": 7, "log.every_steps": 4, "train.decay": 0.9}
  flags = [f"--config={REPOSITORY}/configs/ptb.py:spherical/taylor,runlocal"]
  flags += [f"--config.{key}={value}" for key, value in keys.items()]
  whole, short = tmp_path / "whole", tmp_path / "short"
  assert run(*flags, "--config.train.max_steps=20", f"--workdir={whole}")[0] == 0
  flags.append(f"--workdir={short}")
  assert run(*flags, "--config.train.max_steps=9")[0] == 0
  first = read(short / "result.json")
  changed = ["--config.train.max_steps=20", "--config.log.every_steps=10"]
  changed += ["--config.checkpoint.keep=1", "--config.eval.batch_size=3"]
  status, _, lines = run(*flags, *changed)
  assert status == 0
  assert any(line.endswith("going on from step 9") for line in lines)
  for a, b in zip(leaves(whole), leaves(short), strict=True):
    np.testing.assert_array_equal(a, b)

  assert read(short / "result.1.json") == first
  result = read(short / "result.json")
  assert (first["steps"], result["steps"]) == (9, 20)
  settings, meta = read(short / "config.json"), read(short / "meta.json")
  assert settings["train"]["max_steps"] == 20
  assert settings["eval"]["batch_size"] == 3
  values = [{"old": 4, "new": 3}, {"old": 9, "new": 20}]
  assert [c for c in meta["changed"] if c["key"] == "config.train.max_steps"] == [
    {"key": "config.train.max_steps", **values[1], "step": 9}
  ]
  assert {"key": "config.eval.batch_size", **values[0], "step": 9} in meta["changed"]
  assert len(meta["earlier"]) == 1
  assert "changed" not in meta["earlier"][0]

  train = list(map(json.loads, (short / "metrics.jsonl").open()))
  train = [line["step"] for line in train if line["split"] == "train"]
  assert train == [4, 8, 10, 20]


def test_logged_losses_are_means_since_the_last_line(run, tmp_path):
  """Steps before a stop count, also if the interval between lines changes."""
  flags = [f"--config={REPOSITORY}/configs/ptb.py:full,runlocal"]
  flags += ["--config.train.epochs=9", "--config.log.monitor_every_steps=0"]
  lines = {}
  for name, steps in (("one", {10: 1}), ("two", {3: 4, 10: 5})):
    workdir = tmp_path / name
    for end, every in steps.items():
      keys = [f"--config.train.max_steps={end}", f"--config.log.every_steps={every}"]
      assert run(*flags, *keys, f"--workdir={workdir}")[0] == 0
    found = map(json.loads, (workdir / "metrics.jsonl").open())
    lines[name] = {x["step"]: x["loss"] for x in found if x["split"] == "train"}
  one = [lines["one"][step] for step in range(1, 11)]
  assert list(lines["two"]) == [5, 10]
  assert lines["two"][5] == pytest.approx(np.mean(one[:5]), rel=1e-5)
  assert lines["two"][10] == pytest.approx(np.mean(one[5:]), rel=1e-5)


def test_finished_run_can_be_evaluated_again(run, workdir):
  flags = [TINY, f"--workdir={workdir}"]
  before, meta = read(workdir / "result.json"), read(workdir / "meta.json")
  assert run(*flags, "--config.log.every_steps=3")[0] == 0  # there is nothing to do
  assert read(workdir / "result.json") == before
  assert read(workdir / "meta.json")["earlier"] == [meta]
  assert read(workdir / "config.json")["log"]["every_steps"] == 3
  changed = ["--config.log.every_steps=3", "--config.eval.ranking_k=7"]
  assert run(*flags, *changed)[0] == 0
  result = read(workdir / "result.json")
  assert read(workdir / "result.1.json") == before
  assert result["steps"] == before["steps"]
  assert result["test_nll"] == before["test_nll"]
  assert result.keys() - before.keys() == {
    *("valid_recall@7", "valid_mrr@7", "test_recall@7", "test_mrr@7"),
    *("valid_recall@7_se", "test_recall@7_se"),
  }
  lines = list(map(json.loads, (workdir / "metrics.jsonl").open()))
  at_the_end = [line for line in lines if line["step"] == 5]
  assert sum(line["split"] == "test" for line in at_the_end) == 1
  assert all("mrr@7" in x for x in at_the_end if x["split"] in ("valid", "test"))


def test_old_result_stays_until_the_new_log_is_open(run, workdir, monkeypatch):
  """If it is killed in between, the run is still finished and is evaluated again."""
  flags = [TINY, f"--workdir={workdir}", "--config.eval.ranking_k=7"]
  before = read(workdir / "result.json")

  def killed(*args):
    raise UserError("killed")

  with monkeypatch.context() as patch:
    patch.setattr(train, "RunLog", killed)
    assert run(*flags)[0] == 1
  assert read(workdir / "result.json") == before
  assert run(*flags)[0] == 0
  lines = list(map(json.loads, (workdir / "metrics.jsonl").open()))
  (test,) = [line for line in lines if line["split"] == "test"]
  assert "mrr@7" in test


def test_fewer_steps_than_were_trained_are_refused_in_one_line(run, workdir):
  flags = [TINY, f"--workdir={workdir}"]
  before = {path: path.read_bytes() for path in workdir.glob("*.json*")}
  status, _, lines = run(*flags, "--config.train.max_steps=3")
  assert status == 1
  words = "trained for 5 steps, but train.max_steps and train.epochs ask for 3"
  assert words in lines[-1]
  assert before == {path: path.read_bytes() for path in workdir.glob("*.json*")}


def test_finished_run_is_shown_without_locking(run, workdir):
  """The run may belong to another user, or be on a read-only disk."""
  flags = [TINY, f"--workdir={workdir}"]
  (workdir / "lock").unlink()
  before = {path: path.stat().st_mtime_ns for path in workdir.iterdir()}
  assert run(*flags)[0] == 0
  assert before == {path: path.stat().st_mtime_ns for path in workdir.iterdir()}


def test_run_is_not_continued_on_other_data(run, tmp_path):
  """Class ids would mean other words. Nothing is written, not even the class names."""
  text, workdir = tmp_path / "a.txt", tmp_path / "run"
  words = [f"w{i % 7}" for i in range(400)] + ["w0"] * 5
  text.write_text("\n".join(words) + "\n")
  flags = [f"--config={REPOSITORY}/configs/text.py:sampled/pps,hidden=8"]
  flags += [f"--config.data.train={text}", f"--config.data.cache_dir={tmp_path}/cache"]
  flags += ["--config.train.batch_size=2"]
  flags += ["--config.eval.batch_size=1", "--config.train.max_steps=2"]
  assert run(*flags, f"--workdir={workdir}")[0] == 0
  names = (workdir / "vocabulary.txt").read_bytes()
  # The same number of words and counts.
  text.write_text(text.read_text().replace("w0", "x0"))
  modes = [["--mode=evaluate"], ["--mode=predict", "--text=w1"]]
  for more in ([*flags[:-1], "--config.train.max_steps=3"], *modes):
    status, _, lines = run(*more, f"--workdir={workdir}")
    assert status == 1
    assert "vocabulary.txt has " in lines[-1]
    assert "but the data now has " in lines[-1]
    assert "restore the data of the run, or choose another --workdir" in lines[-1]
    assert (workdir / "vocabulary.txt").read_bytes() == names


@pytest.mark.long
def test_run_continues_with_moved_data(run, tmp_path):
  """But not with other data."""
  paths = [tmp_path / name for name in ("old", "new", "other")]
  for path, name in zip(paths, ("w", "w", "x"), strict=True):
    path.mkdir()
    words = " ".join(f"{name}{i % 7}" for i in range(200)) + "\n"
    for split in ("train", "valid", "test"):
      (path / f"ptb.{split}.txt").write_text(words)
  flags = [f"--config={REPOSITORY}/configs/ptb.py:sampled/pps"]
  flags += ["--config.model.embed=8", "--config.model.hidden=8"]
  flags += ["--config.train.batch_size=2", "--config.eval.batch_size=1"]
  flags += [f"--workdir={tmp_path / 'run'}"]
  asked = lambda path, steps: run(
    *flags, f"--config.data.path={path}", f"--config.train.max_steps={steps}"
  )
  status, _, lines = asked(paths[0], 2)
  assert status == 0, lines
  shutil.rmtree(paths[0])
  status, _, lines = asked(paths[1], 4)
  assert status == 0
  assert any(line.endswith("going on from step 2") for line in lines)
  changed = read(tmp_path / "run" / "meta.json")["changed"]
  assert [each["key"] for each in changed] == [
    "config.data.path", "config.train.max_steps"
  ]  # fmt: skip
  for steps in (4, 6):  # nothing is left to do, or is
    status, _, lines = asked(paths[2], steps)
    assert status == 1
    assert "these are not the data of the run" in lines[-1]
  assert read(tmp_path / "run" / "config.json")["data"]["path"] == str(paths[1])


@pytest.mark.parametrize("split", others_long(["train", "valid", "test"], ["valid"]))
def test_other_data_with_the_same_classes_and_counts_is_refused(run, tmp_path, split):
  """Held-out texts that are named anew may differ, and data of runs without digests."""
  words = [f"w{i % 7}" for i in range(200)]
  paths = {split: tmp_path / f"{split}.txt" for split in ("train", "valid", "test")}
  for path in paths.values():
    path.write_text(" ".join(words))
  flags = [f"--config={REPOSITORY}/configs/text.py:sampled/pps,hidden=8"]
  flags += [f"--config.data.{name}={path}" for name, path in paths.items()]
  flags += ["--config.train.batch_size=2", "--config.eval.batch_size=1"]
  workdir = tmp_path / "run"
  there = f"--workdir={workdir}"
  assert run(*flags, "--config.train.max_steps=2", there)[0] == 0
  paths[split].write_text(" ".join(reversed(words)))
  longer, evaluate = [*flags, "--config.train.max_steps=3"], ["--mode=evaluate"]
  for asked in (longer, evaluate, ["--mode=predict", "--text=w1"]):
    status, _, lines = run(*asked, there)
    assert status == 1
    assert f"{workdir}/data.json has a digest of {split!r} that differs" in lines[-1]
  moved = paths[split].rename(tmp_path / "moved.txt")
  evaluate.append(f"--config.data.{split}={moved}")
  assert run(*evaluate, there)[0] == (split == "train")
  moved.write_text(" ".join(words))
  assert run(*evaluate, there)[0] == 0
  moved.rename(paths[split]).write_text(" ".join(reversed(words)))
  (workdir / "data.json").unlink()
  assert run(*longer, there)[0] == 0


@pytest.mark.parametrize("key", ["hide_seen", "unlabelled"])
def test_settings_of_the_best_metric_cannot_change_during_a_run(tmp_path, key):
  there = {"eval": {"best": "", key: True}}
  write_json(str(tmp_path / "config.json"), there)
  write_json(str(tmp_path / "result.json"), {})
  new = {"eval": {"best": "", key: False}}
  assert changes_of(str(tmp_path), new) == [
    Change(f"config.eval.{key}", True, False)
  ]  # fmt: skip
  for old in (there, new):
    old["eval"]["best"] = "hr@10"
  write_json(str(tmp_path / "config.json"), there)
  with pytest.raises(UserError, match=rf"{key} = True, not False"):
    changes_of(str(tmp_path), new)


@pytest.mark.parametrize("steps", [5, 6])  # nothing is left to do, or is
def test_run_without_its_config_is_left_untouched(run, workdir, steps):
  (workdir / "config.json").unlink()
  before = sorted(workdir.rglob("*"))
  more = f"--config.train.max_steps={steps}"
  status, _, lines = run(TINY, f"--workdir={workdir}", more, "--config.train.lr=0.5")
  assert status == 1
  assert "config.json is missing" in lines[-1]
  assert "restore the file, or choose another --workdir" in lines[-1]
  assert sorted(workdir.rglob("*")) == before


def test_unfinished_save_does_not_count_as_a_run(tmp_path):
  write_json(str(tmp_path / "config.json"), {"train": {"lr": 1.0}})
  saves = tmp_path / "checkpoints"
  (saves / "2.orbax-checkpoint-tmp-0").mkdir(parents=True)
  other = {"train": {"lr": 2.0}}
  assert changes_of(str(tmp_path), other) == []
  (saves / "2").mkdir()
  with pytest.raises(UserError, match=r"train\.lr = 1\.0, not 2\.0"):
    changes_of(str(tmp_path), other)


def test_change_of_the_head_is_reported_first(run, workdir):
  other = f"--config={REPOSITORY}/configs/ptb.py:full,runlocal"
  status, _, lines = run(other, f"--workdir={workdir}")
  assert status == 1
  assert "holds a run with config.head.name = 'sampled', not 'full'" in lines[-1]
