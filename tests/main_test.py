"""The command line: it works, and every error is reported in one line."""

import contextlib
import itertools
import json
import lzma
import os
import pathlib
import resource
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest

from largevocab import main
from largevocab.training import console
from largevocab.training.checkpoint import Checkpoints
from largevocab.training.json_files import write_json
from tests.long import others_long

REPOSITORY = pathlib.Path(__file__).parents[1]
PTB = f"--config={REPOSITORY}/configs/ptb.py"
TINY = f"{PTB}:sampled/pps,runlocal"
ITEMS = f"--config={REPOSITORY}/configs/next_item.py"
TINY_ITEMS = f"{ITEMS}:sampled/pps,runlocal"
XMLC = f"--config={REPOSITORY}/configs/xmlc.py"
TEXT = f"--config={REPOSITORY}/configs/text.py:full"
# Tasks of a failed save or restore remain and find their event loop closed.
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in")
LINES = "the cat sat on the mat\na dog sat on a cat\n" * 40


@pytest.fixture
def run(capsys):
  """Runs the program; returns exit status, stdout and the lines on stderr."""

  def call(*flags):
    status = main.run(["main", *map(str, flags)])
    out, err = capsys.readouterr()
    return status, out, err.splitlines()

  return call


@pytest.fixture
def fails(run):
  """Runs the program, which must fail with a last line that has all of these words."""

  def call(flags, *words):
    status, out, lines = run(*flags)
    assert status == 1
    assert out == ""
    assert [line for line in lines if line.startswith("error: ")] == lines[-1:]
    for word in words:
      assert str(word) in lines[-1]
    return lines[-1]

  return call


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  workdir = tmp_path_factory.mktemp("trained") / "run"
  assert main.run(["main", TINY, f"--workdir={workdir}"]) == 0
  return workdir


