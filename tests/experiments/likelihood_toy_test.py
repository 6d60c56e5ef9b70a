"""Losses compared with the likelihood: the measurements and the findings."""

import doctest
import importlib.util
import math
import pathlib

import numpy as np
import pytest

from largevocab.data.synthetic.softmax_regression import SoftmaxRegression
from largevocab.errors import UserError
from largevocab.tools.sweeps import records

HERE = pathlib.Path(__file__).parents[2] / "experiments" / "likelihood_toy"
C, N, D, B = 12, 40, 4, 8
SIZES = {"num_classes": C, "num_examples": N, "dim": D, "batch_size": B, "points": 2}
SIZES |= {"iterations": 20, "momentum": 0.8, "init_scale": 0.3}


@pytest.fixture(scope="module")
def toy():
  spec = importlib.util.spec_from_file_location("likelihood_toy", HERE / "run.py")
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  module.ALPHAS = ("0", "log(C-1)")  # each has to be compiled
  return module


def flags(path):
  sizes = [f"--{key}={value}" for key, value in SIZES.items()]
  return [*sizes, "--seeds=2", f"--output={path}"]


@pytest.fixture(scope="module")
def results(toy, tmp_path_factory):
  """Records after figure 1, and after figure 2."""
  path = tmp_path_factory.mktemp("toy")
  assert toy.main([*flags(path), "--figure=1"]) == 0
  first = records.load(path / "results.jsonl")
  assert toy.main([*flags(path), "--figure=2"]) == 0
  for name in ("figure1.png", "figure2.png"):
    assert (path / "figures" / name).stat().st_size > 10_000
  return first, records.load(path / "results.jsonl")


def naive_curve(lr, rows_CD):
  """Exact gradient descent with momentum in float64; returns likelihood and bias."""
  data = SoftmaxRegression(num_classes=C, num_examples=N, dim=D).load()
  batches = data.training_batches(B, 1)
  x_ND, ids_N = np.float64(data.train.x_ND), data.train.ids_N

  def softmax(w_CD, x_ND):
    e_NC = np.exp(x_ND @ w_CD.T)
    return e_NC / e_NC.sum(axis=1, keepdims=True)

  w_CD, velocity_CD = np.float64(rows_CD), np.zeros((C, D))
  likelihood, bias = [], []
  for step in range(20):
    at_B = batches.batch(step).y.context_N
    p_BC = softmax(w_CD, x_ND[at_B])
    p_BC[np.arange(B), ids_N[at_B]] -= 1
    velocity_CD = 0.8 * velocity_CD + p_BC.T @ x_ND[at_B] / B
    w_CD = w_CD - lr * velocity_CD
    if step % 10 == 9:
      p_NC = softmax(w_CD, x_ND)
      likelihood.append(np.log(p_NC[np.arange(N), ids_N]).mean())
      true_NC = softmax(np.float64(data.true_VD), x_ND)
      bias.append(np.log(np.abs(p_NC - true_NC).mean()))
  return likelihood, bias


@pytest.mark.long
def test_exact_training_matches_naive_gradient_descent(toy, results):
  import jax

  _, rows = results
  (exact,) = [row for row in rows if row["run"] == "exact, seed=0"]
  head = toy.methods(toy.Setting(**SIZES))["exact"].head
  key_rows, _ = jax.random.split(jax.random.key(0))
  rows_CD = head.init(key_rows, np.ones(C), D).table.w_VD
  likelihood, bias = naive_curve(exact["overrides"]["lr"], rows_CD)
  assert exact["curves"]["log_likelihood"] == pytest.approx(likelihood, rel=1e-3)
  assert exact["curves"]["bias_true"] == pytest.approx(bias, rel=1e-3)
  assert exact["log_likelihood"] == pytest.approx(likelihood[-1], rel=1e-5)
  assert "bias_exact" not in exact
  assert likelihood[0] < likelihood[1]


