"""An installation has the configs, and its own pip."""

import hashlib
import os
import pathlib
import platform
import shutil
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
  """The unpacked content of a wheel."""
  place = tmp_path_factory.mktemp("installed")
  command = ["setup.py", "--quiet", "build_py", "--build-lib", str(place)]
  subprocess.run([sys.executable, *command], cwd=REPOSITORY, check=True)
  return place


@pytest.mark.long
def test_config_names_work_outside_the_checkout(installed, tmp_path):
  flags = ["--config=ptb:sampled/pps,runlocal", f"--workdir={tmp_path / 'run'}"]
  done = subprocess.run(
    [sys.executable, "-m", "largevocab.main", *flags],
    cwd=tmp_path,
    env={**os.environ, "PYTHONPATH": str(installed)},
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  assert (tmp_path / "run" / "result.json").exists()


def test_wheel_has_every_config(installed):
  configs = {path.name for path in (REPOSITORY / "configs").glob("*.py")}
  there = {path.name for path in (installed / "largevocab" / "configs").iterdir()}
  assert there == configs
  assert not (installed / "configs").exists()  # other packages may use this name


@pytest.mark.long
def test_environment_has_its_own_pip(tmp_path):
  """Even if plain ensurepip has installed the module, but not the command."""
  pytest.importorskip("ensurepip")
  (tmp_path / "scripts").mkdir()
  shutil.copy(REPOSITORY / "scripts" / "install", tmp_path / "scripts")
  setup = b"nothing is installed"
  (tmp_path / "setup.py").write_bytes(setup)
  run = lambda *command: subprocess.run(command, check=True, capture_output=True)
  run(sys.executable, "-m", "venv", "--without-pip", str(tmp_path / ".venv"))
  python = str(tmp_path / ".venv" / "bin" / "python")
  run(python, "-m", "ensurepip")
  stamp = [hashlib.sha256(setup).hexdigest(), platform.python_version(), str(tmp_path)]
  (tmp_path / ".venv" / "installed-base").write_text(" ".join(stamp) + "\n")
  run(str(tmp_path / "scripts" / "install"))
  said = run(str(tmp_path / ".venv" / "bin" / "pip"), "--version").stdout.decode()
  assert f" from {tmp_path}" in said
