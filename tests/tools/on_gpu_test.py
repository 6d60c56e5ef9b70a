"""The script for a machine with a GPU prints commands that the programs accept."""

import pathlib
import shlex
import subprocess
import tarfile

import pytest

from benchmarks import bench
from largevocab.tools import run_sweep

SCRIPT = pathlib.Path(__file__).parents[2] / "scripts/on_gpu.sh"


def called(*args, cwd=None):
  return subprocess.run(
    [str(SCRIPT), *map(str, args)], capture_output=True, text=True, check=False, cwd=cwd
  )


@pytest.fixture
def flags(tmp_path):
  for name in ("text.txt", "pairs.txt"):
    (tmp_path / name).touch()
  data = ["--ptb", ".", "--text", "text.txt", "--pairs", "pairs.txt"]
  return ["--work", "work", "--out", "out", *data]


def test_script_is_valid_bash():
  checked = subprocess.run(
    ["bash", "-n", str(SCRIPT)], capture_output=True, check=False
  )
  assert (checked.returncode, checked.stderr) == (0, b"")


def test_dry_run_prints_existing_commands(flags, tmp_path, capsys):
  """They are in the order of their value, and no files are left."""
  before = sorted(tmp_path.iterdir())
  told = called("--dry_run", "--jobs", 2, *flags, cwd=tmp_path)
  assert (told.returncode, told.stderr) == (0, "")
  assert sorted(tmp_path.iterdir()) == before
  commands = [shlex.split(line) for line in told.stdout.splitlines()]
  root = SCRIPT.parents[1]
  *others, samplers, heads = commands
  for contracts in (samplers, heads):
    assert contracts[1:3] == ["-m", "pytest"]
    assert (root / contracts[-1]).exists()
  for _, *words in others:
    module = words[0] == "-m" and words[1].replace(".", "/") + ".py"
    assert (root / (module or words[0])).exists(), words
  sweeps = [words[2:] for words in commands if words[1] == "scripts/run_sweep.py"]
  names = [pathlib.Path(words[0]).parent.name for words in sweeps]
  assert names == ["adaptive_enwiki8", "kernel_bias_medium", "xmlc_670k", "lst_epochs"]
  runs = []
  for sweep, *rest in sweeps:
    path = str(SCRIPT.parents[1] / sweep)
    assert run_sweep.main([path, *rest, "--dry_run"]) == 0
    runs.append(capsys.readouterr().out.splitlines())
  *lengths, searched, last = map(len, runs)
  assert (lengths, last) == ([9, 62], 1)
  assert searched  # the trials that choose rates, and runs whose rates are chosen
  assert f"--config.data.train={tmp_path}/text.txt" in runs[0][0]
  assert f"--config.data.path={tmp_path}" in runs[1][0]
  assert f"--config.eval.word_pairs={tmp_path}/pairs.txt" in runs[3][0]
  assert "configs/ngram.py:full" in runs[3][0]
  speeds = [words for words in commands if "benchmarks.bench" in words]
  assert len(speeds) == 10
  assert {
    words[words.index("--only") + 1] for words in speeds
  } <= bench.BENCHMARKS.keys()
  assert others[-1][2] == "largevocab.tools.fit_cost_model"


def test_failed_part_stops_no_other_and_is_not_retried(flags, tmp_path):
  """A fake Python records its arguments, and fails in one sweep."""
  python = tmp_path / "python"
  python.write_text(
    f"""#!/usr/bin/env bash
[[ $* == *--collect* ]] && exit 0
echo "$*" >> {tmp_path}/given
[[ $* != *kernel_bias_medium* ]]
"""
  )
  python.chmod(0o755)
  call = lambda: called(*flags, "--python", "./python", cwd=tmp_path)
  first = call()
  given = (tmp_path / "given").read_text().splitlines()
  assert first.returncode == 1
  assert sum("kernel_bias_medium" in line for line in given) == 1
  assert "heads/contract_test.py" in given[-1]
  second = call()
  assert second.returncode == 1
  assert "to try again, remove" in second.stderr
  assert (tmp_path / "given").read_text().splitlines() == given
  (failed,) = (tmp_path / "work" / "failed").iterdir()
  failed.unlink()
  assert call().returncode == 1
  assert len((tmp_path / "given").read_text().splitlines()) == len(given) + 1


