"""What a table says about the certainty of its rows."""

import json

import pytest

from largevocab.errors import UserError
from largevocab.tools.sweeps.sweepfile import Comparison
from largevocab.tools.tables import axes
from largevocab.tools.tables.results_table import ONE_SEED, report, table

TO_FULL = Comparison("full", ("test_ppl",))


def row(name, seed=0, **fields):
  return {
    "run": f"{name} {seed}",
    "name": name,
    "config": "configs/a.py",
    "overrides": {"train.seed": seed} if seed else {},
    "steps": 100,
    **fields,
    **{"device": "a processor", "python": "3", "jax": "0", "git": "0" * 40},
    "git_dirty": False,
  }


def counted(name, **fields):
  baseline = row(name, baseline=True, **fields)
  del baseline["steps"]
  return baseline


def seeds(name, *values, **fields):
  return [row(name, seed, test_ppl=v, **fields) for seed, v in enumerate(values)]


def cells(text):
  lines = [line for line in text.splitlines() if line.startswith("|")]
  header, _, *body = ([c.strip() for c in line.strip("|").split("|")] for line in lines)
  return {line[0]: dict(zip(header, line, strict=True)) for line in body}


def test_reports_on_several_seeds_show_their_number():
  """A record of seed 0 has no seed."""
  reports = seeds("importance: uniform", 1.0, 2.0, 3.0)
  rows = [{k: v for k, v in each.items() if k != "steps"} for each in reports]
  assert cells(table(rows, ["test_ppl"]))["importance: uniform"]["seeds"] == "3"
  assert "seeds" not in table(rows[:1], ["test_ppl"]).splitlines()[0]


def test_baselines_come_first_and_mark_rows_that_are_no_better():
  rows = [
    *seeds("full", 100.0),
    *seeds("bad", 300.0),
    counted("unigram, counted", test_ppl=600.0),
    counted("bigram, counted", test_ppl=200.0),
  ]
  found = cells(table(rows, ["test_ppl"]))
  assert list(found)[:2] == [
    "unigram, counted (baseline)",
    "bigram, counted (baseline)",
  ]
  assert found["full"]["test_ppl"] == "100.0"
  assert found["bad"]["test_ppl"] == "300.0 †"
  assert found["bigram, counted (baseline)"]["seeds"] == "-"
  assert "†: no better" in report(rows, ["test_ppl"])
  assert "†" not in report(rows[:1], ["test_ppl"])


def test_higher_precision_is_better():
  rows = [
    row("full", **{"test_p@1": 0.5}),
    row("bad", **{"test_p@1": 0.05}),
    counted("label frequency, counted", **{"test_p@1": 0.1}),
  ]
  found = cells(table(rows, ["test_p@1"]))
  assert found["full"]["test_p@1"] == "0.5000"
  assert found["bad"]["test_p@1"] == "0.05000 †"


def test_data_sets_are_not_mixed():
  rows = [
    *seeds("a: full", 100.0),
    *seeds("b: full", 300.0),
    *seeds("b: pps", 330.0),
    counted("a: bigram, counted", test_ppl=200.0),
    counted("b: bigram, counted", test_ppl=400.0),
  ]
  text = table(rows, ["test_ppl"], comparison=TO_FULL)
  assert "†" not in text
  assert cells(text)["b: pps"]["to full"] == "+10.0 %"
  assert cells(text)["b: full"]["to full"] == "-"


def test_differences_have_an_interval_and_a_mark():
  rows = [
    *seeds("full", 100.0, 110.0, 90.0),
    *seeds("worse", 103.0, 113.5, 92.6),
    *seeds("level", 101.0, 108.0, 91.0),
    *seeds("once", 120.0),
  ]
  found = cells(table(rows, ["test_ppl"], comparison=TO_FULL))
  assert found["full"]["to full"] == "-"
  assert found["worse"]["to full"].startswith("+3.0 % (+2.")
  assert found["worse"]["seeds"] == "3"
  assert found["level"]["to full"].endswith("), n.s.")
  assert found["once"]["to full"] == "+20.0 %"
  text = report(rows, ["test_ppl"], comparison=TO_FULL)
  assert "paired t-test" in text
  assert ONE_SEED not in text


def test_one_seed_is_noted_and_no_test_claimed():
  rows = [*seeds("full", 100.0), *seeds("worse", 103.0)]
  text = report(rows, ["test_ppl"], comparison=TO_FULL)
  assert text.startswith(ONE_SEED)
  assert "t-test" not in text
  assert "n.s." not in text


def test_measurements_have_no_seeds():
  rows = [row("a", ratio=2.0), row("b", ratio=3.0)]
  for each in rows:
    del each["steps"]
  assert report(rows, ["ratio"]).startswith("| method | ratio |\n")