@pytest.fixture
def workdir(trained, tmp_path):
  """A copy of a finished run, to be damaged."""
  return shutil.copytree(trained, tmp_path / "run")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
  monkeypatch.setenv("LARGEVOCAB_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
  ("flags", "words"),
  [
    ([TINY, "--config.trian.epochs=1"], ["--config.trian.epochs", "'train'"]),
    ([TINY, "--config.model.hiden=1"], ["--config.model.hiden", "'hidden'"]),
    ([TINY, "--config.model.hidden=3.5"], ["--config.model.hidden=3.5", "int"]),
    ([TINY, "--config.model.hidden=abc"], ["--config.model.hidden=abc", "int"]),
    ([TINY, "--config.model.hidden"], ["--config.model.hidden", "value"]),
    ([TINY, "--config.head.bias=maybe"], ["--config.head.bias=maybe", "bool"]),
    ([TINY, "--noconfig.head.bias=3"], ["--noconfig.head.bias=3", "takes no value"]),
    ([TINY, "--noconfig.train.lr"], ["--noconfig.train.lr", "type bool"]),
    ([TINY, f"--config.train.seed={2**63}"], [f"config.train.seed is {2**63}"]),
    ([TINY, "--config.model.init_scale=nan"], ["config.model.init_scale is nan"]),
    ([TINY, "--config.model.forget_bias=nan"], ["config.model.forget_bias is nan"]),
    ([TINY, "--config.head.exact_frequent=99999"], ["is 99999", "there are only 1000"]),
    ([TINY, "--config.train=3"], ["--config.train", "batch_size"]),
    ([TINY, "--config.train.lr.x=3"], ["--config.train.lr.x"]),
    ([TINY, "--config.head.name=full"], ["--config.head.name", "after the colon"]),
    (
      [TINY, "--config.train.batch_size=0"],
      ["config.train.batch_size is 0; it must be at least 1"],
    ),
    ([TINY, "--config.train.lr=-1"], ["config.train.lr is -1.0; it must be above 0"]),
    (
      [TINY, "--config.train.lr=nan"],
      ["config.train.lr is nan; it must be a finite number"],
    ),
    (
      [TINY, "--config.train.epochs=inf"],
      ["config.train.epochs is inf; it must be at most"],
    ),
    (
      [TINY, "--config.train.seed=-1"],
      ["config.train.seed is -1; it must be at least 0"],
    ),
    ([TINY, "--config.eval.unroll=0"], ["eval.unroll"]),
    ([TINY, "--config.checkpoint.keep=0"], ["checkpoint.keep"]),
    ([TINY, "--config.log.every_steps=0"], ["log.every_steps"]),
    ([TINY, "--config.model.layers=0"], ["model.layers", "at least 1"]),
    ([TINY, "--config.model.dropout=1.5"], ["model.dropout", "below 1"]),
    ([TINY, "--config.model.dtype=int8"], ["model.dtype", "bfloat16"]),
    ([TINY, "--config.head.num_samples=0"], ["head.num_samples", "at least 1"]),
    ([TINY, "--config.data.num_tokens=10"], ["10 tokens", "4 * 5", "reduce"]),
    ([TINY, "--config.data.num_classes=1"], ["data.num_classes", "at least 2"]),
    ([TINY, "--confg.data.num_classes=3"], ["--confg", "'config'"]),
    ([TINY, "--wrokdir=x"], ["--wrokdir", "'workdir'"]),
    ([TINY, "--mode=tain"], ["--mode=tain", "train"]),
    ([TINY, "--top_k=0"], ["--top_k=0", "positive"]),
    ([TINY, "--checkpoint=best"], ["--checkpoint is only for --mode=evaluate and"]),
    ([TINY, "stray"], ["'stray'"]),
    ([], ["--config is missing"]),
    ([PTB.replace("ptb", "pbt")], ["configs/pbt.py", "configs/ptb.py'"]),
    (["--config=pbt:full"], ["no config 'pbt'", ".py", "did you mean 'ptb'"]),
    (["--config=:full"], ["no config ''", "quickstart"]),
    ([f"--config={REPOSITORY}/configs"], ["configs is a directory"]),
    (["--config=/no/such/ptb.py"], ["no file /no/such/ptb.py", "give --config=ptb"]),
    (["--config=/dev/null"], ["/dev/null is not a regular file"]),
    (
      [PTB + ":fulll"],
      ["'fulll'", "hierarchical, huffman, importance, nce", "ranking, sampled"],
    ),
    ([PTB + ":sampled/ppss"], ["'ppss'", "pps"]),
    ([PTB + ":full/pps"], ["'full' takes neither sampler nor loss", "drop"]),
    ([PTB + ":full,runlokal"], ["'runlokal'", "'runlocal'"]),
    ([PTB + ":full,runlocal=2"], ["runlocal", "bool"]),
    ([PTB + ":full,head=adaptive"], ["'head' is given twice"]),
    ([PTB + ":full,runlocal,runlocal=false"], ["'runlocal' is given twice"]),
    ([XMLC + ":data=eurlex4k,data=bibtex"], ["'data' is given twice"]),
    ([TINY, "--workdir=other"], ["--workdir=other", "already defined as"]),
    ([PTB], ["data.path is empty"]),
    ([PTB, "--config.data.path=/no/such"], ["data.path", "/no/such"]),
    (
      [ITEMS, "--config.data.path=/no/such"],
      ["diginetica", "/no/such", "put it there"],
    ),
    ([ITEMS + ":full,data=video_game"], ["'video_game'", "video_games"]),
    ([ITEMS + ":sampled/bigram,runlocal"], ["bigram", "data set of text"]),
    ([TINY_ITEMS, "--config.train.unroll=3"], ["unroll is 3", "set train.unroll"]),
    ([TINY_ITEMS, "--config.data.history=2"], ["has 2 items", "model.history is 3"]),
    ([TINY_ITEMS, "--config.train.batch_size=1000"], ["999", "1000", "reduce"]),
    ([TINY_ITEMS, "--config.eval.ranking_k=1001"], ["ranking_k is 1001", "lower it"]),
  ],
)
def test_command_mistake_is_reported_in_one_line(fails, tmp_path, flags, words):
  fails([f"--workdir={tmp_path}/run", *flags], *words)


