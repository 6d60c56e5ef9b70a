"""The table of goals."""

import json
import pathlib
import re

import pytest

from benchmarks import goals
from benchmarks.goals import Goal
from largevocab.errors import UserError
from largevocab.tools import tabulate

BOTH = "d, d; few page faults"
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "goals.md"


def test_page_has_the_table_of_the_results():
  assert goals.main(["--check", str(PAGE)]) == 0


def test_goals_are_numbered_in_order():
  names = list(dict.fromkeys(goal.name for goal in goals.GOALS))
  assert names == [f"G{number}" for number in range(1, 18)]


def test_every_missed_goal_has_its_reason():
  rows = [goals.row(goal, tabulate.EXPERIMENTS) for goal in goals.GOALS]
  missed = {name for name, *_, met, _ in rows if met == "no"}
  _, why = PAGE.read_text().split("## Why some were missed")
  assert {*re.findall(r"G\d+", why)} == missed


@pytest.fixture
def experiments(tmp_path):
  rows = [
    {"name": f"step, V={v}", "ratio": r, "device": "d", "page_faults": v < 3}
    for v, r in ((1, 3), (2, 2), (3, 2.5))
  ]
  (tmp_path / "speed").mkdir()
  lines = "".join(json.dumps(row) + "\n" for row in rows)
  (tmp_path / "speed" / "results.jsonl").write_text(lines)
  return tmp_path


def test_worst_size_decides_whether_a_goal_is_met(experiments):
  fast = Goal("G1", "fast", "speed", "step", at_least=2.5)
  assert goals.row(fast, experiments)[2:] == ["at least 2.5", "2 to 3", "no", BOTH]
  small = Goal("G2", "small", "speed", "step", at_most=3.0)
  assert goals.row(small, experiments)[2:] == ["at most 3", "3 to 2", "yes", BOTH]
  one = Goal("G3", "one", "speed", "step, V=1", at_least=3.0)
  assert goals.row(one, experiments)[3:] == ["3", "yes", "d"]


def test_unmeasured_goal_is_open_and_a_missing_result_an_error(experiments):
  assert goals.row(Goal("G4", "w"), experiments)[3:] == [
    "open: `scripts/on_gpu.sh` on a GPU",
    "",
    "",
  ]
  (experiments / "speed").rename(experiments / goals.GPU)
  partly = Goal("G6", "not yet", goals.GPU, "stop", at_least=1.0)
  assert goals.row(partly, experiments)[3] == partly.remark
  (experiments / goals.GPU).rename(experiments / "speed")
  with pytest.raises(UserError, match=r"no result with a name like 'stop' \(gone\)"):
    goals.row(Goal("G5", "gone", "speed", "stop", at_least=1.0), experiments)


def test_stale_table_is_reported(tmp_path, capsys):
  page = tmp_path / "page.md"
  page.write_text("# Page\n\n<!-- goals -->\nold\n<!-- /goals -->\n")
  assert goals.main(["--check", str(page)]) == 1
  assert "--update" in capsys.readouterr().out
  assert goals.main(["--update", str(page)]) == 0
  assert goals.main(["--check", str(page)]) == 0
  page.write_text("# Page\n")
  with pytest.raises(UserError, match="no lines <!-- goals -->"):
    goals.main(["--check", str(page)])
