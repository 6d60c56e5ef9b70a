"""Learning rates, accumulated batches and early stopping."""

import functools
import json
import math
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import config as c
from largevocab.errors import UserError
from largevocab.train import train
from largevocab.training import step as steps
from largevocab.training.state import init_state, restore
from tests.long import others_long

B, T, V = 4, 3, 30
LR = 0.5


def settings(head="full", optimizer="sgd", mesh=(1, 0), evaluating=1.0, **train):
  return c.experiment(
    data=c.part("data", "zipf", num_classes=V, num_tokens=500),
    model=c.part("model", "lstm", embed=6, hidden=6, layers=1),
    head=c.head(head, num_samples=8, init_scale=0.5),
    optimizer=c.part("optimizer", optimizer),
    train=c.Training(batch_size=B, unroll=T, **train),
    eval=c.Evaluating(every_epochs=evaluating, batch_size=B, unroll=T),
    checkpoint=c.Checkpointing(every_steps=7),
    log=c.Logging(every_steps=5, monitor_every_steps=0),
    mesh=c.Devices(*mesh),
  )


W = 5
EXPECTED = {
  "cosine": lambda t: 0.1 + 0.9 * (1 + math.cos(math.pi * (t - W) / 9995)) / 2,
  "linear": lambda t: 1 - 0.9 * (t - W) / 9995,
  "inverse_sqrt": lambda t: math.sqrt(W / t),
  "hold": lambda t: 0.5 ** max(t // 1000 + 1 - 3, 0),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_rates_warm_up_and_then_follow_the_schedule(name):
  keys = {"lr": 2.0, "warmup_steps": W, "end_factor": 0.1, "schedule": name}
  keys |= {"epochs": 10.0, "hold_epochs": 3.0, "decay": 0.5}
  rate = c.Training(**keys).rates(1000)
  for t in (W, W + 1, 2999, 3000, 4095, 4096, 9999, 4097):
    assert rate(t) == pytest.approx(2 * EXPECTED[name](t), rel=1e-5), t
  assert [rate(t) for t in range(W)] == pytest.approx(
    [2 * (t + 1) / 6 for t in range(W)]
  )


def test_default_rates_equal_those_without_a_schedule():
  training = c.Training(lr=0.3, hold_epochs=2, decay=0.7)
  rate = training.rates(10)
  assert all(rate(t) == training.learning_rate(t, 10) for t in range(100))


def test_rate_can_be_held_for_a_fraction_of_an_epoch():
  rate = c.Training(lr=1.0, hold_epochs=2.5, decay=0.5).rates(10)
  assert [rate(t) for t in (0, 24, 25, 34, 35)] == [1, 1, 0.5, 0.5, 0.25]
  rate = c.Training(lr=1.0, hold_epochs=1.1, decay=0.5).rates(10)
  assert [rate(t) for t in (10, 11, 20, 21)] == [1, 0.5, 0.5, 0.25]


@pytest.fixture(scope="module", params=others_long(["full", "hierarchical"], ["full"]))
def accumulated(request):
  """The head's name, the first state, the states after two steps, and their batches."""
  exp = c.build(settings(request.param, clip_norm=0.0))
  data = exp.data.load()
  state = init_state(exp, data)
  one, two = map(data.training_batches(B, T).batch, range(2))
  two = two._replace(y=two.y._replace(w_NP=np.where(np.arange(12)[:, None] < 5, 1, 0)))
  two = two._replace(y=two.y._replace(w_NP=two.y.w_NP.astype(np.float32)))
  step = jax.jit(functools.partial(steps.train_step, exp=exp))
  first = step(state, one, LR)
  second = step(state._replace(carry=first.carry), two, LR)
  return request.param, state, (first, second), [one, two]


def moved(new, old):
  """How far network, inputs and class rows have moved."""
  parts = lambda state: (state.params, state.inputs, state.head)
  leaves = zip(*(jax.tree.leaves(parts(state)) for state in (new, old)), strict=True)
  real = [(a, b) for a, b in leaves if jnp.issubdtype(a.dtype, jnp.floating)]
  return np.concatenate([np.ravel(np.float64(a) - np.float64(b)) for a, b in real])


def test_step_on_two_batches_has_the_gradient_of_their_mean_loss(accumulated):
  """The weights are 12 and 5; there is no dropout and no sampling."""
  head, state, (first, second), batches = accumulated
  exp = c.build(settings(head, clip_norm=0.0, accumulate=2))
  both = jax.jit(functools.partial(steps.train_step, exp=exp))(state, batches, LR)
  want = (12 * moved(first, state) + 5 * moved(second, state)) / 17
  np.testing.assert_allclose(moved(both, state), want, rtol=1e-4, atol=1e-6)
  assert np.abs(moved(first, state) - want).max() > 1e-3
  loss = (12 * first.loss_sum + 5 * second.loss_sum) / 17
  np.testing.assert_allclose(both.loss_sum, loss, rtol=1e-5)
  for a, b in zip(*map(jax.tree.leaves, (both.carry, second.carry)), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5)
  assert int(both.step) == 1


def test_accumulated_gradients_are_clipped_by_their_own_norm(accumulated):
  head, state, _, batches = accumulated
  exp = c.build(settings(head, clip_norm=0.01, accumulate=2))
  both = jax.jit(functools.partial(steps.train_step, exp=exp))(state, batches, LR)
  norm = np.linalg.norm(moved(both, state)) / LR
  assert norm == pytest.approx(0.01, rel=1e-3)


def run(config, workdir):
  result = train(c.build(config), config.to_dict(), str(workdir))
  lines = (workdir / "metrics.jsonl").read_text().splitlines()
  timing = ("seconds", "tokens_per_second", "train_seconds", "ms_per_step", "peak_mib")
  strip = lambda record: {k: v for k, v in record.items() if k not in timing}
  _, state = restore(c.build(config), str(workdir), "latest")
  leaves = jax.tree.leaves(state._replace(key=jax.random.key_data(state.key)))
  return strip(result), [strip(json.loads(line)) for line in lines], leaves


def stopping(mesh, patience):
  """Uses all features: two batches per step, warm-up, a schedule, lazy decay."""
  keys = {"accumulate": 2, "warmup_steps": 3, "schedule": "cosine"}
  keys |= {"lr": 0.3, "max_steps": 200, "epochs": 1000.0, "patience": patience}
  return settings("sampled/pps", "adamw", mesh, evaluating=0.4, **keys)


def test_run_stops_early_and_keeps_its_best_state(tmp_path, caplog):
  config = stopping((1, 0), patience=2)
  with caplog.at_level("INFO", "largevocab"):
    result, lines, _ = run(config, tmp_path)
  told = [line for line in caplog.messages if "  valid  " in line]
  assert len(told) == len(set(told))  # no validation is done twice
  losses = [line["nll"] for line in lines if line["split"] == "valid"]
  best = losses.index(min(losses))
  assert best == len(losses) - 3
  assert result["steps"] == 8 * len(losses) < 200
  saved = {int(p.name) for p in tmp_path.glob("checkpoints/*") if p.name.isdigit()}
  assert 8 * (best + 1) in saved
  assert max(saved) == result["steps"]
  (tmp_path / "result.json").unlink()
  assert run(config, tmp_path)[:2] == (result, lines)  # only evaluated


@pytest.mark.long
@pytest.mark.parametrize("mesh", [(1, 0), (2, 1)])
def test_early_stopped_run_resumes_to_the_same_step_and_bits(tmp_path, mesh):
  config = stopping(mesh, patience=2)
  result, lines, state = run(config, tmp_path)
  (tmp_path / "result.json").unlink()
  shutil.rmtree(tmp_path / "checkpoints" / str(result["steps"]))
  again = run(config, tmp_path)
  assert again[:2] == (result, lines)
  for a, b in zip(again[2], state, strict=True):
    np.testing.assert_array_equal(a, b)
  more = run(stopping(mesh, patience=3), tmp_path)[0]
  assert more["steps"] > result["steps"]  # it continues


@pytest.mark.long
def test_final_evaluation_of_a_shorter_run_does_not_count_for_patience(tmp_path):
  """An extended run ends where a single long run would have ended."""
  keys = {"lr": 0.3, "epochs": 1000.0, "patience": 2}
  at_once, shorter = tmp_path / "at_once", tmp_path / "shorter"
  long = settings("sampled/pps", "sgd", evaluating=0.4, max_steps=300, **keys)
  result, lines, _ = run(long, at_once)
  assert result["steps"] < 300
  losses = [line["nll"] for line in lines if line["split"] == "valid"]
  between = result["steps"] * (losses.index(min(losses)) + 1) // len(losses) + 1
  run(
    settings("sampled/pps", "sgd", evaluating=0.4, max_steps=between, **keys), shorter
  )
  costs = json.loads((shorter / "checkpoints" / "end_cost.json").read_text())
  assert costs[str(between)] > min(losses)  # it would count against the patience
  assert run(long, shorter)[0] == result
  # With other evaluations it does not continue training.
  seldom = settings("sampled/pps", "sgd", evaluating=0.8, max_steps=300, **keys)
  assert run(seldom, shorter)[0]["steps"] == result["steps"]


def test_samplers_that_count_one_batch_per_step_refuse_accumulation():
  with pytest.raises(UserError, match=r"train\.accumulate is 2, .* InBatch counts"):
    c.build(settings("sampled/in_batch", accumulate=2))


def test_patience_needs_evaluations():
  with pytest.raises(UserError, match=r"train\.patience is 3, but eval\.every_epochs"):
    c.build(settings(patience=3, evaluating=0.0))
