"""Singular values of U while the spherical softmax trains."""

import dataclasses
import doctest
import importlib.util
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import config
from largevocab.errors import UserError
from largevocab.heads import Spherical
from largevocab.losses.spherical import SphericalSoftmax, Squared
from largevocab.training.settings import Experiment

RUN = pathlib.Path(__file__).parents[2] / "experiments" / "spherical_upkeep" / "run.py"
D = 6


@pytest.fixture(scope="module")
def upkeep():
  spec = importlib.util.spec_from_file_location("spherical_upkeep", RUN)
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def experiment(lr):
  return Experiment(
    head=Spherical(loss=SphericalSoftmax(), bias=False),
    data=config.part("data", "zipf", num_classes=30, num_tokens=600),
    model=config.part("model", "ngram", embed=4, hidden=D),
    optimizer=config.part("optimizer", "sgd"),
    train=config.Training(
      batch_size=4, unroll=4, lr=lr, head_lr_factor=10.0, clip_norm=0.0
    ),
  )


def test_examples_in_the_docstrings_hold(upkeep):
  assert not doctest.testmod(upkeep, extraglobs={"np": np}).failed


def test_values_leave_the_range_only_at_a_high_rate(upkeep):
  calm, wild = (
    np.array([values for values, _ in upkeep.checks_of(experiment(lr), 20, 5)])
    for lr in (1e-6, 3.0)
  )
  assert calm.shape == wild.shape == (4, D)
  assert upkeep.summary(calm)["none"] == 1
  assert upkeep.summary(wild)["none"] < 1


def test_checks_change_values_and_keep_the_class_table(upkeep, monkeypatch):
  """Without the correction, values continue to drift."""
  exp = experiment(3.0)
  own = [values for values, _ in upkeep.checks_of(exp, 20, 5)]
  monkeypatch.setattr(upkeep, "fix_singular_values", lambda f, key, limit: f)
  free = [values for values, _ in upkeep.checks_of(exp, 20, 5)]
  np.testing.assert_allclose(own[0], free[0], rtol=1e-5)
  assert np.abs(np.log(free[-1])).max() > np.abs(np.log(own[-1])).max()


def test_diverging_run_is_reported(upkeep):
  exp = experiment(1e6)
  exp = dataclasses.replace(exp, head=Spherical(loss=Squared(), bias=False))
  with pytest.raises(UserError, match="diverges before step 20"):
    list(upkeep.checks_of(exp, 20, 20))


def test_error_of_the_inverse_is_measured(upkeep):
  head = Spherical(bias=False)
  f = head.init(jax.random.key(0), jnp.ones(9, jnp.int32), 3)
  values, error = upkeep.measured(f._replace(u_inv_DD=1.25 * jnp.eye(3)))
  np.testing.assert_allclose(values, 1)
  assert error == 0.25
