"""Cosine logits and margins, against naive ones in float64."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import config
from largevocab.errors import UserError
from largevocab.heads import Cosine, Full, Sampled, ShardedHead, Spherical, class_mesh
from largevocab.labels import Targets
from largevocab.losses import NCE, Importance
from largevocab.losses.spherical import SphericalSoftmax, Squared, TaylorSoftmax
from largevocab.ops.class_blocks import Blocks
from largevocab.ops.cosine import with_margin
from largevocab.ops.softmax.full import softmax_loss
from largevocab.ops.softmax.plan import plan
from largevocab.rows import SGD
from largevocab.samplers import (
  PPS,
  SCE,
  LSHEmbedding,
  Mixture,
  Quadratic,
  RFSoftmax,
  Uniform,
)
from tests.heads.compiled import backward, evaluate, top_k, update
from tests.long import others_long

N, V, D, M = 6, 13, 5, 7
COUNTS = np.arange(V, 0, -1)
KEY = jax.random.key(3)
# At 2 radians and more some true classes are beyond pi, where the cosine goes on.
BOTH = Cosine(scale=6.0, angular=1.2, additive=0.2)


def batch(seed=0, dtype=np.float32):
  """Up to two true classes; one is repeated, one padding, some without weight."""
  rng = np.random.default_rng(seed)
  h_ND = 3 * rng.standard_normal((N, D))
  ids_NP = rng.integers(0, V, (N, 2)).astype(np.int32)
  ids_NP[0], ids_NP[1, 1] = 4, V
  w_NP = np.where(ids_NP < V, rng.uniform(0.1, 1, (N, 2)), 0)
  w_NP[2, 0] = 0
  y = Targets(jnp.asarray(ids_NP), w_NP.astype(dtype), jnp.zeros(N, jnp.int32))
  return jnp.asarray(h_ND, dtype), y


# Compiled once for each head and shape, whatever the test.


def naive_loss(logits, h_ND, w_VD, y, log_weight_NV):
  """The loss from angles; log_weight_NV weights classes in the partition function."""
  length = lambda x: jnp.linalg.norm(x, axis=1)
  cosine_NV = h_ND @ w_VD.T / length(h_ND)[:, None] / length(w_VD)[None]
  angle_NV = jnp.arccos(cosine_NV)
  m = logits.angular
  is_near_NV = angle_NV + m < jnp.pi
  margin_NV = jnp.where(is_near_NV, jnp.cos(angle_NV + m), cosine_NV - m * math.sin(m))
  one_NPV = y.ids_NP[:, :, None] == jnp.arange(V)[None, None]
  cosine_NV = jnp.where(one_NPV.any(1), margin_NV - logits.additive, cosine_NV)
  s_NV = logits.scale * cosine_NV
  log_z_N = jax.nn.logsumexp(s_NV + log_weight_NV, axis=1)
  s_NP = jnp.sum(jnp.where(one_NPV, s_NV[:, None], 0), axis=2)
  return jnp.sum(y.w_NP * (log_z_N[:, None] - s_NP)) / jnp.sum(y.w_NP)


naive = jax.jit(jax.value_and_grad(naive_loss, (1, 2)), static_argnums=0)


def weights_of_draw(head, state, h_ND, y, key):
  """log(how often a class was drawn / expected); 0 for true classes."""
  is_true_NV = (y.ids_NP[:, :, None] == jnp.arange(V)[None, None]).any(1)
  if isinstance(head, Full):
    return jnp.zeros((N, V))
  x_ND = head.features(h_ND)
  draw = head.sampler.sample(state.stats, state.table.w_VD, key, x_ND, y)
  weight_V = jnp.zeros(V).at[draw.ids].add(jnp.exp(-draw.log_expected) * draw.mask)
  if draw.exact_ids is not None:
    weight_V = weight_V.at[draw.exact_ids].set(1, mode="drop")
  return jnp.where(is_true_NV, 0, jnp.log(weight_V)[None])


HEADS = {
  **{
    method: Full(bias=False, method=method, logits=BOTH)
    for method in ("reference", "tiles", "examples", "classes")
  },
  "arcface": Full(bias=False, logits=Cosine(scale=9.0, angular=0.5)),
  "cosface": Full(bias=False, logits=Cosine(scale=9.0, additive=0.35)),
  "uniform": Sampled(bias=False, num_samples=M, sampler=Uniform(), logits=BOTH),
  "every class": Sampled(bias=False, num_samples=V, sampler=PPS(), logits=BOTH),
}


@pytest.mark.parametrize(
  "name", others_long(HEADS, ["reference", "tiles", "arcface", "uniform"])
)
def test_updates_equal_those_of_the_definition(name):
  """Compares some steps in float32 with the definition in float64."""
  head, rate, beyond = HEADS[name], 0.5, 0
  state = head.init(KEY, COUNTS, D)
  w_VD = np.float64(state.table.w_VD)
  for seed in range(3):
    (h_ND, y), key = batch(seed), jax.random.key(seed)
    log_weight_NV = np.float64(weights_of_draw(head, state, h_ND, y, key))
    out = backward(head, state, h_ND, y, key)
    state = update(head, state, out.grads, rate, 1.0)
    with jax.enable_x64(True):
      args = jnp.float64(h_ND), jnp.asarray(w_VD), y, jnp.asarray(log_weight_NV)
      loss, (dh_ND, dw_VD) = naive(head.logits, *args)
    dw_VD = np.asarray(dw_VD)
    w_VD = w_VD - rate * dw_VD
    np.testing.assert_allclose(out.loss, loss, rtol=1e-5)
    np.testing.assert_allclose(out.dh_ND, dh_ND, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(out.sq_norm, np.sum(dw_VD**2), rtol=1e-4)
    np.testing.assert_allclose(state.table.w_VD, w_VD, rtol=1e-4, atol=1e-5)
    cosine_NV = head.features(h_ND) @ head.logits.rows(state.table.w_VD).T
    true_NP = jnp.take_along_axis(cosine_NV, y.ids_NP, 1, mode="fill", fill_value=9)
    beyond += jnp.sum(true_NP / head.logits.scale < -math.cos(head.logits.angular))
  assert beyond or head.logits is not BOTH


@pytest.mark.parametrize("method", ["reference", "tiles", "examples", "classes"])
def test_exact_loss_equals_the_definition_in_float64(method):
  with jax.enable_x64(True):
    h_ND, y = batch(1, np.float64)
    w_VD = jnp.asarray(np.random.default_rng(2).standard_normal((V, D)))
    how = plan(N, V, D, 1000, method=method)._replace(examples=4, classes=5)
    w_NP = y.w_NP / y.w_NP.sum()

    def loss(h_ND, w_VD):
      x_ND = BOTH.features(h_ND)
      return softmax_loss(x_ND, w_VD, y.ids_NP, w_NP, how, score=BOTH)

    got = jax.jit(jax.value_and_grad(loss, (0, 1)))(h_ND, w_VD)
    want = naive(BOTH, h_ND, w_VD, y, jnp.zeros((N, V)))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
      np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-13)


def test_logit_with_margin_falls_with_the_angle_up_to_pi():
  angle = jnp.linspace(0.01, jnp.pi - 0.01, 2000)
  got = np.float64(with_margin(jnp.cos(angle), 0.5, 0.0))
  assert (np.diff(got) < 0).all()
  near = np.asarray(angle) < np.pi - 0.5
  np.testing.assert_allclose(got[near], np.cos(angle + 0.5)[near], atol=1e-6)
  want = np.cos(angle) - 0.5 * np.sin(0.5)
  np.testing.assert_allclose(got[~near], want[~near], atol=1e-6)
  slope = jax.vmap(jax.grad(lambda c: with_margin(c, 0.5, 0.35)))
  assert np.isfinite(slope(jnp.array([-1.0, 0.0, 1.0, 1.0 + 1e-7]))).all()
  assert (with_margin(jnp.cos(angle), 0.0, 0.35) == jnp.cos(angle) - 0.35).all()


def test_evaluation_ignores_the_margin_and_lengths():
  h_ND, y = batch()
  plain = Full(bias=False, logits=Cosine(scale=6.0))
  state = plain.init(KEY, COUNTS, D)
  got = []
  for head in (plain, HEADS["reference"], HEADS["uniform"]):
    others = head.init(KEY, COUNTS, D)
    lengths_V1 = jnp.linspace(0.5, 9, V)[:, None]
    table = state.table._replace(w_VD=lengths_V1 * state.table.w_VD)
    others = others._replace(table=table)
    nll_N = evaluate(head, others, 7 * h_ND, y)["nll"]
    ids_NK, log_p_NK = top_k(head, others, 0.1 * h_ND, V)
    rows_RD = head.class_rows(others, jnp.arange(V))
    got.append([nll_N, ids_NK, log_p_NK, rows_RD])
  weight = y._replace(w_NP=y.w_NP / y.w_NP.sum())
  want = backward(plain, state, h_ND, weight, KEY).loss
  np.testing.assert_allclose(jnp.sum(weight.w_NP.sum(1) * got[0][0]), want, rtol=1e-5)
  np.testing.assert_allclose(jnp.exp(got[0][2]).sum(1), 1, rtol=1e-5)
  np.testing.assert_allclose(jnp.linalg.norm(got[0][3], axis=1), 1, rtol=1e-5)
  for other in got[1:]:
    for a, b in zip(other, got[0], strict=True):
      np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
  metrics = jax.jit(HEADS["uniform"].monitor)(others, h_ND, y, KEY)
  assert metrics["relvar"] > 0  # of the model without margins, to which q is compared
  cosine_NV = np.exp(np.take_along_axis(got[0][2], np.argsort(got[0][1]), axis=1))
  chi2_N = V * np.sum(cosine_NV**2, axis=1) - 1
  w_N = y.w_NP.sum(1)
  np.testing.assert_allclose(metrics["chi2"], chi2_N @ w_N / w_N.sum(), rtol=1e-4)


def test_zero_vectors_have_no_gradient():
  h_ND, y = batch()
  for head in (HEADS["tiles"], HEADS["uniform"]):
    state = head.init(KEY, COUNTS, D)
    table = state.table._replace(w_VD=state.table.w_VD.at[4].set(0))
    state = state._replace(table=table)
    out = backward(head, state, h_ND.at[1].set(0), y, KEY)
    after = update(head, state, out.grads, 1.0, 1.0)
    assert np.isfinite(out.loss)
    assert not out.dh_ND[1].any()
    assert out.dh_ND[0].any()
    assert not after.table.w_VD[4].any()


@pytest.mark.parametrize(
  "name", others_long(["tiles", "classes", "every class"], ["tiles", "every class"])
)
def test_blocks_of_classes_change_nothing(name):
  blocks, head = Blocks(V, 4), HEADS[name]
  (h_ND, y), reference = batch(), HEADS["reference"]
  if name == "every class":  # of each block
    head = Sampled(bias=False, num_samples=4 * 4, sampler=PPS(), logits=BOTH)
  over = ShardedHead(head, class_mesh(jax.devices()[:1]), blocks.num)
  state = over.init(KEY, COUNTS, D)
  w_VD = state.parts.table.w_VD[blocks.row(jnp.arange(V))]
  alone = reference.init(KEY, COUNTS, D)
  alone = alone._replace(table=alone.table._replace(w_VD=w_VD))
  want = backward(reference, alone, h_ND, y, KEY)
  got = jax.jit(over.backward)(state, h_ND, y, KEY)
  np.testing.assert_allclose(got.loss, want.loss, rtol=1e-5)
  np.testing.assert_allclose(got.dh_ND, want.dh_ND, rtol=1e-4, atol=1e-6)
  np.testing.assert_allclose(got.sq_norm, want.sq_norm, rtol=1e-4)
  nll_N = jax.jit(over.evaluate)(state, h_ND, y)["nll"]
  want_N = evaluate(reference, alone, h_ND, y)["nll"]
  np.testing.assert_allclose(nll_N, want_N, rtol=1e-5)


def test_step_holds_no_normalised_table():
  num, dim = 20_000, 64
  y = Targets(jnp.zeros((4, 1), jnp.int32), jnp.ones((4, 1)), jnp.zeros(4, jnp.int32))
  h_ND, table_bytes = jnp.ones((4, dim)), 4 * num * dim
  full = Full(bias=False, method="classes", budget_mib=1, logits=BOTH)
  drawn = Sampled(bias=False, num_samples=64, sampler=Uniform(), logits=BOTH)
  for head in (full, drawn):
    state = jax.eval_shape(lambda head=head: head.init(KEY, np.ones(num), dim))
    programs = {
      "evaluate": lambda s, head=head: head.evaluate(s, h_ND, y),
      "top_k": lambda s, head=head: head.top_k(s, h_ND, 3),
      "backward": lambda s, head=head: head.backward(s, h_ND, y, KEY),
    }
    for name, program in programs.items():
      memory = jax.jit(program).lower(state).compile().memory_analysis()
      assert memory.temp_size_in_bytes < table_bytes / 2, (head, name)


def test_bfloat16_products_are_close_to_float32():
  h_ND, y = batch()
  for name in ("tiles", "classes", "uniform"):
    head = HEADS[name]
    half = {"dtype": "bfloat16", "optimizer": SGD(row_dtype="bfloat16")}
    short = type(head)(**{**vars(head), **half})
    state = head.init(KEY, COUNTS, D)
    want = backward(head, state, h_ND, y, KEY)
    got = backward(short, short.init(KEY, COUNTS, D), h_ND, y, KEY)
    bits = float(jnp.finfo(jnp.bfloat16).eps)
    for x, z in ((got.loss, want.loss), (got.dh_ND, want.dh_ND)):
      np.testing.assert_allclose(x, z, rtol=0, atol=4 * bits * np.abs(z).max())
      assert np.any(x != z)
    np.testing.assert_allclose(got.sq_norm, want.sq_norm, rtol=8 * bits)


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    ({"bias": True}, "set head.bias and head.absolute to False"),
    ({"absolute": True}, "set head.bias and head.absolute to False"),
    ({"sampler": Quadratic(absolute=False)}, "head.sampler follows <w, h>"),
    ({"sampler": Mixture("uniform", "softmax")}, "head.sampler follows <w, h>"),
    ({"sampler": SCE()}, "head.sampler follows <w, h>"),
    ({"sampler": LSHEmbedding(family="mips")}, "head.sampler follows <w, h>"),
    ({"loss": NCE()}, "head.logits has a margin"),
    ({"loss": Importance()}, "head.logits has a margin"),
  ],
)
def test_conflicting_settings_are_refused(fields, message):
  with pytest.raises(UserError, match=message):
    Sampled(**{"bias": False, "logits": BOTH, **fields})
  Sampled(bias=False, logits=Cosine(), loss=NCE(), sampler=Mixture())
  Sampled(bias=False, logits=BOTH, sampler=LSHEmbedding(family="simhash"))


def test_paths_choose_the_logits():
  head = config.head("sampled/uniform/cosine", logits={"angular": 0.5})
  assert (head.logits, head.bias) == (Cosine(angular=0.5), False)
  assert config.head("sampled/uniform/linear") == config.head("sampled/uniform")
  assert config.head("full/cosine").logits == Cosine()
  with pytest.raises(UserError, match="head 'adaptive' has its own logits"):
    config.head("adaptive/cosine")
  with pytest.raises(UserError, match="head is 'cosine'; it must be one of"):
    config.head("cosine")


def test_random_features_follow_cosines():
  """With the scale nu, the estimated partition function hardly varies."""
  logits = Cosine(scale=4.0)
  found = {}
  for sampler in (RFSoftmax(nu=4.0, num_features=2048), Uniform()):
    head = Sampled(logits=logits, sampler=sampler, num_samples=4, bias=False)
    head = dataclasses.replace(head, init_scale=1.0)
    state = jax.jit(head.refresh)(head.init(KEY, COUNTS, D), KEY)
    h_ND, y = batch(3)
    monitored = jax.jit(head.monitor)(state, h_ND, y, KEY)
    found[type(sampler)] = float(monitored["chi2"])
  assert found[RFSoftmax] < 0.1 * found[Uniform]


@pytest.mark.parametrize("loss", [TaylorSoftmax(), Squared(), None])
def test_rows_of_zeros_learn_unless_the_loss_has_no_slope_there(loss):
  """|o| has the slope 1 at 0."""
  head = Full(absolute=True, init_scale=0.0)
  if loss is not None:
    head = Spherical(loss=loss, init_scale=0.0)
  h_ND, y = batch(3)
  state = head.init(KEY, COUNTS, D)
  step = jax.jit(head.backward)(state, h_ND, y, KEY)
  assert step.sq_norm > 0
  with pytest.raises(UserError, match=r"^head\.init_scale is 0, where the loss"):
    Spherical(loss=SphericalSoftmax(), init_scale=0.0)