def test_only_runs_that_share_the_gpu_share_its_memory(flags, tmp_path):
  python = tmp_path / "python"
  python.write_text(
    f"""#!/usr/bin/env bash
echo "$XLA_PYTHON_CLIENT_MEM_FRACTION $*" >> {tmp_path}/given
"""
  )
  python.chmod(0o755)
  assert called(*flags, "--jobs", 3, "--python", python, cwd=tmp_path).returncode == 0
  lines = (tmp_path / "given").read_text().splitlines()
  given = {}
  for line in lines:
    share, *words = line.split()
    if "--collect" not in words:
      given.setdefault(share, []).append(words)
  sweeps = lambda share: [pathlib.Path(w[1]).parent.name for w in given[share]]
  assert sweeps("0.30") == ["adaptive_enwiki8", "kernel_bias_medium"]
  assert sweeps("0.90") == ["xmlc_670k", "lst_epochs"]
  assert {words[0] for words in given["0.45"]} == {"-m"}  # measurements and tests


def test_parts_without_time_are_left_even_after_failures(flags, tmp_path):
  python = tmp_path / "python"
  python.write_text("#!/usr/bin/env bash\n[[ $* == *--collect* ]] || ! sleep 6\n")
  python.chmod(0o755)
  told = called(*flags, "--python", python, "--seconds", 110, cwd=tmp_path)
  assert "adaptive_enwiki8" in told.stderr
  assert told.returncode == 75
  *_, last = told.stdout.splitlines()
  assert last == "on_gpu: run the same command again to continue"


def test_only_ended_runs_are_archived(tmp_path):
  """The test runs the commands of the script."""
  files = {
    "finished": ("result.json", "meta.json", "config.json", "metrics.jsonl", "log.txt"),
    "diverged": ("diverged.json", "meta.json", "config.json", "metrics.jsonl"),
    "unfinished": ("meta.json", "config.json", "metrics.jsonl"),
  }
  for run, names in files.items():
    (tmp_path / "runs" / "sweep" / run).mkdir(parents=True)
    for name in names:
      (tmp_path / "runs" / "sweep" / run / name).touch()
  for name in ("done", "speeds"):
    (tmp_path / name).mkdir()
  text = SCRIPT.read_text()
  begin, end = text.index("    find runs "), text.index('    done | tar -czf "$out')
  end = text.index("&&", end)
  commands = f"set -euo pipefail; out=.\n{text[begin:end]}"
  subprocess.run(["bash", "-c", commands], cwd=tmp_path, check=True)
  with tarfile.open(tmp_path / "finished.tar.gz.new") as archive:
    found = {pathlib.Path(name) for name in archive.getnames()}
  runs = pathlib.Path("runs/sweep")
  want = {runs / run / name for run in ("finished", "diverged") for name in files[run]}
  assert {path for path in found if path.parts[0] == "runs"} == want - {
    runs / "finished" / "log.txt"
  }


@pytest.mark.parametrize(
  ("more", "says"),
  [
    (["--seconds", "100"], "--seconds 100: give more than 105; 60 are for saving"),
    (["--jobs", "0"], "--jobs 0: give a whole number from 1"),
    (["--text", "none.txt"], "--text none.txt: there is no such path"),
    (["--nosuch"], "--nosuch is not an argument"),
    (["--finished"], "--finished has no value"),
    (["--work", ""], "--work is missing"),
  ],
)
def test_mistakes_are_one_line(flags, more, says, tmp_path):
  told = called("--dry_run", *flags, *more, cwd=tmp_path)
  assert told.returncode == 1
  assert told.stdout == ""
  assert told.stderr.startswith("on_gpu: ")
  assert says in told.stderr
  assert told.stderr.count("\n") == 1