def test_workdir_is_required(fails):
  fails([TINY], "--workdir is missing")


def test_corrected_command_can_use_the_same_workdir(run, fails, tmp_path):
  fails([f"--workdir={tmp_path}", TINY, "--config.data.num_tokens=10"], "10 tokens")
  assert run(f"--workdir={tmp_path}", TINY)[0] == 0


@pytest.mark.parametrize(
  ("source", "words"),
  [
    ("import nothing_of_this_name", ["line 1", "nothing_of_this_name"]),
    ("\n\ndef get_config(arg)\n  pass", ["line 3", "SyntaxError"]),
    ("def get_config(arg):\n  return arg + 1", ["line 2", "TypeError"]),
    ("def get_config(arg):\n  return 3", ["get_config"]),
    ("def config(arg):\n  return 3", ["get_config"]),
    ("\nimport sys; sys.exit(0)", ["line 2", "SystemExit: 0"]),
    ("def get_config(arg):\n  exit()", ["line 2", "SystemExit"]),
    ("\n\nraise KeyboardInterrupt", ["line 3", "KeyboardInterrupt"]),
    ("import asyncio\nraise asyncio.CancelledError", ["line 2", "CancelledError"]),
    ("eval('1 +')", ["line 1", "SyntaxError"]),
  ],
)
def test_config_file_error_is_reported_in_one_line(fails, tmp_path, source, words):
  path = tmp_path / "mine.py"
  path.write_text(source)
  fails([f"--config={path}", f"--workdir={tmp_path}/run"], path, *words)


@pytest.mark.parametrize(
  ("encoding", "word"),
  [("utf-16", "UTF-16"), ("utf-32", "UTF-32"), ("utf-16-be", "UTF-16 or UTF-32")],
)
def test_config_encoding_error_is_reported_in_one_line(fails, tmp_path, encoding, word):
  path = tmp_path / "mine.py"
  path.write_text("def get_config(arg):\n  pass\n", encoding)
  words = [path, word, "UTF-8"]
  assert "null" not in fails([f"--config={path}", f"--workdir={tmp_path}/run"], *words)


def test_pipe_as_config_is_reported_in_one_line(fails, tmp_path):
  path = tmp_path / "pipe.py"
  os.mkfifo(path)
  fails([f"--config={path}", f"--workdir={tmp_path}/run"], path, "not a regular file")


def write_text(path: pathlib.Path, content: bytes) -> pathlib.Path:
  path.write_bytes(content)
  return path


@pytest.mark.parametrize(
  ("name", "content", "words"),
  [
    ("a.txt", b"", ["no words"]),
    ("a.txt.xz", lzma.compress(LINES.encode())[:-20], ["cut short"]),
    ("a.txt.xz", b"no archive", ["not a valid .xz"]),
    ("a.txt", b"the cat\n\x00\x01\n", ["line 2", "NUL"]),
    ("a.txt", b"the cat\nthe \xff\n", ["line 2", "UTF-8"]),
    ("a.txt", b"cat\n" * 400, ["vocabulary needs 2"]),
    ("a.txt", b"the cat sat\n" * 20, ["tokens", "batch_size"]),
  ],
)
def test_text_file_error_is_reported_in_one_line(fails, tmp_path, name, content, words):
  path = write_text(tmp_path / name, content)
  flags = [TEXT, f"--config.data.train={path}", f"--workdir={tmp_path}/run"]
  line = fails(flags, *words)
  assert "cat" not in line.split()[-1]
  assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize(
  ("file", "damage"),
  [
    ("train.npy", lambda path: path.write_bytes(path.read_bytes()[:-40])),
    ("train.npy", lambda path: path.write_bytes(b"nothing")),
    ("vocabulary.txt", lambda path: path.write_text("one two three")),
    ("corpus.json", lambda path: path.unlink()),
    ("train.npy", lambda path: path.write_bytes(path.read_bytes()[:300] + bytes(500))),
    ("vocabulary.txt", lambda path: path.write_text("dog\t99\n" + path.read_text())),
    ("valid.npy", lambda path: np.save(path, 10**6 + np.load(path))),
    ("train.npy", lambda path: np.save(path, np.load(path) - 1)),
  ],
)
def test_damaged_cache_is_rebuilt(fails, tmp_path, file, damage):
  path = write_text(tmp_path / "a.txt", LINES.encode())
  flags = [TEXT, f"--config.data.train={path}", f"--workdir={tmp_path}/run"]
  # The batch is too large to train, but the text is encoded.
  flags += ["--config.train.batch_size=1000"]
  fails(flags, "tokens")
  (encoded,) = (tmp_path / "cache").glob("*/" + file)
  whole = encoded.read_bytes()
  damage(encoded)
  fails(flags, "tokens")
  assert encoded.read_bytes() == whole
  damage(encoded)
  path.unlink()
  fails(flags, "data.train", path)


