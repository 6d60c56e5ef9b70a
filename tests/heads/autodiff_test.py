"""Every head as a loss, under every transformation that training code uses: the table
on docs/own_loop.md."""

import functools
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from largevocab import (
  HEADS,
  head_loss,
  head_loss_and_grads,
  merge_state,
  single_targets,
  split_state,
)
from largevocab.errors import UserError
from largevocab.heads import Full, Sampled, ShardedHead, Spherical, class_mesh
from largevocab.losses import SAMPLED_LOSSES
from largevocab.rows import Adagrad
from largevocab.samplers import PPS
from tests.heads.contract_test import CASES, CutAdaptive, D, N, V, counts, view_of
from tests.long import others_long

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "own_loop.md"
MICRO, F = 4, 3  # batches, and inputs of the network
KEY = jax.random.key(0)

# Rows of the table, and what stands for each.
HEADS_TRIED = {
  "full": CASES["full"],
  "full/cosine": CASES["full, cosine"],
  "sampled": CASES["sampled, pps"],
  "sampled/pps/cosine": CASES["sampled, cosine"],
  "sampled/block": CASES["sampled, block"],
  "sampled/in_batch": CASES["sampled, in_batch"],
  "nce": CASES["nce, z of contexts"],
  "negative_sampling": CASES["negative_sampling, calibrated"],
  "ranking": CASES["ranking"],
  "blackout": CASES["blackout, per example"],
  "upper_bound": CASES["bound"],
  "importance": CASES["importance"],
  "adaptive": CutAdaptive(cutoffs=(5,)),
  "d_softmax": CASES["d_softmax"],
  "hierarchical": CASES["hierarchical"],
  "huffman": CASES["huffman"],
  "spherical": CASES["spherical, taylor"],
}


def test_every_head_and_loss_has_a_case():
  tried = HEADS_TRIED.values()
  assert all(any(isinstance(head, cls) for head in tried) for cls in HEADS.values())
  losses = {type(head.loss) for head in tried if isinstance(head, Sampled)}
  assert losses == set(SAMPLED_LOSSES.values())


@functools.cache
def batches():
  """Inputs, labels and keys of some batches with unequal weights."""
  rng = np.random.default_rng(0)
  x_BNF = jnp.asarray(rng.standard_normal((MICRO, N, F)), jnp.float32)
  y_B = [
    single_targets(rng.integers(0, V, N), rng.uniform(0.2, 1 + i, N))
    for i in range(MICRO)
  ]
  y_B = [y._replace(context_N=y.ids_NP[::-1, 0]) for y in y_B]
  y_B = jax.tree.map(lambda *each: jnp.stack(each), *y_B)
  return x_BNF, y_B, jax.random.split(jax.random.key(1), MICRO)


def share_B(of_all):
  """Each batch's share of the weight of all batches."""
  w_B = jnp.sum(of_all[1].w_NP, axis=(1, 2))
  return w_B / jnp.sum(w_B)


def network(net_FD, x_NF):
  return jnp.tanh(x_NF @ net_FD)


@functools.cache
def started(name):
  """The head's state with rows other than at the start, of which some gradients are
  zero, and the weights of a network."""
  params, rest = split_state(HEADS_TRIED[name].init(KEY, counts(), D))
  rng = np.random.default_rng(1)
  normal = lambda w: jnp.asarray(0.5 * rng.standard_normal(w.shape), w.dtype)
  return jax.tree.map(normal, params), rest, normal(jnp.zeros((F, D)))


def in_bfloat16(net_FD, x_NF):
  return network(net_FD.astype(jnp.bfloat16), x_NF.astype(jnp.bfloat16))


class Model(nnx.Module):
  """A network that also holds the parameters of a head."""

  def __init__(self, net_FD, params):
    self.net_FD = nnx.Param(net_FD)
    self.rows = nnx.Dict({name: nnx.Param(w) for name, w in params.items()})


def by_nnx(loss, weights, of_all, shares):
  """A scan over batches of which none keeps its activations, as a loss of a module, and
  a step of AdamW."""

  def loss_of(model):
    params = {name: rows[...] for name, rows in model.rows.items()}
    of_one = jax.checkpoint(functools.partial(loss, (model.net_FD[...], params)))
    add = lambda total, each: (total + each[0] * of_one(*each[1:]), None)
    return jax.lax.scan(add, 0.0, (shares, *of_all))[0]

  value, g = nnx.value_and_grad(loss_of)(Model(*weights))
  grads = g.net_FD[...], {name: rows[...] for name, rows in g.rows.items()}
  return value, grads, stepped(weights, grads)


