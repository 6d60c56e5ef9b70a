"""The search for rates, on invented records."""

import dataclasses
import math

import pytest

from largevocab.errors import UserError
from largevocab.tools.sweeps.search import Search, search
from largevocab.tools.sweeps.sweep_run import Run

RUN = Run("configs/a.py", {"head.m": 1, "train.seed": 3, "train.max_steps": 900}, "a")
RATES = Search(5, {"train.lr": [1.0, 2.0, 4.0], "train.head_lr_factor": [1, 10]})


def test_trials_differ_from_the_run_only_in_grid_length_and_seed():
  trials = RATES.trials(RUN)
  assert len({trial.id for trial in trials}) == 6
  for trial in trials:
    rates = {key: trial.overrides[key] for key in RATES.grid}
    assert rates in RATES.points()
    rest = {k: v for k, v in trial.overrides.items() if k not in RATES.grid}
    same = {"head.m": 1, "train.max_steps": 5, "train.seed": 100}
    assert rest == {**same, "eval.every_epochs": 0.0}


@pytest.mark.parametrize(("share", "steps"), [(0.25, 225), (0.005, 5)])
def test_trials_can_have_a_share_of_the_steps_of_the_run(share, steps):
  rates = dataclasses.replace(RATES, share=share)
  assert {t.overrides["train.max_steps"] for t in rates.trials(RUN)} == {steps}
  with pytest.raises(UserError, match=r"'a' sets no train\.max_steps"):
    rates.trials(Run("configs/a.py", {}, "a"))


def test_seeds_share_trials_and_methods_do_not():
  ids = lambda run: [trial.id for trial in RATES.trials(run)]
  assert ids(RUN) == ids(RUN.with_overrides({"train.seed": 4}))
  assert not set(ids(RUN)) & set(ids(RUN.with_overrides({"head.m": 2})))


@pytest.mark.parametrize(
  ("metric", "values", "best"),
  [
    ("valid_nll", [3.0, 2.0, 1.5, 9.0, 1.6, 4.0], 2),
    ("valid_nll", [None, math.nan, 5.0, math.inf, None, 6.0], 2),
    ("valid_p@1", [0.1, 0.2, 0.5, 0.9, None, 0.4], 3),
    ("valid_hr@10", [0.1, 0.2, 0.5, 0.9, None, 0.4], 3),
    ("valid_SimLex-999_input", [0.1, 0.2, 0.5, 0.9, None, 0.4], 3),
    ("valid_bits_per_byte", [3.0, 2.0, 1.5, 9.0, 1.6, 4.0], 2),
    ("valid_nll", [None] * 6, 0),  # all diverged: the run will, too, and gets a row
  ],
)
def test_best_trial_on_validation_data_is_chosen(metric, values, best):
  rates = Search(RATES.steps, RATES.grid, metric)
  of = {t.id: v for t, v in zip(rates.trials(RUN), values, strict=True)}

  def record_of(trial):
    value = of[trial.id]
    return {"diverged": 3} if value is None else {metric: value, "test_nll": 0.0}

  chosen = rates.chosen(RUN, record_of)
  assert chosen == RUN.with_overrides(rates.points()[best])


def test_metric_that_no_trial_has_is_named():
  with pytest.raises(UserError, match=r"has no 'valid_nll'; choose another `metric`"):
    RATES.chosen(RUN, lambda trial: {"run": trial.id, "valid_loss": 1.0})


def test_trials_have_no_patience():
  """Patience counts evaluations, and trials have none before their end."""
  (trial, *_) = RATES.trials(RUN.with_overrides({"train.patience": 3}))
  assert trial.overrides["train.patience"] == 0


def test_nothing_is_chosen_until_all_trials_have_ended():
  *_, last = RATES.trials(RUN)
  record_of = lambda trial: None if trial == last else {"valid_nll": 1.0}
  assert RATES.chosen(RUN, record_of) is None


def test_run_with_its_own_rates_is_not_searched():
  given = RUN.with_overrides({"train.lr": 8.0, "train.head_lr_factor": 1})
  assert RATES.trials(given) == []
  assert RATES.chosen(given, {}.__getitem__) == given
  for call in (RATES.trials, lambda run: RATES.chosen(run, {}.__getitem__)):
    with pytest.raises(UserError, match=r"train\.lr .* but not train\.head_lr"):
      call(RUN.with_overrides({"train.lr": 8.0}))  # a rate of the grid would replace it


def test_rates_at_the_edge_of_a_grid_are_recorded():
  told = lambda lr, factor: RATES.record_fields(
    RUN.with_overrides({"train.lr": lr, "train.head_lr_factor": factor})
  )
  assert told(2.0, 10) == {"trials": 6}  # with two values, both are edges
  assert told(4.0, 1) == {"trials": 6, "at_edge": ["train.lr"]}


@pytest.mark.parametrize(
  ("description", "says"),
  [
    ({"grid": {"train.lr": [1]}}, "its keys are"),
    ({"steps": 5, "grid": {"train.lr": [1]}, "more": 1}, "its keys are"),
    ({"steps": 0, "grid": {"train.lr": [1]}}, "steps is 0"),
    ({"steps": 5, "grid": {}}, r"grid is \{\}"),
    ({"steps": 5, "grid": {"train.lr": 1}}, "grid is"),
    ({"steps": 5, "grid": {"a": [1]}, "metric": "test_nll"}, "of validation data"),
    (
      {"steps": 5, "grid": {"a": [1]}, "share": 2},
      "share is 2, but must be from 0 to 1",
    ),
  ],
)
def test_mistakes_in_a_search_are_named(description, says):
  with pytest.raises(UserError, match=says):
    search(description)