@pytest.mark.parametrize(
  ("file", "content", "words"),
  [
    ("config.json", "{", ["damaged", "restore it"]),
    ("config.json", "[]", ["damaged", "restore it"]),
    ("result.json", "", ["damaged", "delete it"]),
    ("result.json", "\x00\x01", ["damaged", "delete it"]),
  ],
)
def test_damaged_run_file_is_reported_in_one_line(fails, workdir, file, content, words):
  (workdir / file).write_text(content)
  fails([TINY, f"--workdir={workdir}"], workdir / file, *words)


def damage_checkpoint(path: pathlib.Path, how: str) -> None:
  files = [p for p in path.rglob("*") if p.is_file()]
  data = [p for p in files if "/d/" in str(p)]
  if how == "data cut short":
    for p in data:
      p.write_bytes(p.read_bytes()[:10])
  elif how == "data gone":
    for p in data:
      p.unlink()
  elif how == "state gone":
    shutil.rmtree(path / "state")
  elif how == "metadata gone":
    (path / "state" / "_METADATA").unlink()
  elif how == "clock gone":
    shutil.rmtree(path / "clock")
  else:
    for p in files:
      p.write_bytes(b"")


DAMAGES = [
  *("data cut short", "data gone", "state gone", "metadata gone", "clock gone"),
  "all empty",
]


