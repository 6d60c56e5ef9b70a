"""Every program in examples/ trains, and its page lists it."""

import pathlib
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.long

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_example_trains(path):
  """The loss of the last step is below that of the first."""
  finished = subprocess.run(
    [sys.executable, str(path), "--steps=20"],
    cwd=EXAMPLES.parent,
    capture_output=True,
    text=True,
    check=False,
  )
  assert finished.returncode == 0, finished.stderr
  losses = [float(x) for x in re.findall(r"\bloss (\d+\.\d+)", finished.stdout)]
  assert len(losses) >= 2, finished.stdout
  assert losses[-1] < losses[0]


def test_page_lists_every_example():
  listed = re.findall(
    r"^\| \[`(\S+)`\]\(\1\)", (EXAMPLES / "README.md").read_text(), re.M
  )
  assert PROGRAMS
  assert sorted(listed) == [path.name for path in PROGRAMS]