def by_vmap(loss, weights, of_all, shares):
  """All batches at once."""
  in_vmap = lambda w: jnp.vdot(shares, jax.vmap(loss, (None, 0, 0, 0))(w, *of_all))
  return jax.value_and_grad(in_vmap)(weights)


def by_accumulation(loss, weights, of_all, shares):
  """Gradients of one batch after the other, added up, of a network in bfloat16."""

  def add(total, each):
    part = jax.value_and_grad(loss)(weights, *each[1:], network=in_bfloat16)
    return jax.tree.map(lambda t, g: t + each[0] * g, total, part), None

  zero = 0.0, jax.tree.map(jnp.zeros_like, weights)
  return jax.lax.scan(add, zero, (shares, *of_all))[0]


def stepped(weights, grads):
  tx = optax.adamw(0.1)
  updates, _ = tx.update(grads, tx.init(weights), weights)
  return optax.apply_updates(weights, updates)


# What training code does with a loss. Each is one program, for what it compiles.
WAYS = {"nnx": by_nnx, "vmap": by_vmap, "accumulation": by_accumulation}
# The columns of the table, and where they are tried.
COLUMNS = {
  "`jax.grad`": "vmap",
  "`nnx.value_and_grad`": "nnx",
  "`jax.vmap`": "vmap",
  "`jax.lax.scan`": "nnx",
  "`jax.checkpoint`": "nnx",
  "accumulation of 4": "accumulation",
  "bfloat16 network": "accumulation",
  "`optax.adamw`": "nnx",
}


@functools.cache
def found(name):
  """Losses and gradients of network and head, in each of the ways."""
  params, rest, net_FD = started(name)
  head_of = head_loss(HEADS_TRIED[name])

  @jax.jit
  def run(weights, rest, of_all):
    def loss(weights, x_NF, y, key, network=network):
      net_FD, params = weights
      return head_of(params, rest, network(net_FD, x_NF), y, key)

    shares = share_B(of_all)
    return {name: way(loss, weights, of_all, shares) for name, way in WAYS.items()}

  return run((net_FD, params), rest, batches())


@functools.partial(jax.jit, static_argnums=0)
def activations(network, net_FD, x_BNF):
  return network(net_FD, x_BNF)


@functools.partial(jax.jit, static_argnums=0)
def pull_back(network, net_FD, x_BNF, dh_BND):
  """The gradient for the network of each batch."""
  of_one = lambda x_NF, dh_ND: jax.vjp(lambda w: network(w, x_NF), net_FD)[1](dh_ND)[0]
  return jax.vmap(of_one)(x_BNF, dh_BND)


@functools.cache
def wanted(name):
  """The same by `Head.backward`, one batch at a time, and the pull-back of the network:
  of networks in float32 and in bfloat16 the sum by shares, and its first term."""
  head, (params, rest, net_FD) = HEADS_TRIED[name], started(name)
  state, (x_BNF, *of_all) = merge_state(params, rest), batches()
  view, names = view_of(head), split_state(state)[0]  # in the order of the state
  step = lambda batch: head.backward(state, *batch)[:3]
  steps = jax.jit(functools.partial(jax.lax.map, step))
  results = []
  for net in (network, in_bfloat16):
    h_BND = activations(net, net_FD, x_BNF)
    each, dh_BND, grads_B = steps((h_BND.astype(jnp.float32), *of_all))
    dnet_BFD = pull_back(net, net_FD, x_BNF, dh_BND.astype(h_BND.dtype))

    def term(i, share, results=(each, dnet_BFD, grads_B)):
      loss, dnet_FD, grads = jax.tree.map(lambda x: x[i], results)
      of_rows = view.dense(grads, view.parameters(state))  # as all laws read them
      step = loss, (dnet_FD, dict(zip(names, of_rows, strict=True)))
      return jax.tree.map(lambda x: np.asarray(share * x), step)

    terms = [term(i, share) for i, share in enumerate(share_B(batches()))]
    results.append((jax.tree.map(lambda *xs: sum(xs), *terms), terms[0]))
  return results


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
  "name",
  others_long(
    HEADS_TRIED,
    ["full", "sampled", "nce", "adaptive", "hierarchical", "spherical"],
  ),
)
def test_losses_and_gradients_equal_those_of_backward(name, way):
  is_short = way == "accumulation"
  want, first = wanted(name)[is_short]
  got = found(name)[way]
  # XLA may leave out rounding to bfloat16 and back, of whose epsilon this is twice.
  tolerance = 2**-6 if is_short else 1e-5

  def close(g, w):
    assert np.linalg.norm(g - w) <= tolerance * np.linalg.norm(w)

  jax.tree.map(close, got[:2], want)
  if way == "nnx":
    params, _, net_FD = started(name)
    # Adam divides a gradient by its size: where that is small, rounding is not.
    loosely = functools.partial(np.testing.assert_allclose, rtol=1e-2, atol=1e-3)
    jax.tree.map(loosely, got[2], stepped((net_FD, params), want[1]))
  for w, term in zip(*map(jax.tree.leaves, (want, first)), strict=True):
    # That of one batch would not do.
    assert np.linalg.norm(w - term) > 2 * tolerance * np.linalg.norm(w)