def contents(directory: pathlib.Path) -> dict[pathlib.Path, bytes]:
  return {p: p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


# All kinds of damage are tried in the tests below.
@pytest.mark.parametrize(
  "how", others_long(["data cut short", "clock gone"], ["data cut short"])
)
def test_training_resumes_from_the_checkpoint_before_a_damaged_one(run, workdir, how):
  expected = json.loads((workdir / "result.json").read_text())
  (workdir / "result.json").unlink()
  damage_checkpoint(workdir / "checkpoints" / "5", how)
  status, _, lines = run(TINY, f"--workdir={workdir}")
  assert status == 0
  (line,) = [line for line in lines if "damaged" in line]
  assert f"checkpoint {workdir}/checkpoints/5 is damaged (" in line
  assert f"which is now in {workdir}/damaged-5; taking that of step 4 instead" in line
  assert any(line.endswith("going on from step 4") for line in lines)
  result = json.loads((workdir / "result.json").read_text())
  assert result["test_nll"] == expected["test_nll"]
  assert (workdir / "damaged-5").is_dir()
  assert sorted(p.name for p in workdir.glob("checkpoints/?")) == ["4", "5"]


@pytest.mark.parametrize("how", others_long(DAMAGES, ["data gone", "clock gone"]))
def test_evaluation_does_not_move_a_damaged_checkpoint(run, workdir, how):
  damage_checkpoint(workdir / "checkpoints" / "5", how)
  before = contents(workdir)
  status, out, lines = run(f"--workdir={workdir}", "--mode=evaluate")
  assert status == 0
  assert json.loads(out)["step"] == 4
  assert len([line for line in lines if "taking that of step 4 instead" in line]) == 1
  assert contents(workdir) == before


@pytest.mark.parametrize(
  ("mode", "how"),
  others_long(
    itertools.product(["train", "evaluate"], DAMAGES),
    [(("evaluate", "train")[i % 2], how) for i, how in enumerate(DAMAGES)],
  ),
)
def test_damaged_checkpoints_are_reported_in_one_line(run, fails, workdir, how, mode):
  (workdir / "result.json").unlink()
  for step in ("4", "5"):
    damage_checkpoint(workdir / "checkpoints" / step, how)
  before = contents(workdir / "checkpoints")
  flags = [TINY, f"--workdir={workdir}", f"--mode={mode}"]
  fails(flags, f"all checkpoints in {workdir}/checkpoints are damaged", "delete")
  assert contents(workdir / "checkpoints") == before
  if (how, mode) == ("all empty", "train"):  # follows the advice of the message
    shutil.rmtree(workdir / "checkpoints")
    assert run(*flags)[0] == 0


@pytest.mark.long
def test_training_resumes_after_the_damaged_checkpoint_is_deleted(run, workdir):
  expected = json.loads((workdir / "result.json").read_text())
  (workdir / "result.json").unlink()
  shutil.rmtree(workdir / "checkpoints" / "5")
  status, _, lines = run(TINY, f"--workdir={workdir}")
  assert status == 0
  assert any(line.endswith("going on from step 4") for line in lines)
  result = json.loads((workdir / "result.json").read_text())
  assert result["test_nll"] == expected["test_nll"]


def test_workdir_of_another_config_is_reported_in_one_line(fails, workdir):
  before = (workdir / "config.json").read_bytes()
  flags = [TINY, f"--workdir={workdir}", "--config.train.lr=0.5"]
  fails(flags, "config.train.lr = 20.0", "0.5", "another")
  assert (workdir / "config.json").read_bytes() == before


@pytest.mark.parametrize("mode", ["evaluate", "predict"])
def test_untrained_workdir_is_reported_in_one_line(fails, tmp_path, mode):
  flags = [f"--mode={mode}", f"--workdir={tmp_path}"]
  fails(flags, tmp_path, "config.json is missing")
  fails([*flags, TINY], tmp_path, "train first")
  (tmp_path / "checkpoints").mkdir()
  fails([*flags, TINY], tmp_path, "train first")


def test_checkpoint_of_other_shapes_is_reported_in_one_line(fails, workdir):
  content = json.loads((workdir / "config.json").read_text())
  content["model"]["hidden"] = 9
  write_json(str(workdir / "config.json"), content)
  flags = [f"--workdir={workdir}", "--mode=evaluate"]
  words = ["is intact, but of another model", "not (", "config.json"]
  line = fails(flags, workdir, *words)
  assert "delete" not in line


@pytest.mark.parametrize("mode", ["evaluate", "predict"])
@pytest.mark.parametrize(
  ("flags", "words"),
  [
    (["--config.head.absolute=True"], ["config.head.absolute = False, not True"]),
    (["--config.optimizer.average=0.9"], ["config.optimizer.average = 0.0, not 0.9"]),
    (["--config.data.seed=7"], ["config.data.seed = 0, not 7"]),
    (["--config.train.tied=True"], ["config.train.tied = False, not True"]),
    ([PTB + ":full,runlocal"], ["config.head.name = 'sampled', not 'full'"]),
  ],
)
def test_settings_of_another_model_are_refused(fails, trained, mode, flags, words):
  flags = [f"--workdir={trained}", f"--mode={mode}", *flags]
  fails(flags, trained, *words, "keep the value of the training run")


def test_held_out_share_cannot_be_replaced_by_a_file(run, fails, tmp_path):
  """With such a file the training data would be different, with other classes."""
  workdir, other = tmp_path / "run", write_text(tmp_path / "other.txt", LINES.encode())
  files = {key: f"--config.data.{key}={other}" for key in ("train", "valid", "test")}
  flags = ["--config.train.batch_size=4", "--config.train.max_steps=2"]
  flags += [f"--workdir={workdir}", f"{TEXT},hidden=8", files["train"]]
  assert run(*flags)[0] == 0
  for key in ("valid", "test"):
    flags = ["--mode=evaluate", f"--workdir={workdir}", files[key]]
    fails(flags, workdir, f"data.{key} = '', not", "keep the value of the training run")
  assert run("--mode=evaluate", f"--workdir={workdir}")[0] == 0


def test_usage_settings_of_a_model_can_change(run, trained):
  flags = [f"--workdir={trained}", "--mode=evaluate", TINY, "--config.train.lr=3"]
  flags += ["--config.eval.batch_size=3", "--config.eval.unroll=4"]
  flags += ["--config.log.every_steps=7", "--config.checkpoint.keep=4"]
  flags += ["--config.train.batch_size=1"]  # the saved network state has more rows
  status, out, lines = run(*flags)
  assert status == 0, lines
  assert_nearly_that_of(trained, json.loads(out))


def assert_nearly_that_of(trained, metrics):
  """Evaluation with other batches has other starting points, which matters little."""
  result = json.loads((trained / "result.json").read_text())
  assert metrics["test_nll"] != result["test_nll"]
  assert metrics["test_nll"] == pytest.approx(result["test_nll"], rel=1e-2)


@pytest.mark.parametrize("name", ["metrics.jsonl", "lock"])
def test_directory_in_place_of_a_file_is_reported_in_one_line(fails, tmp_path, name):
  (tmp_path / name).mkdir()
  words = [tmp_path / name, "cannot be written", "is a directory: move it away"]
  fails([TINY, f"--workdir={tmp_path}"], *words)


def test_too_large_top_k_is_reported_in_one_line(fails, trained):
  flags = [f"--workdir={trained}", "--mode=predict", "--text=w3", "--top_k=2000"]
  fails(flags, "--top_k", "2000", "1000")


def test_workdir_that_is_a_file_is_reported_in_one_line(fails, tmp_path):
  path = write_text(tmp_path / "file", b"mine")
  fails([TINY, f"--workdir={path}"], path, "cannot be written")
  fails([TINY, f"--workdir={path}/run"], path, "cannot be written")
  for mode in ("evaluate", "predict"):
    flags = [f"--mode={mode}", f"--workdir={path}"]
    fails(flags, f"--workdir: {path} is a file; give the directory of a run")
  assert path.read_bytes() == b"mine"


def test_non_finite_loss_is_reported_in_one_line(fails, run, tmp_path):
  # Two steps per epoch, and a rate that grows after each epoch.
  flags = ["--config.data.num_tokens=40", "--config.train.decay=10"]
  flags += [TINY, f"--workdir={tmp_path}", "--config.train.hold_epochs=1"]
  flags += ["--config.train.max_steps=100", "--config.train.epochs=50"]
  line = fails([*flags, "--config.eval.every_epochs=0"], "not finite at step", "lr")
  bad, kept = (
    int(line.split(w)[1].split(";")[0]) for w in ("at step ", "save is of step ")
  )
  assert 0 < kept <= bad
  assert (tmp_path / "checkpoints" / str(kept)).is_dir()
  assert not (tmp_path / "result.json").exists()
  steps = [json.loads(x)["step"] for x in (tmp_path / "metrics.jsonl").open()]
  assert max(steps) <= bad
  status, out, _ = run(f"--workdir={tmp_path}", "--mode=evaluate")
  assert status == 0
  assert json.loads(out)["step"] == kept


@pytest.fixture
def small_files():
  """Files may not grow beyond 20 kB, which simulates a full disk."""
  soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
  # Compiled programs must not be written: they would be truncated for later runs.
  seconds = jax.config.jax_persistent_cache_min_compile_time_secs
  jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e9)
  yield
  jax.config.update("jax_persistent_cache_min_compile_time_secs", seconds)
  resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.long
