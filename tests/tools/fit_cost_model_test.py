"""Fits of time models recover known constants."""

import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.ops.adaptive import cost_model
from largevocab.ops.adaptive.cost_model import ProductTime, StepTime
from largevocab.tools import fit_cost_model
from largevocab.tools.fit_cost_model import ProductSize
from largevocab.tools.reports import measure

TRUE = StepTime(0, 0.0, 0.0, 3e-5, 4e-9, 5e-11, 6e-10, 3e-9, 2e6)


def test_fit_recovers_the_constants_of_a_step():
  sizes = fit_cost_model.step_sizes(120, "cpu")
  t_P = TRUE(*np.array(sizes, np.float64).T)
  got = fit_cost_model.fit_step(sizes, t_P)
  assert got.points == 120
  assert got.rms_error < 1e-3
  for key in ("constant", "logit", "product", "row", "far", "near"):
    assert getattr(got, key) == pytest.approx(getattr(TRUE, key), rel=0.02), key


def test_fit_errors_match_the_noise():
  sizes = fit_cost_model.step_sizes(120, "cpu")
  noise_P = np.random.default_rng(0).normal(0, 0.2, 120)
  t_P = TRUE(*np.array(sizes, np.float64).T) * np.exp(noise_P)
  got = fit_cost_model.fit_step(sizes, t_P)
  assert 0.15 < got.rms_error < 0.2
  assert got.worst_error > 0.4
  assert got.product == pytest.approx(TRUE.product, rel=0.2)


def test_fit_recovers_the_constants_of_a_product():
  true = ProductTime(0, 0.0, 0.0, dim=512, constant=2e-5, rate=1e-8, least=4000.0)
  sizes = fit_cost_model.product_sizes(60, 512, "cpu")
  t_P = np.array([true(size.k, size.B) for size in sizes])
  got = fit_cost_model.fit_product(sizes, t_P)
  assert got.rms_error < 1e-3
  for key in ("dim", "constant", "rate", "least"):
    assert getattr(got, key) == pytest.approx(getattr(true, key), rel=0.02), key


def test_sizes_cover_the_whole_range():
  sizes = np.array(fit_cost_model.step_sizes(120, "cpu"))
  assert len(sizes) == len(np.unique(sizes, axis=0)) == 120
  assert (sizes.min(axis=0) <= [20, 16, 8]).all()
  assert (sizes.max(axis=0) >= [300_000, 3000, 900]).all()
  assert sizes.prod(axis=1).max() <= 8e9


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_step_and_product_times_are_measured(monkeypatch, dtype):
  monkeypatch.setattr(measure, "LEAST_SECONDS", 0.0)
  for seconds in (fit_cost_model.step_seconds, fit_cost_model.product_seconds):
    assert 0 < seconds(ProductSize(100, 8, 16), jnp.dtype(dtype)) < 1


def test_saved_cost_model_can_be_loaded(monkeypatch, tmp_path, capsys):
  monkeypatch.setattr(measure, "LEAST_SECONDS", 0.0)
  monkeypatch.setattr(fit_cost_model, "STARTS", 1)
  sizes = [ProductSize(8, 8, 8), ProductSize(90, 64, 8), ProductSize(900, 8, 8)]
  made = fit_cost_model.fitted_model(sizes, sizes, "float32")
  made.save(tmp_path / "mine.json")
  assert cost_model.load(str(tmp_path / "mine.json")) == made
  assert made.step.points == made.product.points == 3
  assert made.product.dim == 8
  assert "| k | B | d | ms | predicted ms | ratio |" in capsys.readouterr().out


def test_wrong_arguments_are_named(tmp_path):
  with pytest.raises(UserError, match="--points=3"):
    fit_cost_model.main(["--points=3"])
  with pytest.raises(UserError, match="no such directory"):
    fit_cost_model.main([f"--out={tmp_path}/none/mine.json"])
  with pytest.raises(UserError, match=r"is a directory: name a \.json file"):
    fit_cost_model.main([f"--out={tmp_path}"])
  with pytest.raises(UserError, match="--dim=1000000000: too large for this device"):
    fit_cost_model.main([f"--out={tmp_path}/mine.json", "--dim=1000000000"])
