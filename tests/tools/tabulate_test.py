import json
import os
import pathlib
import subprocess
import sys

import pytest

from largevocab.errors import UserError
from largevocab.tools import tabulate
from largevocab.tools.tables import results_table, seeds

REPOSITORY = pathlib.Path(tabulate.__file__).parents[2]
SWEEP = """
def sweep(add):
  for seed in range(3):
    add("configs/a.py:full", {"train.seed": seed}, name="full")

def metrics():
  return ["test_ppl", "steps"]

def paper():
  return {"full": {"test_ppl": 114.5}}
"""


def record(name="full", config="configs/a.py:full", overrides=None, **metrics):
  own = {"name": name, "config": config, "overrides": overrides or {}}
  return {
    "run": json.dumps(own),
    **own,
    **metrics,
    "device": "a processor",
    "num_devices": 1,
    "python": "3.11.7",
    "jax": "0.10.2",
    "git": "0123456789",
    "git_dirty": False,
  }


@pytest.fixture
def experiments(tmp_path):
  here = tmp_path / "experiments" / "ptb"
  here.mkdir(parents=True)
  (here / "sweep.py").write_text(SWEEP)
  rows = [
    record(overrides={"train.seed": seed}, test_ppl=ppl, steps=100)
    for seed, ppl in enumerate([100.0, 101.0, 105.0])
  ]
  (here / "results.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
  return here.parent


def test_seeds_are_averaged_beside_the_values_of_the_paper(experiments):
  text = "a\n<!-- results:ptb -->\nold\n<!-- /results:ptb -->\nb\n"
  new = tabulate.rewrite(text, experiments)
  assert "| method | seeds | test_ppl | test_ppl (paper) | steps |" in new
  # Mean 102; deviations -2, -1, 3: variance 14 / 2.
  assert "| full | 3 | 102.0 ± 2.6 | 114.5 | 100 |" in new
  assert "revision 0123456." in new
  assert "old" not in new
  assert new.startswith("a\n")
  assert new.endswith("\nb\n")


def test_rewriting_twice_changes_nothing(experiments):
  text = "<!-- results:ptb -->\n<!-- /results:ptb -->\n"
  once = tabulate.rewrite(text, experiments)
  assert tabulate.rewrite(once, experiments) == once


def test_sections_are_rewritten_separately(experiments):
  section = "<!-- results:ptb -->\n<!-- /results:ptb -->\n"
  new = tabulate.rewrite(f"{section}between\n{section}", experiments)
  assert new.count("102.0") == 2
  assert "\nbetween\n" in new


@pytest.mark.parametrize(
  "text",
  [
    "<!-- results:ptb -->\n",
    "<!-- /results:ptb -->\n",
    "<!-- results:ptb -->\n<!-- /results:other -->\n",
    "<!-- results:ptb -->\n<!-- results:ptb -->\n<!-- /results:ptb -->\n",
  ],
)
def test_marker_without_partner_is_refused(experiments, text):
  with pytest.raises(UserError, match="no partner"):
    tabulate.rewrite(text, experiments)


def test_missing_results_are_noted_until_they_exist(experiments):
  text = "<!-- results:ptb -->\n<!-- /results:ptb -->\n"
  ran = tabulate.rewrite(text, experiments)
  results = experiments / "ptb" / "results.jsonl"
  content = results.read_text()
  results.unlink()
  not_run = "<!-- results:ptb -->\n\nNot run yet.\n\n<!-- /results:ptb -->\n"
  assert tabulate.rewrite(ran, experiments) == not_run
  results.write_text(content)
  assert tabulate.rewrite(not_run, experiments) == ran


def test_rows_can_be_chosen(experiments):
  path = experiments / "ptb" / "results.jsonl"
  path.write_text(path.read_text() + json.dumps(record("pps", test_ppl=7.0)) + "\n")
  text = "<!-- results:ptb rows={} -->\n<!-- /results:ptb -->\n"
  new = tabulate.rewrite(text.format("^pps|adaptive"), experiments)
  assert "| pps |" in new
  assert "| full |" not in new
  assert tabulate.rewrite(new, experiments) == new
  sweep = experiments / "ptb" / "sweep.py"
  to_full = 'def comparison():\n  return {"to": "full", "metric": "test_ppl"}\n'
  sweep.write_text(f"{SWEEP}\n{to_full}")
  new = tabulate.rewrite(text.format("^pps"), experiments)
  assert "| to full |" in new  # although its row is not shown
  assert "-93.0 %" in new
  for pattern, problem in (
    ("none", "rows=none matches no row name"),
    ("(", "is not a regular expression"),
  ):
    with pytest.raises(UserError, match=problem):
      tabulate.rewrite(text.format(pattern), experiments)


def test_rows_can_be_compared_with_another_row_by_another_metric(experiments):
  path = experiments / "ptb" / "results.jsonl"
  seeds = [{"train.seed": seed} for seed in range(3)]
  of_pps = [record("pps", overrides=s, test_ppl=7.0, steps=90) for s in seeds]
  path.write_text(path.read_text() + "".join(json.dumps(r) + "\n" for r in of_pps))
  text = '<!-- results:ptb rows=full to="{}" metrics={} -->\n<!-- /results:ptb -->\n'
  new = tabulate.rewrite(text.format("pps", "steps,test_ppl"), experiments)
  head, _, row = [line for line in new.splitlines() if line.startswith("|")]
  assert head.startswith("| method | seeds | steps | test_ppl |")
  assert "| to pps |" in head
  assert "| +10" in row  # compares steps, the first metric named
  assert tabulate.rewrite(new, experiments) == new
  for to, metrics, problem in (
    ("ppx", "steps", "to=ppx: no row has this name; did you mean 'pps'"),
    ("pps", "step", "no run has the metric 'step'; did you mean 'steps'"),
  ):
    with pytest.raises(UserError, match=problem):
      tabulate.rewrite(text.format(to, metrics), experiments)


def test_unknown_experiment_is_refused(experiments):
  text = "<!-- results:none -->\n<!-- /results:none -->\n"
  with pytest.raises(UserError, match="no such sweep file"):
    tabulate.rewrite(text, experiments)


def test_duplicate_run_is_refused(experiments):
  """Also if it has the default seed."""
  path = experiments / "ptb" / "results.jsonl"
  path.write_text(path.read_text() + json.dumps(record(test_ppl=100.0)) + "\n")
  with pytest.raises(UserError, match=r"results.jsonl: the runs .* the same seed; rem"):
    tabulate.main([str(path)])


def test_name_does_not_break_the_table():
  table = results_table.table([record("a|b\nc", test_ppl=10.0)], ["test_ppl"])
  assert table.splitlines()[2:] == [r"| a\|b c | 10.00 |"]


def test_rows_with_the_same_name_are_told_apart():
  rows = [
    record(overrides={"head.num_samples": m}, test_ppl=float(m)) for m in (20, 160)
  ]
  labels = list(seeds.groups(rows))
  assert labels == [f"full configs/a.py:full head.num_samples={m}" for m in (20, 160)]


def test_rows_without_a_name_are_labelled_by_their_config():
  rows = [record(name="", overrides={"seed": s}) for s in (0, 1)]
  assert {k: len(v) for k, v in seeds.groups(rows).items()} == {"configs/a.py:full": 2}


def test_missing_metric_is_a_dash():
  rows = [record(test_ppl=10.0), record(name="other", test_auc=0.5)]
  lines = results_table.table(rows, ["test_ppl", "test_auc"]).splitlines()
  assert lines[2:] == ["| full | 10.00 | - |", "| other | - | 0.5000 |"]


def test_metric_that_no_run_has_is_named(experiments, capsys):
  sweep = experiments / "ptb" / "sweep.py"
  sweep.write_text(sweep.read_text().replace("test_ppl", "test_pppl"))
  text = "<!-- results:ptb -->\n<!-- /results:ptb -->\n"
  tabulate.rewrite(text, experiments)
  hint = "no run has 'test_pppl' of metrics(); did you mean 'test_ppl'?"
  assert hint in capsys.readouterr().err


def test_curves_are_not_metrics():
  row = record(test_ppl=10.0)
  with_curve = {**row, "curve": [[1, 5.0, 2.0]]}
  assert tabulate.scalars([with_curve]) == ["test_ppl"]
  report = results_table.report
  assert report([with_curve], ["test_ppl"]) == report([row], ["test_ppl"])


def test_update_fixes_what_check_reports(experiments, capsys):
  readme = experiments.parent / "README.md"
  readme.write_text("<!-- results:ptb -->\n<!-- /results:ptb -->\n")
  args = [str(readme), "--experiments", str(experiments)]
  assert tabulate.main(["--check", *args]) == 1
  assert "stale" in capsys.readouterr().out
  assert tabulate.main(["--update", *args]) == 0
  assert tabulate.main(["--check", *args]) == 0


def test_page_is_written_in_utf_8_in_any_locale(experiments):
  readme = experiments.parent / "README.md"
  text = "Bengio and Senécal †\n<!-- results:ptb -->\n<!-- /results:ptb -->\n"
  readme.write_text(text, encoding="utf-8")
  words = ["--update", str(readme), "--experiments", str(experiments)]
  plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
  program = [sys.executable, "-m", "largevocab.tools.tabulate", *words]
  subprocess.run(program, env=os.environ | plain, check=True, timeout=300)
  page = readme.read_text(encoding="utf-8")
  assert page.startswith("Bengio and Senécal †")
  assert "| method |" in page


def test_damaged_results_are_refused(experiments):
  results = experiments / "ptb" / "results.jsonl"
  results.write_text(results.read_text() + '{"run"')
  with pytest.raises(UserError, match=r"results.jsonl:4: not JSON"):
    tabulate.main([str(results)])


def test_printed_rows_can_be_compared_with_any_row(experiments, capsys):
  path = experiments / "ptb" / "results.jsonl"
  more = [
    record("pps", overrides={"train.seed": seed}, test_ppl=1.1 * ppl, steps=100)
    for seed, ppl in enumerate([100.0, 101.0, 105.0])
  ]
  with path.open("a") as file:
    file.write("".join(json.dumps(row) + "\n" for row in more))
  assert tabulate.main([str(path)]) == 0
  assert "to " not in capsys.readouterr().out
  assert tabulate.main([str(path), "--to", "pps"]) == 0
  printed = capsys.readouterr().out
  assert "| to pps |" in printed
  # 1 / 1.1 in each pair.
  (full,) = [line for line in printed.splitlines() if line.startswith("| full ")]
  assert "-9.1 % (-9.1 to -9.1)" in full


def test_row_to_compare_with_must_exist(experiments):
  path = experiments / "ptb" / "results.jsonl"
  with pytest.raises(UserError, match="to=ful: no row has this name; did you mean"):
    tabulate.main([str(path), "--to", "ful"])
  with pytest.raises(UserError, match="--to is for printed tables"):
    tabulate.main(["README.md", "--check", "--to", "full"])


def test_directories_of_runs_are_tabulated(tmp_path, capsys):
  meta = {
    "device": "d",
    "num_devices": 1,
    "python": "3",
    "versions": {"jax": "0"},
    "git": "abc",
    "git_dirty": True,
  }
  for name, ppl in (("full", 10.0), ("sampled", 12.0)):
    workdir = tmp_path / name
    workdir.mkdir()
    (workdir / "result.json").write_text(json.dumps({"test_ppl": ppl, "steps": 5}))
    (workdir / "meta.json").write_text(json.dumps(meta))
    (workdir / "config.json").write_text('{"eval": {"every_epochs": 0.5}}')
  (tmp_path / "unfinished").mkdir()
  (tmp_path / "unfinished" / "meta.json").write_text(json.dumps(meta))
  (tmp_path / "worse").mkdir()
  (tmp_path / "worse" / "diverged.json").write_text('{"step": 3}')
  (tmp_path / "worse" / "meta.json").write_text(json.dumps(meta))
  assert tabulate.main([str(tmp_path)]) == 0
  out, err = capsys.readouterr()
  assert err == f"left out, without a result: {tmp_path / 'unfinished'}\n"
  lines = out.splitlines()
  assert lines[0] == results_table.ONE_SEED
  assert lines[2] == "| method | seeds | steps | test_ppl |"
  assert lines[4:6] == ["| full | 1 | 5 | 10.00 |", "| sampled | 1 | 5 | 12.00 |"]
  assert lines[6] == "| worse (diverged at step 3) | 0 of 1 | - | - |"
  assert lines[-1] == "Measured on d; jax 0, Python 3; revision abc+."
  given = [str(tmp_path / name) for name in ("full", "sampled")]
  assert tabulate.main(given) == 0
  several = capsys.readouterr().out.splitlines()
  assert several[4:] == [
    lines[4].replace("full", given[0]),
    lines[5].replace("sampled", given[1]),
    *several[6:],
  ]
  # Compared by the perplexity, not by the steps, and only with runs of the same seed.
  assert tabulate.main([*given, "--to", given[0]]) == 0
  assert "| +20.0 % |" in capsys.readouterr().out
  (tmp_path / "sampled" / "config.json").write_text('{"train": {"seed": 1}}')
  assert tabulate.main([*given, "--to", given[0]]) == 0
  assert "20.0 %" not in capsys.readouterr().out


def test_markers_in_prose_are_left_alone(experiments):
  text = "Write `<!-- results:NAME -->` on a line of its own.\n"
  assert tabulate.rewrite(text, experiments) == text


def test_tables_of_this_repository_are_up_to_date():
  texts = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("experiments/*/*.md")]
  assert texts
  assert tabulate.main(["--check", *map(str, texts)]) == 0