def test_table_on_the_page_equals_the_tested_cases():
  header, rows = table_of(PAGE.read_text())
  assert header == ["head", *COLUMNS, "tied rows"]
  assert set(COLUMNS.values()) == set(WAYS)
  # Those that are not refused are tried in tied_rows_test.py.
  tied = lambda head: "yes" if hasattr(head, "add_row_grads") else "refused"
  yes = ["yes"] * len(COLUMNS)
  assert rows == [[f"`{name}`", *yes, tied(head)] for name, head in HEADS_TRIED.items()]


def table_of(page):
  """Header and rows of the table of heads and transformations."""
  (text,) = re.findall(r"<!-- autodiff -->\n(.*?)\n\n", page, re.DOTALL)
  cells = [[c.strip() for c in line.strip("|").split("|")] for line in text.split("\n")]
  return cells[0], cells[2:]


def test_gradient_of_full_equals_a_naive_softmax_in_float64():
  rng = np.random.default_rng(3)
  h_ND, w_VD = rng.standard_normal((N, D)), rng.standard_normal((V, D))
  label_N, weight_N = rng.integers(0, V, N), rng.uniform(0.2, 1, N).astype(np.float32)
  head = Full(bias=False)
  _, rest = split_state(head.init(KEY, counts(), D))

  def ours(w_VD, h_ND):
    y = single_targets(label_N, weight_N)
    return head_loss(head)({"table": w_VD}, rest, h_ND, y, KEY) ** 2

  def naive(w_VD, h_ND):
    log_p_NV = jax.nn.log_softmax(h_ND @ w_VD.T)
    nll_N = -log_p_NV[jnp.arange(N), label_N]
    return (jnp.sum(weight_N * nll_N) / weight_N.sum()) ** 2

  both = lambda loss: jax.value_and_grad(loss, (0, 1))
  got = both(ours)(jnp.float32(w_VD), jnp.float32(h_ND))
  with jax.enable_x64(True):
    want = both(naive)(jnp.float64(w_VD), jnp.float64(h_ND))
    assert want[0].dtype == jnp.float64
  close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)
  jax.tree.map(close, got, want)


def test_head_gradients_are_returned_as_auxiliary_output():
  """Rows equal those of `backward`, and only h has a cotangent."""
  head = Sampled(num_samples=4, sampler=PPS(), optimizer=Adagrad())
  state = head.init(KEY, counts(), D)
  x_NF, y, key = jax.tree.map(lambda x: x[0], batches())
  net_FD = started("full")[2]

  @nnx.jit
  def train_step(model, state):
    def loss_of(model):
      h_ND = network(model.net_FD[...], x_NF)
      return head_loss_and_grads(head)({}, state, h_ND, y, key)

    (loss, grads), g = nnx.value_and_grad(loss_of, has_aux=True)(model)
    return loss, g.net_FD[...], head.update(state, grads, lr=0.1, scale=1.0)

  @jax.jit
  def by_hand(net_FD, state):
    h_ND, pull_back = jax.vjp(lambda net_FD: network(net_FD, x_NF), net_FD)
    step = head.backward(state, h_ND, y, key)
    state = head.update(state, step.grads, lr=0.1, scale=1.0)
    return step.loss, *pull_back(step.dh_ND), state

  got, want = train_step(Model(net_FD, {}), state), by_hand(net_FD, state)
  close = functools.partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-7)
  jax.tree.map(close, got, want)


def test_statistics_follow_refresh_and_updates_at_learning_rate_zero():
  head = HEADS_TRIED["sampled/block"]
  params, rest, _ = started("sampled/block")
  fresh = jax.jit(head.refresh)(merge_state(params, rest), KEY)
  np.testing.assert_array_equal(fresh.table.w_VD, params["table"])
  leaves = zip(*(jax.tree.leaves(x.stats) for x in (fresh, rest)), strict=True)
  assert any(np.abs(a - b).max() > 1e-2 for a, b in leaves)

  head, (params, rest, _) = HEADS_TRIED["sampled/in_batch"], started("sampled/in_batch")
  _, y, key = jax.tree.map(lambda x: x[0], batches())
  h_ND = jnp.ones((N, D))

  @jax.jit
  def counted(params, rest):
    _, grads = head_loss_and_grads(head)(params, rest, h_ND, y, key)
    return head.update(merge_state(params, rest), grads, lr=0.0, scale=1.0)

  state = counted(params, rest)
  np.testing.assert_array_equal(state.table.w_VD, params["table"])
  np.testing.assert_array_equal(np.flatnonzero(state.stats.seen_V), np.unique(y.ids_NP))


