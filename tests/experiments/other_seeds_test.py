"""experiments/other_seeds: means with other seeds beside those of the sweeps."""

import json
import pathlib

import pytest

from largevocab.tools.sweeps import sweepfile

EXPERIMENTS = pathlib.Path(__file__).parents[2] / "experiments"


@pytest.fixture(scope="module")
def again():
  return sweepfile.load(EXPERIMENTS / "other_seeds" / "sweep.py")


def rows_before(name):
  lines = (EXPERIMENTS / name / "results.jsonl").read_text().splitlines()
  rows = map(json.loads, lines)
  return [row for row in rows if not row.get("baseline")]


def rows_with(name, change=lambda value: value):
  """Rows of runs with other seeds whose scores are those of the sweep, changed."""
  metric = {"blocks": "test_ppl", "factored_choices": "test_nll"}[name]
  for row in rows_before(name):
    seed = row["overrides"].get("train.seed", 0) + 3
    yield row | {
      **{"name": f"{name}: {row['name']}", metric: change(row[metric])},
      "overrides": row["overrides"] | {"train.seed": seed},
    }


def test_every_row_has_three_new_seeds(again):
  seeds = {}
  for run in again.runs:
    seeds.setdefault(run.name, set()).add(run.overrides["train.seed"])
  assert set(map(frozenset, seeds.values())) == {frozenset({3, 4, 5})}
  assert len(seeds) == 24
  old = {(row["config"], row["run"]) for row in rows_before("sequences")}
  assert not {(run.config, run.id) for run in again.runs} & old


def test_rate_is_that_of_the_row(again):
  runs = {run.name: run for run in again.runs}
  (row, *_) = rows_before("sequences")
  key = "train.head_lr_factor"
  assert runs[f"sequences: {row['name']}"].overrides[key] == row["overrides"][key]


def test_equal_scores_have_a_p_value_of_one(again):
  for row in again.complete([*rows_with("blocks"), *rows_with("factored_choices")]):
    assert row["score"] == row["score_before"]
    assert row.get("difference") == row.get("difference_before")
    assert row.get("score_p", 1.0) == row.get("difference_p", 1.0) == 1.0


def test_shift_of_all_scores_shows_in_scores_and_not_in_differences(again):
  rows = again.complete([*rows_with("factored_choices", lambda nll: nll + 1.0)])
  assert all(row["score_p"] < 1e-3 for row in rows if "score_p" in row)
  assert all(row["difference_p"] > 0.99 for row in rows if "difference_p" in row)
  assert sum("difference_p" in row for row in rows) == 9


def test_reference_has_the_same_seed(again):
  rows = {
    (row["name"], row["overrides"]["train.seed"]): row
    for row in again.complete([*rows_with("blocks", lambda ppl: ppl**2)])
  }
  for seed in (3, 4, 5):
    many, one = (rows[f"blocks: PTB, {n}", seed] for n in ("64 blocks", "1 block"))
    assert many["difference"] == many["test_ppl"] - one["test_ppl"]
    assert "difference" not in one