def test_seeds_without_a_metric_are_counted():
  rows = [*seeds("full", 100.0, 102.0, 104.0), *seeds("pps", 101.0)]
  rows[2]["test_nll"] = rows[2].pop("test_ppl")
  found = cells(table(rows, ["test_ppl", "test_nll"]))
  assert found["full"]["seeds"] == "3"
  assert found["full"]["test_ppl"] == "101.0 ± 1.4 (2 of 3)"
  assert found["full"]["test_nll"] == "104.0 (1 of 3)"
  assert found["pps"]["test_ppl"] == "101.0"
  assert "(1 of 3), and so on" in report(rows, ["test_ppl", "test_nll"])
  assert "(1 of 3)" not in report(rows[:2], ["test_ppl"])


def test_diverged_runs_stay_in_the_table():
  gone = [row("gone", diverged=120)]
  del gone[0]["steps"]
  half = [*seeds("half", 100.0, 102.0), row("half", 2, diverged=1700)]
  text = table([*seeds("full", 100.0, 101.0, 99.0), *gone, *half], ["test_ppl"])
  found = cells(text)
  assert found["gone (diverged at step 120)"]["test_ppl"] == "-"
  assert found["gone (diverged at step 120)"]["seeds"] == "0 of 1"
  assert found["half (diverged at step 1,700)"]["seeds"] == "2 of 3"
  assert found["half (diverged at step 1,700)"]["test_ppl"] == "101.0 ± 1.4"


def test_standard_error_belongs_to_the_first_metric():
  rows = [
    row("new", test_ppl=100.0, test_nll_se=0.02),
    row("old", test_ppl=110.0),
  ]
  found = cells(table(rows, ["test_ppl"]))
  assert found["new"]["standard error"] == "2"
  assert found["old"]["standard error"] == "-"
  labels = [row("new", **{"test_p@1": 0.5, "test_p@1_se": 0.0123})]
  assert cells(table(labels, ["test_p@1"]))["new"]["standard error"] == "0.012"


def test_empty_columns_are_left_out():
  header = table(seeds("full", 100.0), ["test_ppl", "test_mrr@10"]).splitlines()[0]
  assert header == "| method | seeds | test_ppl |"
  tried = [row("full", test_ppl=100.0, trials=4), row("other", test_ppl=100.0)]
  assert cells(table(tried, ["test_ppl"]))["full"]["trials"] == "4"
  assert cells(table(tried, ["test_ppl"]))["other"]["trials"] == "-"


def test_rate_at_the_edge_of_the_search_is_marked_and_explained():
  edge = row("full", test_ppl=100.0, trials=4, at_edge=["train.lr"])
  rows = [edge, row("other", test_ppl=100.0, trials=4)]
  found = cells(table(rows, ["test_ppl"]))
  assert (found["full"]["trials"], found["other"]["trials"]) == ("4 ‡", "4")
  assert "‡: the best rate" in report(rows, ["test_ppl"])
  assert "‡" not in report(rows[1:], ["test_ppl"])


def test_all_starts_of_a_resumed_run_are_named():
  start = {"device": "a card", "jax": "1", "python": "3", "git": "b" * 40}
  resumed = row("full", test_ppl=9.0, earlier=[start | {"git_dirty": True}])
  said = report([resumed, row("pps", test_ppl=9.0)], ["test_ppl"])
  assert "on a card, a processor; jax 0, 1, Python 3; revision 0000000, b" in said


def test_idle_seconds_are_steps_times_the_step_time(tmp_path):
  path = tmp_path / "times.jsonl"
  path.write_text(
    '{"name": "full", "ms_per_step": 50, "operations_per_step": 3e9, "device": "d"}\n'
    '{"name": "of another kind", "ratio": 2}\n'
  )
  rows = axes.joined([*seeds("full", 100.0, 101.0), *seeds("pps", 102.0)], path)
  found = cells(table(rows, ["test_ppl"]))
  assert found["full"]["idle seconds"] == "5.000"
  assert found["full"]["operations"] == "3e+11"
  assert found["pps"]["idle seconds"] == "-"
  assert "of another kind" not in found
  assert axes.joined(rows, tmp_path / "none.jsonl") == rows


def test_seconds_are_scaled_to_one_pace_of_the_machine(tmp_path):
  path = tmp_path / "times.jsonl"
  line = '{{"name": "{}", "ms_per_step": {}, "full_ms": {}, "device": "d"}}\n'
  text = line.format("full", 50, 50) + line.format("other", 90, 50)
  path.write_text(text + line.format("pps", 30, 100) + line.format("a: pps", 30, 100))
  runs = [*seeds("full", 100.0), *seeds("pps", 102.0), *seeds("a: pps", 102.0)]
  seconds = [row[axes.SECONDS] for row in axes.joined(runs, path)]
  assert seconds == [5.0, 1.5, 3.0]  # the last row has other data