@pytest.mark.parametrize("num_blocks", others_long([1, 2], [2]))
def test_heads_over_devices_have_differentiable_losses(num_blocks):
  """The derivative along a direction equals a finite difference."""
  mesh = class_mesh(jax.devices()[:1])
  head = ShardedHead(Full(bias=False), mesh, num_blocks)
  params, rest = split_state(head.init(KEY, counts(), D))
  h_ND, y = jax.random.normal(KEY, (N, D)), jax.tree.map(lambda x: x[0], batches()[1])
  loss = jax.jit(lambda w: head_loss(head)({"parts.table": w}, rest, h_ND, y, KEY))
  w_VD = jnp.where(params["parts.table"] == 0, 0, 0.5)
  step_VD = jax.random.normal(jax.random.key(1), w_VD.shape) * w_VD
  slope = jnp.vdot(jax.grad(loss)(w_VD), step_VD)
  along = lambda eps: loss(w_VD + eps * step_VD)
  np.testing.assert_allclose((along(1e-2) - along(-1e-2)) / 2e-2, slope, atol=1e-3)
  assert abs(slope) > 1e-2


ON_DEVICES = """
import jax
import numpy as np
from largevocab import head_loss, single_targets, split_state
from largevocab.heads import ShardedHead, Sampled, class_mesh

def gradients(num_devices):
  head = ShardedHead(Sampled(num_samples=8), class_mesh(jax.devices()[:num_devices]), 4)
  params, rest = split_state(head.init(jax.random.key(0), np.arange(13, 0, -1), 5))
  h_ND = np.random.default_rng(0).standard_normal((8, 5)).astype("f")
  args = params, rest, h_ND, single_targets(np.arange(8)), jax.random.key(1)
  return jax.jit(jax.grad(head_loss(head), (0, 2)))(*args)

one, four = gradients(1), gradients(4)
close = lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7)
jax.tree.map(close, one, four)
table = four[0]["parts.table"]
assert {part.data.shape for part in table.addressable_shards} == {(4, 8)}
"""


@pytest.mark.long
def test_gradients_stay_sharded_over_devices(on_four_devices):
  on_four_devices(ON_DEVICES)


def test_arguments_without_a_gradient_are_refused():
  params, rest, _ = started("sampled/in_batch")
  loss = head_loss(HEADS_TRIED["sampled/in_batch"])
  _, y, key = jax.tree.map(lambda x: x[0], batches())
  h_ND = jnp.ones((N, D))
  by_weights = lambda w_NP: loss(params, rest, h_ND, y._replace(w_NP=w_NP), key)
  with pytest.raises(UserError, match="weights of examples"):
    jax.eval_shape(jax.grad(by_weights), y.w_NP)
  by_gaps = lambda gap_V: loss(
    params, rest._replace(stats=rest.stats._replace(gap_V=gap_V)), h_ND, y, key
  )
  with pytest.raises(UserError, match="statistics of a head"):
    jax.eval_shape(jax.grad(by_gaps), rest.stats.gap_V)
  of_h = lambda h_ND: loss(params, rest, h_ND, y, key)
  with pytest.raises(UserError, match="second derivatives"):
    jax.eval_shape(jax.grad(lambda h_ND: jnp.sum(jax.grad(of_h)(h_ND) ** 2)), h_ND)
  stopped = jax.grad(lambda w_NP: by_weights(jax.lax.stop_gradient(w_NP)))
  np.testing.assert_array_equal(jax.jit(stopped)(y.w_NP), 0)


def test_missing_parameters_and_those_of_another_head_are_named():
  params, rest, _ = started("full")
  with pytest.raises(UserError, match="'table' is missing"):
    merge_state({}, rest)
  message = "'tabel' is not a parameter of a FullState"
  with pytest.raises(UserError, match=message):
    merge_state({"tabel": params["table"]}, merge_state(params, rest))
  for wrong in (jnp.zeros((V, 8), int), np.zeros((V, 8), complex), jnp.zeros(V)):
    with pytest.raises(UserError, match=r"the parameter 'table' is \w+\[.*pass float"):
      merge_state({"table": wrong}, rest)
  with pytest.raises(UserError, match="has no table"):
    split_state({"w": params["table"]})
  over = ShardedHead(Spherical(), class_mesh(jax.devices()[:1]), 1)
  with pytest.raises(UserError, match="no dense W"):
    split_state(over.init(KEY, counts(), D))