def test_full_disk_for_a_checkpoint_is_reported_in_one_line(
  fails, tmp_path, small_files
):
  flags = [TINY, f"--workdir={tmp_path}", "--config.train.max_steps=50"]
  fails(flags, tmp_path / "checkpoints", "cannot write", "File too large", "make room")


@pytest.fixture
def no_more_files():
  """No more files can be opened."""
  soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  taken = [os.open(os.devnull, os.O_RDONLY)]
  resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 1, hard))
  with contextlib.suppress(OSError):
    while True:  # there may be gaps below
      taken.append(os.open(os.devnull, os.O_RDONLY))
  yield
  for number in taken:
    os.close(number)
  resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
  "program",
  [
    lambda place: Checkpoints(str(place)),
    lambda place: write_json(str(place / "a.json"), {}),
    lambda place: (place / "a.txt").open(),
  ],
)
def test_too_many_open_files_are_not_reported_as_a_full_disk(
  program, tmp_path, capsys, no_more_files
):
  assert console.run(lambda: program(tmp_path)) == 1
  (line,) = capsys.readouterr().err.splitlines()
  assert "Too many open files" in line
  assert "raise `ulimit -n`" in line
  assert "room" not in line


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="no /dev/full")
def test_full_disk_for_the_metrics_is_reported_in_one_line(fails, run, tmp_path):
  (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
  flags = [TINY, f"--workdir={tmp_path}"]
  fails(flags, tmp_path / "metrics.jsonl", "No space left", "make room")
  (tmp_path / "metrics.jsonl").unlink()
  assert run(*flags)[0] == 0


def test_log_lines_of_a_run(run, tmp_path):
  status, out, lines = run(TINY, f"--workdir={tmp_path}")
  assert status == 0
  assert out == ""
  first, second, *_, last = lines
  assert "training zipf with lstm and sampled(linear, softmax, pps) on " in first
  assert "1000 training tokens, 1000 words" in second
  assert "5 steps" in second
  assert len([line for line in lines if "step 3/5 (60.0 %)" in line]) == 1
  assert len([line for line in lines if "step 5  valid  nll" in line]) == 1
  assert "test_ppl" in last
  assert last.endswith(f"tensorboard --logdir {tmp_path}")
  meta = (tmp_path / "meta.json").read_bytes()
  again = run(TINY, f"--workdir={tmp_path}")[2]
  assert [line[9:] for line in again] == [last[9:]]  # without the time of day
  assert (tmp_path / "meta.json").read_bytes() == meta


@pytest.mark.long
def test_meta_lists_every_start(run, workdir):
  path = workdir / "meta.json"
  first = json.loads(path.read_text())
  assert "earlier" not in first
  for starts_before in (1, 2):
    (workdir / "result.json").unlink()
    assert run(TINY, f"--workdir={workdir}")[0] == 0
    last = json.loads(path.read_text())
    assert last.keys() == first.keys() | {"earlier"}
    assert [start.keys() for start in last["earlier"]] == [first.keys()] * starts_before
    assert last["earlier"][0] == first


def test_evaluate_prints_one_object(run, trained):
  result = json.loads((trained / "result.json").read_text())
  for which in ("latest", "best"):
    status, out, _ = run(
      "--mode=evaluate", f"--workdir={trained}", f"--checkpoint={which}"
    )
    assert status == 0
    metrics = json.loads(out)
    assert metrics["step"] == 5
    assert metrics["test_nll"] == result["test_nll"]
    assert metrics["valid_ppl"] == result["valid_ppl"]


def test_evaluation_reports_the_ranking_metrics_of_the_run(run, tmp_path):
  assert run(TINY_ITEMS, f"--workdir={tmp_path}")[0] == 0
  result = json.loads((tmp_path / "result.json").read_text())
  status, out, _ = run("--mode=evaluate", f"--workdir={tmp_path}")
  assert status == 0
  for key in ("test_recall@20", "valid_mrr@20", "test_nll"):
    assert json.loads(out)[key] == result[key]
  assert 0 < result["test_mrr@20"] < result["test_recall@20"] < 1


def test_config_flags_apply_to_evaluation(run, trained):
  flags = ("--mode=evaluate", f"--workdir={trained}", "--config.eval.batch_size=7")
  status, out, _ = run(*flags)
  assert status == 0
  assert_nearly_that_of(trained, json.loads(out))


def test_help_is_printed(run):
  status, out, _ = run("--help")
  assert status == 0
  assert "--workdir" in out
  assert "python -m largevocab.main" in out


def start(*args, text=""):
  return subprocess.run(
    [sys.executable, *args],
    cwd=REPOSITORY,
    input=text,
    capture_output=True,
    text=True,
    check=False,
  )


def test_program_reports_an_error_in_one_line():
  done = start("-m", "largevocab.main", "--config=configs/pbt.py", "--workdir=/no/such")
  assert done.returncode == 1
  assert done.stdout == ""
  (line,) = done.stderr.splitlines()
  assert line.startswith("error: --config: there is no file configs/pbt.py")


@pytest.mark.long
def test_program_prints_only_lines_of_largevocab(trained):
  flags = ["--mode=predict", f"--workdir={trained}", "--top_k=2"]
  done = start("-m", "largevocab.main", *flags, text="w3 w4\n\nnonsense w5\n")
  assert done.returncode == 0
  assert done.stderr == ""
  first, second = map(json.loads, done.stdout.splitlines())
  assert (first["line"], first["words"], first["unknown"]) == (1, ["w3", "w4"], [])
  assert (second["line"], second["unknown"]) == (3, ["nonsense"])
  assert len(first["top"]) == len(second["top"]) == 2


@pytest.mark.long
@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="no /dev/full")
def test_unwritable_answers_are_reported_in_one_line(trained):
  flags = ["--mode=predict", f"--workdir={trained}", "--text=w3"]
  with open("/dev/full", "w") as full:
    done = subprocess.run(
      [sys.executable, "-m", "largevocab.main", *flags],
      cwd=REPOSITORY,
      stdout=full,
      stderr=subprocess.PIPE,
      text=True,
      check=False,
    )
  assert done.returncode == 1
  message = "error: cannot write to standard output: No space left on device\n"
  assert done.stderr == message