def test_each_device_has_its_own_idle_seconds(tmp_path):
  path = tmp_path / "times.jsonl"
  path.write_text(
    '{"name": "full", "ms_per_step": 50, "device": "slow"}\n'
    '{"name": "full", "ms_per_step": 10, "device": "fast"}\n'
    '{"name": "pps", "ms_per_step": 40, "device": "slow"}\n'
    '{"name": "pps", "ms_per_step": 20, "device": "slow"}\n'
  )
  rows = [*seeds("full", 100.0), *seeds("pps", 101.0)]
  found = cells(table(axes.joined(rows, path), ["test_ppl"]))
  assert found["full"]["idle seconds, slow"] == "5.000"
  assert found["full"]["idle seconds, fast"] == "1.000"
  assert found["pps"]["idle seconds, slow"] == "2.000"  # the last line
  assert found["pps"]["idle seconds, fast"] == "-"


def test_methods_of_different_devices_share_no_column(tmp_path):
  path = tmp_path / "times.jsonl"
  path.write_text(
    '{"name": "full", "ms_per_step": 50, "device": "slow"}\n'
    '{"name": "pps", "ms_per_step": 20, "device": "fast"}\n'
  )
  full, pps = axes.joined([row("full"), row("pps")], path)
  assert full[axes.SECONDS] == full["idle_seconds, slow"] == 5.0
  assert axes.SECONDS not in pps
  assert pps["idle_seconds, fast"] == 2.0


def test_step_time_applies_only_to_runs_with_its_settings(tmp_path):
  """Not to other runs of this name, such as after a change of the sweep."""
  path = tmp_path / "times.jsonl"
  settings = [
    ("configs/a.py", {"train.seed": 1, "train.lr": 0.5}),
    ("configs/a.py", {"train.batch_size": 7}),
    ("configs/b.py", {}),
  ]
  with path.open("w") as file:
    for ms, (config, overrides) in zip((10, 20, 30), settings, strict=True):
      line = {"name": "full", "config": config, "overrides": overrides, "device": "d"}
      print(json.dumps(line | {"ms_per_step": ms}), file=file)
  longer = row("full", seed=2)
  larger = row("full") | {"overrides": {"train.batch_size": 7, "train.epochs": 9}}
  other = row("full") | {"config": "configs/c.py"}
  found = axes.joined([longer, larger, other], path)
  assert [each.get(axes.SECONDS) for each in found] == [1.0, 2.0, None]


def test_times_that_are_not_numbers_are_refused(tmp_path):
  path = tmp_path / "times.jsonl"
  path.write_text('{"name": "full", "ms_per_step": "fast"}\n')
  with pytest.raises(UserError, match="ms_per_step"):
    axes.joined(seeds("full", 100.0), path)


def test_times_with_and_without_huge_pages_are_not_mixed(tmp_path, capsys):
  """The most common kind counts; a line that does not say is a third kind."""
  path = tmp_path / "times.jsonl"
  rows = [*seeds("full", 100.0), *seeds("pps", 101.0), *seeds("nce", 102.0)]
  kinds = [("full", 50, True), ("full", 20, False), ("pps", 4, False), ("nce", 9, True)]
  lines = [
    {"name": name, "ms_per_step": ms, "full_ms": ms, "device": "d", "page_faults": kind}
    | {"operations_per_step": 7}
    for name, ms, kind in [*kinds, ("nce", 8, None)]
  ]
  lines[-1].pop("page_faults")
  path.write_text("".join(json.dumps(line) + "\n" for line in lines))
  full, pps, nce = axes.joined(rows, path)
  # Two with and two without: the lines with huge pages count, at their median pace.
  assert (full[axes.SECONDS], pps[axes.SECONDS]) == (1.2, 1.2)
  assert axes.SECONDS not in nce
  assert nce[axes.OPERATIONS] == 700  # these do not depend on pages
  told = capsys.readouterr().err
  assert "`page_faults` differs from most: 'nce'; time all of them again" in told
  found = cells(table([full, pps, nce], ["test_ppl"]))
  assert found["nce"]["idle seconds"] == "-"


def test_ambiguous_reference_row_is_refused():
  rows = [row("full", test_ppl=100.0), row("pps", test_ppl=101.0)]
  other = row("full", test_ppl=90.0) | {"run": "other", "overrides": {"train.lr": 2}}
  with pytest.raises(UserError, match=r"may be 'full configs/a.py' or 'full .*lr=2'"):
    table([*rows, other], ["test_ppl"], comparison=TO_FULL)


def test_baseline_with_several_data_seeds_is_their_mean():
  bigram = [
    counted("bigram, counted", test_ppl=ppl)
    | {"run": f"bigram {seed}", "overrides": {"data.seed": seed}}
    for seed, ppl in enumerate((100.0, 200.0))
  ]
  found = cells(table([*seeds("full", 140.0), *bigram], ["test_ppl"]))
  assert found["full"]["test_ppl"] == "140.0"
  assert found["bigram, counted (baseline)"]["test_ppl"] == "150.0 ± 70.7"
