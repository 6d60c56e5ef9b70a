"""README and guides: their examples run."""

import contextlib
import functools
import io
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import main, single_targets

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
TRAINING = (ROOT / "docs" / "training.md").read_text()
OWN_LOOP = (ROOT / "docs" / "own_loop.md").read_text()


@functools.cache
def ran(page: str) -> tuple[dict, str]:
  """The names that the example of a page defines, and what it prints."""
  (program,) = re.findall(r"<!-- example -->\n```python\n(.*?)```", page, re.DOTALL)
  names: dict = {}
  with contextlib.redirect_stdout(io.StringIO()) as printed:
    exec(program, names)
  return names, printed.getvalue()


def example(page: str) -> tuple[dict, str]:
  """Runs the example as it is, with only the names that it defines.

  Tests share the arrays: copy those that a step donates.
  """
  names, printed = ran(page)
  return dict(names), printed


def continued(names: dict, page: str, which: str) -> None:
  """Runs the example of this name, which continues another one."""
  (program,) = re.findall(
    rf"<!-- {which} example -->\n```python\n(.*?)```", page, re.DOTALL
  )
  exec(program, names)


def test_example_exports_the_rows_of_a_trained_model(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  flags = [f"--config={ROOT}/configs/text.py:sampled/pps,runlocal"]
  keys = ["--config.optimizer.average=0.5", "--workdir=runs/mine"]
  assert main.run(["main", *flags, *keys]) == 0
  (program,) = re.findall(
    r"<!-- export example -->\n```python\n(.*?)```", TRAINING, re.DOTALL
  )
  names: dict = {}
  exec(program, names)
  rows_VE = np.load("rows.npy")
  assert rows_VE.shape[0] == names["data"].counts.num_classes
  trained = names["restore"](names["exp"], "runs/mine", "best")[1]
  ids_V = np.arange(len(rows_VE))
  weights_VE = names["exp"].head.class_rows(trained.head, ids_V)
  assert np.abs(rows_VE - weights_VE).max() > 0  # averages
  words = (tmp_path / "runs" / "mine" / "vocabulary.txt").read_text().splitlines()
  assert len(words) == len(rows_VE)
  state, h_ND = names["state"], names["h_BTD"][0, -1:]
  ids_NK, log_p_NK = names["exp"].head.top_k(state.head, h_ND, 3)
  log_p_V = jax.nn.log_softmax(names["logits_V"])
  np.testing.assert_allclose(log_p_V[ids_NK[0]], log_p_NK[0], rtol=1e-5)


def test_example_of_a_step_trains():
  names, printed = example(README)
  before = float(printed)
  head, state, h_ND, y = (names[name] for name in ("head", "state", "h_ND", "y"))
  assert 0 < before < 2 * np.log(len(names["counts"]))
  assert names["step"].dh_ND.shape == h_ND.shape
  update = jax.jit(head.update)
  for number in range(30):
    step = names["backward"](state, h_ND, y, jax.random.key(number))
    state = update(state, step.grads, lr=1.0, scale=1.0)
  assert float(names["evaluate"](state, h_ND, y)["nll"].mean()) < 0.7 * before


def test_example_of_clipping_bounds_the_joint_norm():
  names, _ = example(OWN_LOOP)
  (program,) = re.findall(
    r"<!-- clipping example -->\n```python\n(.*?)```", OWN_LOOP, re.DOTALL
  )
  exec(program, names)
  copy = lambda tree: jax.tree.map(lambda leaf: np.array(leaf, copy=True), tree)
  table_of = lambda state: np.float64(state.table.w_VD)
  params, state = copy(names["params"]), copy(names["head_state"])

  def moved_by(step):
    batch = names["x"], names["y"], jax.random.key(0)
    after, new, _ = names[step](copy(params), copy(state), *batch)
    return np.hypot(
      np.linalg.norm(np.float64(after["w"]) - params["w"]),
      np.linalg.norm(table_of(new) - table_of(state)),
    )

  whole = moved_by("train_step")
  assert moved_by("clipped_step") == pytest.approx(min(whole, 0.1), rel=1e-3)
  exec(program.replace("max_norm = 1.0", "max_norm = 1e-3"), names)
  assert moved_by("clipped_step") == pytest.approx(1e-4, rel=1e-3)


def test_example_of_a_loop_trains(capsys):
  names, printed = example(OWN_LOOP)
  num_classes = len(names["counts"])
  assert float(printed) < 0.5 * np.log(num_classes)
  params, state = jax.tree.map(jnp.copy, (names["params"], names["head_state"]))
  x = jax.random.normal(jax.random.key(1), (32, 8))
  y = single_targets(np.random.default_rng(0).integers(0, num_classes, 32))
  losses = []
  for step in range(200):
    key = jax.random.key(step)
    params, state, loss = names["train_step"](params, state, x, y, key)
    losses.append(float(loss))
  assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])
  continued(names, OWN_LOOP, "tied")
  assert float(capsys.readouterr().out) < 0.5 * np.log(num_classes)


def test_example_of_scores_ranks_by_logits():
  names, _ = example(OWN_LOOP)
  continued(names, OWN_LOOP, "scores")
  w_VE = np.float64(names["head_state"].table.w_VD)
  o_NV = np.float64(names["h_ND"]) @ w_VE[:, :64].T + w_VE[:, 64]
  want_NC = np.take_along_axis(o_NV, names["candidates_NC"], axis=1)
  np.testing.assert_allclose(names["o_NC"], want_NC, atol=1e-5)
  assert np.ptp(w_VE[:, 64]) > 0.1  # so that a missing bias is noticed
  of_ranked_NC = np.take_along_axis(o_NV, names["ranked_NC"], axis=1)
  assert (np.diff(of_ranked_NC, axis=1) < 1e-5).all()


def test_example_of_saving_restores_the_state(tmp_path):
  names = example(OWN_LOOP)[0] | {"path": tmp_path / "saved"}
  continued(names, OWN_LOOP, "saving")
  want = {"params": names["params"], "head": names["head_state"]}
  assert jax.tree.structure(names["saved"]) == jax.tree.structure(want)
  jax.tree.map(np.testing.assert_array_equal, names["saved"], want)


def test_examples_of_a_head_as_a_loss_train(capsys):
  _, section = OWN_LOOP.split("## A head as a loss\n")
  names: dict = {}
  for block in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
    exec(block, names)
  losses = list(map(float, capsys.readouterr().out.split()))
  assert len(losses) == 2
  assert max(losses) < 0.7 * np.log(len(names["state"].table.w_VD))


@pytest.mark.long
def test_example_of_an_adaptive_softmax_on_several_devices_trains(on_four_devices):
  page = (ROOT / "docs" / "devices.md").read_text()
  (program,) = re.findall(
    r"<!-- adaptive example -->\n```python\n(.*?)```", page, re.DOTALL
  )
  shares = """
rows = params["rows"]["parts.head"], opt_state[0].mu["rows"]["parts.head"]
print(*(len(x.addressable_shards[0].data) / len(x) for x in rows))
"""
  loss, whole = on_four_devices(program + shares).splitlines()
  assert float(loss) < 0.5 * np.log(1000)
  assert whole == "0.25 0.25"  # of the rows and of Adam's mean gradients
