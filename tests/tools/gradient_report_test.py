"""The report on gradient noise, against gradients of an explicit loss."""

import argparse
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from largevocab import main
from largevocab.errors import UserError
from largevocab.tools import gradient_report
from largevocab.tools.reports.specs import sampled_head
from largevocab.tools.reports.trained import fresh_state, trained
from largevocab.training.activations import activations
from largevocab.training.input_rows import look_up
from tests.long import others_long

REPOSITORY = pathlib.Path(gradient_report.__file__).parents[2]
BATCHES, DRAWS = 5, 6


@pytest.fixture(scope="module")
def model(tmp_path_factory):
  """A run whose softmax is far from flat."""
  path = tmp_path_factory.mktemp("run")
  given = f"--config={REPOSITORY}/configs/ptb.py:full,runlocal"
  flags = [f"--workdir={path}", "--config.head.init_scale=3.0"]
  assert main.run(["main", given, *flags]) == 0
  return path, trained(str(path), "latest")


@pytest.fixture(scope="module")
def given(model):
  return gradient_report.read(model[1], argparse.Namespace(batches=BATCHES))


@pytest.mark.long
def test_exact_gradient_is_that_of_the_explicit_loss(model, given):
  _, (exp, _, _, state) = model

  def loss(params, w_VD, batch, carry):
    rows_BTE = look_up(exp, state.inputs, state.head, batch.x)
    h_ND, _ = activations(exp, params, rows_BTE, carry, batch)
    log_p_NV = jax.nn.log_softmax(exp.head.features(h_ND) @ w_VD.T)
    of_true_N = jnp.take_along_axis(log_p_NV, jnp.asarray(batch.y.ids_NP), 1)[:, 0]
    w_N = batch.y.w_NP[:, 0]
    return -jnp.sum(w_N * of_true_N) / jnp.sum(w_N)

  assert len(given.batches) == BATCHES
  starts = [np.asarray(jax.tree.leaves(each.carry)[0]) for each in given.batches]
  assert not np.allclose(starts[0], starts[-1])
  for batch, carry, got in given.batches:
    w_VD = state.head.table.w_VD
    dparams, dw_VD = jax.grad(loss, (0, 1))(state.params, w_VD, batch, carry)
    np.testing.assert_allclose(got.rows, dw_VD, rtol=1e-3, atol=1e-6)
    want = ravel_pytree(dparams)[0]
    np.testing.assert_allclose(got.network, want, rtol=1e-3, atol=1e-6)
    assert not np.allclose(want, 0, atol=1e-4)


TEXTS = ["uniform:num_samples=16", "importance/unigram:num_samples=8"]


@pytest.mark.parametrize("text", others_long(TEXTS, TEXTS[1:]))
def test_figures_match_their_definitions(model, given, text):
  head = sampled_head(text, model[1].exp.head)
  got = gradient_report.figures(head, given, DRAWS)
  state = fresh_state(head, model[1].data.counts, model[1].w_VD)
  drawn = gradient_report.gradients(model[1], head, state)
  for part in gradient_report.PARTS:
    of = lambda gradient: np.float64(getattr(gradient, part)).ravel()  # noqa: B023
    true_BX = np.stack([of(each.gradient) for each in given.batches])
    scale = true_BX.var(axis=0, ddof=1).sum()
    noise, bias, sign = [], [], []
    for b, (batch, carry, _) in enumerate(given.batches):
      keys = jax.random.split(jax.random.fold_in(gradient_report.KEY, b), DRAWS)
      got_RX = np.stack([of(drawn(batch, carry, key)) for key in keys])
      noise.append(got_RX.var(axis=0, ddof=1).sum())
      bias.append(((got_RX.mean(0) - true_BX[b]) ** 2).sum() - noise[-1] / DRAWS)
      right_RX = np.sign(got_RX) == np.sign(true_BX[b])
      sign.append(np.mean([r[g != 0].mean() for r, g in zip(right_RX, got_RX)]))  # noqa: B905
    want = np.mean(noise) / scale, np.mean(bias) / scale, np.mean(sign)
    found = [got[f"{what}_{part}"] for what in ("noise", "bias", "sign")]
    np.testing.assert_allclose(found, want, rtol=1e-3)
    assert want[0] > 0.01


def test_gradient_is_exact_if_all_classes_are_drawn(model, given):
  head = sampled_head("pps:num_samples=100000", model[1].exp.head)
  got = gradient_report.figures(head, given, 2)
  for part in gradient_report.PARTS:
    assert abs(got[f"noise_{part}"]) < 1e-6
    assert abs(got[f"bias_{part}"]) < 1e-6
    assert got[f"sign_{part}"] > 0.999


def test_runs_with_other_seeds_are_seeds_of_one_method(tmp_path):
  given = f"--config={REPOSITORY}/configs/ptb.py:full,runlocal"
  flags = [f"--workdir={tmp_path / 'run'}", "--config.train.seed=3"]
  assert main.run(["main", given, *flags]) == 0
  output = tmp_path / "results.jsonl"
  flags = [flags[0], f"--output={output}", "--batches=2", "--draws=2"]
  assert gradient_report.main([*flags, "uniform:num_samples=4"]) == 0
  (row,) = map(json.loads, output.open())
  assert row["name"] == "uniform:num_samples=4"
  assert row["overrides"] == {"train.seed": 3}
  assert row["run"].endswith(", seed=3")


@pytest.mark.long
def test_network_without_parameters_has_no_noise(tmp_path):
  given = f"--config={REPOSITORY}/configs/text.py:full,model=linear,runlocal"
  assert main.run(["main", given, f"--workdir={tmp_path / 'run'}"]) == 0
  output = tmp_path / "results.jsonl"
  flags = [f"--workdir={tmp_path / 'run'}", f"--output={output}", "--draws=2"]
  assert gradient_report.main([*flags, "--batches=2", "uniform:num_samples=4"]) == 0
  (row,) = map(json.loads, output.open())
  assert row["noise_rows"] > 0
  assert not any(key.endswith("_network") for key in row)


def test_misspelt_head_is_found_before_data_are_read(model, tmp_path):
  (tmp_path / "config.json").write_text((model[0] / "config.json").read_text())
  with pytest.raises(UserError, match="unifrom"):
    gradient_report.main([f"--workdir={tmp_path}", "unifrom"])
  with pytest.raises(UserError, match="checkpoint"):
    gradient_report.main([f"--workdir={tmp_path}", "uniform"])


def test_report_is_a_program(model, tmp_path, capsys):
  path, output = model[0], tmp_path / "results.jsonl"
  flags = [f"--workdir={path}", f"--output={output}", "--batches=3", "--draws=2"]
  assert gradient_report.main([*flags, "--label=a", "unigram:num_samples=8"]) == 0
  (row,) = map(json.loads, output.open())
  assert row["name"] == "a: unigram:num_samples=8"
  assert (row["batches"], row["draws"]) == (3, 2)
  assert "noise_network" in capsys.readouterr().out
  with pytest.raises(UserError, match="--draws=1: must be at least 2"):
    gradient_report.main([f"--workdir={path}", "--draws=1", "uniform"])
  with pytest.raises(UserError, match="draws no negatives"):
    gradient_report.main([f"--workdir={path}", "full/cosine"])
  with pytest.raises(UserError, match="products as logits; leave out '/cosine'"):
    gradient_report.main([f"--workdir={path}", "sampled/uniform/cosine"])