def test_all_methods_start_from_the_same_rows_and_examples(toy):
  """At rate 0, all agree with exact training; at a higher rate, none does."""
  setting = toy.Setting(**SIZES)
  every = toy.methods(setting)
  at_rest = {name: method._replace(lr=0.0) for name, method in every.items()}
  for curve in toy.compare(setting, at_rest, 0).values():
    assert curve["bias_exact"] == [-math.inf, -math.inf]
  moved = {name: method._replace(lr=0.1) for name, method in every.items()}
  for name, curve in toy.compare(setting, moved, 0).items():
    assert np.isfinite(curve["bias_exact"]).all() == (name != "exact")


def test_figure_replaces_only_its_own_methods(toy, results):
  first, both = results
  names = list(toy.methods(toy.Setting(**SIZES)))
  runs = [row["run"] for row in both]
  assert runs == [f"{name}, seed={seed}" for name in names for seed in (0, 1)]
  rankings = [row for row in both if row["name"].startswith("ranking")]
  assert len(rankings) == 4
  kept = [row for row in first if row["name"] in toy.of_figure(names, 1)]
  assert kept == first
  for row in first:
    (again,) = [r for r in both if r["run"] == row["run"]]
    assert again["curves"]["log_likelihood"] == row["curves"]["log_likelihood"]


def test_search_prints_the_result_of_each_rate(toy, capsys, monkeypatch):
  monkeypatch.setattr(toy, "GRID", (0.0, 0.1))
  sizes = [f"--{k}={v}" for k, v in {**SIZES, "iterations": 10}.items()]
  assert toy.main(["--search", *sizes]) == 0
  header, _, *lines = capsys.readouterr().out.splitlines()
  assert header == "| method | 0.0 | 0.1 |"
  cells = [line.strip("| ").split(" | ") for line in lines]
  assert [name for name, *_ in cells] == list(toy.RATES)
  assert len({at_rest for _, at_rest, _ in cells}) == 1  # the same rows
  assert len({moved for _, _, moved in cells}) == len(cells)
  best = {name: float(moved) > float(at_rest) for name, at_rest, moved in cells}
  assert best[toy.IMPORTANCE]
  assert best[toy.RANKING]


def test_invalid_settings_are_named(toy, monkeypatch):
  with pytest.raises(UserError, match="--iterations is 20 and --points 3"):
    toy.main([*flags("nowhere"), "--figure=1", "--points=3"])
  monkeypatch.setitem(toy.RATES, toy.RANKING, 1e38)
  setting = toy.Setting(**SIZES)
  with pytest.raises(UserError, match="alpha=0 diverges with a rate of 1e"):
    toy.run(setting, figure=1, num_seeds=1)


def test_examples_in_the_docstrings_hold(toy):
  failed, attempted = doctest.testmod(toy)
  assert attempted
  assert not failed


def test_claims_hold_in_the_committed_results(toy):
  """For each seed: the order of the biases, and the order of the margins."""
  rows = records.load(HERE / "results.jsonl")
  for seed in range(5):
    here = {row["name"]: row for row in rows if row["overrides"]["seed"] == seed}
    bias = {name: row["bias_exact"] for name, row in here.items() if name != toy.EXACT}
    estimates = [bias[name] for name in here if name.startswith("complement")]
    assert len(estimates) == 5
    power, importance = "complement, Bernoulli, b=f^a", "complement, importance, q=f"
    assert bias[importance] < bias[power]
    others = [bias[n] for n in (toy.RANKING, toy.BLACKOUT, toy.CORRECTED)]
    assert max(estimates) < min(others)
    assert max(others) < bias[toy.NCE_OWN] - 3
    for name in (toy.NCE_ONE, toy.NEGATIVE_SAMPLING):
      assert bias[name] > bias[toy.NCE_OWN] + 0.5
      assert here[name]["log_likelihood"] < -5
    margins = [bias[f"ranking, alpha={a}"] for a in ("0", "1", "3", "5", "log(C-1)")]
    assert margins == sorted(margins, reverse=True)
    for alpha in ("8", "10"):  # beyond the paper's optimum
      assert bias[f"ranking, alpha={alpha}"] < bias[toy.RANKING]