def test_model_of_dense_features_cannot_answer_queries(run, fails, tmp_path):
  config = f"--config={REPOSITORY}/configs/softmax_regression.py:full,runlocal"
  assert run(config, f"--workdir={tmp_path}")[0] == 0
  fails(
    ["--mode=predict", f"--workdir={tmp_path}", "--text=a"], tmp_path, "not trained on"
  )


@pytest.mark.long
def test_program_logs_only_that_a_damaged_checkpoint_is_skipped(workdir):
  damage_checkpoint(workdir / "checkpoints" / "5", "data cut short")
  done = start("-m", "largevocab.main", "--mode=evaluate", f"--workdir={workdir}")
  assert done.returncode == 0
  first, second = done.stderr.splitlines()
  assert "is damaged" in first
  assert second.endswith("evaluating the state after step 4")


@pytest.mark.long
def test_program_reports_a_full_disk_in_one_line(tmp_path, monkeypatch):
  monkeypatch.setenv("JAX_ENABLE_COMPILATION_CACHE", "0")
  source = (
    "import resource, sys; from largevocab import main;"
    "_, hard = resource.getrlimit(resource.RLIMIT_FSIZE);"
    "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard));"
    "sys.exit(main.run(sys.argv))"
  )
  done = start("-c", source, TINY, f"--workdir={tmp_path}")
  assert done.returncode == 1
  lines = done.stderr.splitlines()
  assert [x for x in lines if x.startswith("error: ")] == lines[-1:]
  assert "Traceback" not in done.stderr
  assert "cannot write" in lines[-1]
