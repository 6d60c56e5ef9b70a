"""Tied embeddings in the trainer: one table of input and output rows."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from largevocab import config as c
from largevocab.data.classes import Classes
from largevocab.errors import UserError
from largevocab.main import main
from largevocab.rows import sq_norm
from largevocab.training.state import init_state, restore
from largevocab.training.step import train_step
from tests.long import others_long

B, T, V, D = 6, 3, 30, 6
LR, HEAD_FACTOR = 0.5, 0.5
TEXT = c.part("data", "zipf", num_classes=V, num_tokens=500)


def experiment(
  head="full",
  optimizer="sgd",
  data=TEXT,
  model=None,
  blocks=1,
  devices=1,
  scale=0.5,
  **train,
):
  fields = {"head_lr_factor": HEAD_FACTOR, "batch_size": B, "unroll": T, "tied": True}
  return c.build(
    c.experiment(
      data=data,
      model=model or c.part("model", "lstm", embed=D, hidden=D, layers=1),
      head=c.head(head, num_samples=8, init_scale=scale),
      optimizer=c.part("optimizer", optimizer),
      train=c.Training(**fields | train),
      mesh=c.Devices(blocks=blocks, num=devices),
    )
  )


def start(exp):
  """The first state, batches, and the compiled step."""
  data = exp.data.load()
  batches = data.training_batches(exp.train.batch_size, exp.train.unroll)
  step = jax.jit(functools.partial(train_step, exp=exp), donate_argnums=0)
  return init_state(exp, data), batches, step


ITEMS = c.part("data", "zipf_items", num_classes=V, num_items=400)
MLP = c.part("model", "mlp", embed=D, hidden=D)
CASES = {
  "full": {},
  "sampled/pps": {},
  "items": {"data": ITEMS, "model": MLP, "unroll": 1},
}


@pytest.mark.parametrize("case", others_long(CASES, ["sampled/pps", "items"]))
def test_tied_step_equals_the_clipped_dense_gradient(case):
  head = case.replace("items", "full")
  exp = experiment(head, clip_norm=0.05, **CASES[case])
  state, batches, step = start(exp)
  assert state.inputs is None
  batch = batches.batch(1)
  if case == "items":  # the first of histories
    (batch, *_) = exp.data.load().evaluation_batches("train", B, 1)
    assert np.any(batch.x == V)
  _, k_head = jax.random.split(jax.random.fold_in(state.key, state.step))

  def loss(params, w_VE):
    rows_BTD = jnp.pad(w_VE[:, :D], ((0, 1), (0, 0)))[batch.x]
    h_BTD, _ = exp.model.apply({"params": params}, rows_BTD, state.carry)
    of_table = state.head._replace(table=state.head.table._replace(w_VD=w_VE))
    return exp.head.backward(of_table, h_BTD.reshape(-1, D), batch.y, k_head).loss

  dense = state.params, state.head.table.w_VD
  grads = jax.jit(jax.grad(loss, (0, 1)))(*dense)
  clipped, _ = optax.clip_by_global_norm(0.05).update(grads, optax.EmptyState())
  rates = LR, HEAD_FACTOR * LR
  want = [
    jax.tree.map(lambda w, g, rate=rate: w - rate * g, *pair)
    for *pair, rate in zip(dense, clipped, rates, strict=True)
  ]
  new = step(jax.tree.map(jnp.copy, state), batch, LR)
  got = [new.params, new.head.table.w_VD]
  for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
  moved = sq_norm(jax.tree.map(jnp.subtract, tuple(got), dense)) ** 0.5
  assert 0.01 < moved < LR * 0.05 + 1e-6  # the bound binds


def test_loss_falls():
  state, batches, step = start(experiment("sampled/pps", "adagrad"))
  sums = []
  for i in range(100):
    state = step(state, batches.batch(i), LR)
    sums.append(float(state.loss_sum))
  losses = np.diff([0, *sums])
  assert losses[-20:].mean() < losses[:5].mean() - 0.2


def test_sampled_step_updates_the_tied_table_in_place():
  exp, num_classes = experiment("sampled/pps"), 100_000
  data = exp.data.load()
  batch = data.training_batches(B, T).batch(0)
  vocabulary = Classes(range(num_classes), np.arange(num_classes, 0, -1))
  data = dataclasses.replace(data, vocabulary=vocabulary)
  state = jax.eval_shape(lambda: init_state(exp, data))
  step = jax.jit(functools.partial(train_step, exp=exp), donate_argnums=0)
  memory = step.lower(state, batch, LR).compile().memory_analysis()
  assert memory.alias_size_in_bytes >= 4 * state.head.table.w_VD.size > 2**21
  assert memory.temp_size_in_bytes < 2**18


@pytest.mark.long
def test_tied_run_resumes_bitwise_and_can_be_evaluated_and_queried(tmp_path, capsys):
  def run(name, *flags):
    main(["", f"--workdir={tmp_path / name}", *flags])
    return capsys.readouterr().out

  def trained(name, steps):
    tied = "--config.train.tied=True", f"--config.train.max_steps={steps}"
    run(name, "--config=configs/quickstart.py:sampled/pps,runlocal", *tied)
    exp = c.build(c.of_workdir(str(tmp_path / name)))
    assert exp.train.tied
    state = restore(exp, str(tmp_path / name), "latest")[1]
    state = state._replace(key=jax.random.key_data(state.key))
    return jax.tree.map(np.asarray, state)

  trained("stopped", 3)
  got, want = trained("stopped", 6), trained("straight", 6)
  assert got.inputs is None
  jax.tree.map(np.testing.assert_array_equal, got, want)
  evaluated = json.loads(run("straight", "--mode=evaluate"))
  result = json.loads((tmp_path / "straight" / "result.json").read_text())
  assert evaluated["valid_nll"] == pytest.approx(result["valid_nll"], rel=1e-6)
  answer = json.loads(run("straight", "--mode=predict", "--text=w1 w2", "--top_k=3"))
  assert len(answer["top"]) == 3


ON_DEVICES = """
import functools
import jax, jax.numpy as jnp, numpy as np
from largevocab.training.state import init_state
from largevocab.training.step import train_step
from tests.training.input_rows_test import LR, V, experiment

def trained(head, num):
  exp = experiment(head, blocks=4, devices=num, clip_norm=0.3)
  data = exp.data.load()
  batches = data.training_batches(exp.train.batch_size, exp.train.unroll)
  state, all_V = init_state(exp, data), jnp.arange(V)
  class_rows = jax.jit(exp.head.class_rows)
  step = jax.jit(functools.partial(train_step, exp=exp))
  first = class_rows(state.head, all_V)
  for i in range(3):
    state = step(state, batches.batch(i), LR)
  table = state.head.parts.table.w_VD
  assert len(table.sharding.device_set) == num
  assert num * len(table.addressable_shards[0].data) == len(table)
  return [np.asarray(x) for x in (first, class_rows(state.head, all_V), state.loss_sum)]

for head in ("full", "sampled/pps"):
  (first, *want), (_, *got) = trained(head, 1), trained(head, 4)
  for a, b in zip(got, want):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
  assert np.abs(first - want[0]).max() > 0.01
"""


@pytest.mark.long
def test_results_do_not_depend_on_devices(on_four_devices):
  on_four_devices(ON_DEVICES)


@pytest.mark.parametrize(
  ("how", "words"),
  [
    ({"head": "adaptive"}, r"train\.tied .* Adaptive .*head\.name"),
    ({"head": "d_softmax"}, r"train\.tied .* DSoftmax "),
    ({"head": "huffman"}, r"train\.tied .* Huffman "),
    ({"head": "spherical"}, r"train\.tied .* Spherical "),
    ({"head": "hierarchical", "blocks": 2}, r"train\.tied .* Hierarchical "),
    (
      {"model": c.part("model", "lstm", embed=5, hidden=D)},
      r"train\.tied .* model\.embed is 5.* 6 units \(model\.hidden\)",
    ),
    ({"scale": 0.0}, r"head\.init_scale is 0.* above 0"),
    (
      {"data": c.part("data", "zipf_labels"), "model": c.part("model", "bag", embed=D)},
      r"train\.tied .* data\.name ",
    ),
  ],
)
def test_impossible_tying_is_refused_in_one_line(how, words):
  with pytest.raises(UserError, match=words) as error:
    init_state((exp := experiment(**how)), exp.data.load())
  assert "\n" not in str(error.value)
