"""Laws that every head obeys. A new head is one new row of CASES; one whose parameters
are not rows of a class table needs a `View` of them as well."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.heads import (
  HEADS,
  Adaptive,
  Cosine,
  DSoftmax,
  Full,
  Hierarchical,
  Huffman,
  Sampled,
  Spherical,
  head_loss,
)
from largevocab.heads.candidates import true_mask
from largevocab.heads.sampled_state import SampledGrads
from largevocab.labels import Counts, Targets, single_targets
from largevocab.losses import (
  NCE,
  SAMPLED_LOSSES,
  BlackOut,
  Importance,
  NegativeSampling,
  Ranking,
  SampledSoftmax,
  SphericalSoftmax,
  Squared,
  UpperBound,
  ZLoss,
  sampled_softmax_loss,
)
from largevocab.ops.adaptive.clusters import cut, widths
from largevocab.ops.factored.table import factor, implied
from largevocab.rows import Adagrad, Adam, RowGrads, Table, accumulate
from largevocab.samplers import (
  CBNS,
  MIDX,
  SAMPLERS,
  Bernoulli,
  Block,
  LSHEmbedding,
  Quadratic,
  QuadraticPrior,
  Softmax,
  Uniform,
  Unigram,
)
from largevocab.samplers.buckets import Buckets
from largevocab.samplers.two_stage import TwoStage
from tests.heads.compiled import (
  backward,
  class_rows,
  evaluate,
  monitor,
  top_k,
  update,
)
from tests.kinds import kinds
from tests.long import others_long

N, V, D, M = 6, 13, 5, 8
KEY = jax.random.key(3)


def sampled(sampler):
  """A sampled head with the kind of logits that the sampler is made for."""
  absolute = getattr(sampler, "absolute", False)
  return Sampled(num_samples=M, sampler=sampler, absolute=absolute)


@dataclasses.dataclass(frozen=True)
class UnequalClusters(Hierarchical):
  """Clusters of 1 to 6 classes; some cluster numbers are unused."""

  def cluster_of(self, counts):
    given_V = np.array([5, 5, 0, 5, 9, 5, 2, 5, 9, 2, 5, 9, 2])
    return given_V[: counts.num_classes]


class Cut:
  """Fixed cutoffs, without those that exceed the number of classes."""

  def clusters(self, counts, dim):
    cutoffs = tuple(c for c in self.cutoffs if c < counts.num_classes)
    return cut(counts.unigram_V, cutoffs, widths(dim, len(cutoffs) + 1, self.factor))


class CutAdaptive(Cut, Adaptive):
  pass


class CutDSoftmax(Cut, DSoftmax):
  pass


# To a head they are as others: `lsh_embedding`, samplers without statistics, `uniform`,
# `quadratic`, `sce`.
AS_OTHERS = ("lsh_label", "top_k", "log_uniform", "unigram", "quartic", "rece")

CASES = {
  "full": Full(),
  "full, |o|, no bias": Full(absolute=True, bias=False),
  "full, cosine": Full(bias=False, logits=Cosine(scale=4.0, angular=0.3)),
  "sampled, cosine": Sampled(
    bias=False,
    logits=Cosine(scale=4.0, angular=0.2, additive=0.1),
    num_samples=M,
    sampler=Uniform(),
  ),
  "full, by classes": Full(method="classes", optimizer=Adam()),
  "sampled, |o|, no bias, adagrad": Sampled(
    num_samples=M, absolute=True, bias=False, optimizer=Adagrad()
  ),
  "sampled, positive corrected, adam": Sampled(
    loss=SampledSoftmax(correct_positive=True), num_samples=M, optimizer=Adam()
  ),
  "sampled, positive corrected, some never drawn": Sampled(
    loss=SampledSoftmax(correct_positive=True),
    num_samples=M,
    sampler=SAMPLERS["unigram"](smoothing=0.0),
  ),
  "sampled, unigram, per example": Sampled(
    num_samples=M, sampler=SAMPLERS["unigram"](per_example=True)
  ),
  **{f"sampled, {s}": sampled(SAMPLERS[s]()) for s in SAMPLERS if s not in AS_OTHERS},
  "sampled, cbns, one batch": sampled(CBNS(batches=1)),
  "sampled, quadratic, tree": sampled(Quadratic(leaf_size=2, dense_levels=1)),
  "sampled, quadratic_prior, tree": sampled(
    QuadraticPrior(leaf_size=2, dense_levels=0)
  ),
  "sampled, block, several": sampled(Block(leaf_size=4)),
  "sampled, exact sets": Sampled(
    num_samples=M, exact_batch=True, exact_frequent=2, exact_ids=(0,)
  ),
  "nce, a learned z, adam": Sampled(
    loss=NCE(normalizer="global"),
    num_samples=M,
    optimizer=Adam(),
    sampler=SAMPLERS["pps"](),
  ),
  "nce, z of contexts": Sampled(
    loss=NCE(normalizer="context"), num_samples=M, sampler=Unigram()
  ),
  "nce, some never drawn": Sampled(
    loss=NCE(), num_samples=M, sampler=SAMPLERS["unigram"](smoothing=0.0)
  ),
  "negative_sampling, calibrated": Sampled(
    loss=NegativeSampling(calibration=0.75),
    num_samples=4,
    sampler=Unigram(per_example=True),
  ),
  "ranking": Sampled(loss=Ranking(), num_samples=M, sampler=Uniform()),
  "ranking, |o|": Sampled(
    loss=Ranking(), num_samples=M, absolute=True, sampler=Softmax(absolute=True)
  ),
  "bound": Sampled(loss=UpperBound(), num_samples=M, sampler=Bernoulli()),
  "bound, exact sets": Sampled(
    loss=UpperBound(), num_samples=M, exact_batch=True, exact_ids=(0,)
  ),
  "bound, pps, |o|": Sampled(
    loss=UpperBound(), num_samples=M, sampler=SAMPLERS["pps"](), absolute=True
  ),
  # With few draws it goes astray.
  "importance": Sampled(loss=Importance(), num_samples=20 * V, sampler=Unigram()),
  "importance, exact sets": Sampled(
    loss=Importance(), num_samples=M, exact_batch=True, sampler=Bernoulli()
  ),
  "blackout, per example": Sampled(
    loss=BlackOut(), num_samples=M, sampler=Unigram(per_example=True)
  ),
  "adaptive": CutAdaptive(cutoffs=(3, 7)),
  "adaptive, tied, no bias, adam, narrow": CutAdaptive(
    cutoffs=(2, 6, 9),
    tied=True,
    **{"bias": False, "tail_bias": False, "factor": 2},
    optimizer=Adam(),
  ),
  "adaptive, planned, adagrad": Adaptive(min_head_mass=0.3, optimizer=Adagrad()),
  "d_softmax": DSoftmax(),
  "d_softmax, projected, no bias, adam": CutDSoftmax(
    cutoffs=(2, 6, 9), projected=True, bias=False, factor=2, optimizer=Adam()
  ),
  "hierarchical": Hierarchical(),
  "hierarchical, unequal, no bias, adagrad": UnequalClusters(
    bias=False, optimizer=Adagrad()
  ),
  "huffman": Huffman(),
  "huffman, no bias, adam": Huffman(bias=False, optimizer=Adam()),
  "spherical, taylor": Spherical(),
  "spherical, no bias": Spherical(loss=SphericalSoftmax(eps=0.1), bias=False),
  "spherical, squared": Spherical(loss=Squared()),
  "spherical, z": Spherical(loss=ZLoss(), stabilizer="singular_values"),
}


# Cases that are not normalised over the classes, and so have no 'nll'.
WITHOUT_NLL = {"spherical, squared", "spherical, z"}


def test_every_head_has_a_case():
  assert {type(head) for head in CASES.values()} >= set(HEADS.values())
  losses = {type(head.loss) for head in CASES.values() if isinstance(head, Sampled)}
  assert losses == set(SAMPLED_LOSSES.values())
  assert CASES.keys() >= WITHOUT_NLL


KINDS = {
  name: (
    type(head),
    type(getattr(head, "loss", None)),
    isinstance(getattr(head, "sampler", None), (TwoStage, LSHEmbedding)),
    isinstance(getattr(head, "logits", None), Cosine),
  )
  for name, head in CASES.items()
}


def firsts(names, kind):
  """The first case of each kind."""
  return [*{kind(name): name for name in reversed(names)}.values()]


def of_each_kind(names):
  """The first of each head and loss, of samplers that keep sums, of hash tables, and of
  normalised rows."""
  return firsts(names, lambda name: KINDS[name])


def class_of(name):
  """The class in the package; for a variant in this file, its base class."""
  return next(cls for cls in HEADS.values() if isinstance(CASES[name], cls))


OF_EACH_KIND = of_each_kind([*CASES])
OF_EACH_CLASS = firsts([name for name in CASES if not KINDS[name][3]], class_of)
NOISE = "nce, a learned z, adam"  # whose loss has rows of its own


def cases(names):
  """By default, one case of each head, and of sums that are kept."""
  linear = [name for name in names if not KINDS[name][3]]
  kind = lambda name: (class_of(name), KINDS[name][2])
  return others_long(names, firsts(linear, kind))


@pytest.fixture(params=cases([*CASES]))
def head(request):
  return CASES[request.param]


@pytest.fixture(params=cases([name for name in CASES if name not in WITHOUT_NLL]))
def normalized_head(request):
  return CASES[request.param]


def counts():
  tokens = np.random.default_rng(0).zipf(1.5, 500).clip(max=V) - 1
  return Counts(np.bincount(tokens, minlength=V), tokens.astype(np.int32))


def batch(seed=0, num=N):
  rng = np.random.default_rng(seed)
  h_ND = jnp.asarray(rng.standard_normal((num, D)), jnp.float32)
  weight_N = rng.uniform(0.2, 1, num)
  y = single_targets(rng.integers(0, V, num), weight_N)
  return h_ND, y._replace(context_N=jnp.asarray(rng.integers(0, V, num), jnp.int32))


def multi_label(y):
  """Up to three true classes: one repeated, some padding, one example without any."""
  rng = np.random.default_rng(1)
  num = len(y.ids_NP)
  ids_NP = rng.integers(0, V, (num, 3)).astype(np.int32)
  ids_NP[0] = [4, 4, 7]
  ids_NP[1, 1:] = V
  ids_NP[2] = V
  w_NP = np.where(ids_NP < V, rng.uniform(0.1, 1, (num, 3)), 0).astype(np.float32)
  return Targets(jnp.asarray(ids_NP), jnp.asarray(w_NP), y.context_N)


def with_padding(y):
  """The same true classes with two weightless entries each, in random order."""
  at_N1 = np.resize([2, 0, 1, 2, 0, 1], len(y.ids_NP))[:, None]
  ids_NP = np.full((len(y.ids_NP), 3), V, np.int32)
  w_NP = np.zeros(ids_NP.shape, np.float32)
  np.put_along_axis(ids_NP, at_N1, y.ids_NP, axis=1)
  np.put_along_axis(w_NP, at_N1, y.w_NP, axis=1)
  return y._replace(ids_NP=jnp.asarray(ids_NP), w_NP=jnp.asarray(w_NP))


@functools.cache
def started(head):
  """A state after two steps, so that no gradient is zero by symmetry."""
  state = head.init(jax.random.key(0), counts(), D)
  for seed in range(2):
    h_ND, y = batch(seed)
    out = backward(head, state, h_ND, with_padding(y), jax.random.key(seed))
    state = update(head, state, out.grads, 0.5, 1.0)
  return state


@functools.cache
def shapes(head):
  """Shapes of the arrays of a state, for tests that read no values."""
  return jax.eval_shape(lambda: head.init(KEY, counts(), D))


def in_float64(tree):
  """A tree with its float32 leaves as float64."""
  wide = lambda x: x.astype(jnp.float64) if x.dtype == jnp.float32 else x
  return jax.tree.map(wide, tree)


def dense_rows(grads, w_VD):
  """A gradient as an array of the table's shape."""
  if not isinstance(grads, RowGrads):
    return grads
  return jnp.zeros_like(w_VD).at[grads.ids_R].add(grads.rows_RD, mode="drop")


class View:
  """How the laws see what a head learns: here, of heads with one row per class.

  Attributes:
    rounding: how far parameters that are not held, but implied, may be off.
    drift: how far sums over all classes that steps keep up to date may be off in a
      metric; a refresh makes them anew.
  """

  rounding = 0.0
  drift = 0.0

  def parameters(self, state):
    """Everything that a head learns, as a list of arrays."""
    tables = [state.table, getattr(state, "log_z", None)]
    return [table.w_VD for table in tables if table is not None]

  def with_parameters(self, state, params):
    """The state with other parameters."""
    state = state._replace(table=state.table._replace(w_VD=params[0]))
    if len(params) == 1:
      return state
    return state._replace(log_z=state.log_z._replace(w_VD=params[1]))

  def dense(self, grads, params):
    """A head's gradient as arrays like its parameters."""
    each = [grads]
    if isinstance(grads, SampledGrads):
      each = [g for g in grads if g is not None]
    return [dense_rows(g, w_VD) for g, w_VD in zip(each, params, strict=True)]

  def tripled(self, grads):
    """Three times a gradient."""
    floats = lambda g: jnp.issubdtype(g.dtype, jnp.floating)
    return jax.tree.map(lambda g: 3 * g if floats(g) else g, grads)

  def loss(self, head, state, h_ND, y):
    """The loss of `backward`, f32[], in a form that JAX can differentiate."""
    return backward(head, state, h_ND, y, KEY).loss

  def scores(self, head, state, h_ND):
    """What `top_k` ranks by, of all classes by the definition: f32[N, V]; where the
    head is normalised, log-probabilities."""
    w_VD = state.table.w_VD
    o_NV = h_ND @ w_VD[:, :D].T
    if head.bias:
      o_NV = o_NV + w_VD[:, D][None, :]
    return jax.nn.log_softmax(jnp.abs(o_NV) if head.absolute else o_NV)

  def relabelled(self, state, new_V):
    """The state of a head whose class c is called new_V[c]."""
    w_VD = state.table.w_VD[np.argsort(new_V)]
    return self.with_parameters(state, [w_VD, *self.parameters(state)[1:]])


class CosineView(View):
  """Heads with normalised rows and activations: only training has margins."""

  def scores(self, head, state, h_ND):
    u_ND, u_VD = (
      x / jnp.linalg.norm(x, axis=1, keepdims=True) for x in (h_ND, state.table.w_VD)
    )
    return jax.nn.log_softmax(head.logits.scale * u_ND @ u_VD.T)


class ByScores(View):
  """Heads whose loss is computed from their log-probabilities."""

  def loss(self, head, state, h_ND, y):
    log_p_NV = self.scores(head, state, h_ND)
    log_p_NP = jnp.take_along_axis(log_p_NV, y.ids_NP, 1, mode="fill", fill_value=0)
    return -jnp.sum(y.w_NP * log_p_NP) / jnp.sum(y.w_NP)


class HierarchicalView(ByScores):
  """Heads with rows of clusters, and blocks of rows of their classes."""

  def parameters(self, state):
    return [state.clusters.w_VD, state.leaves.w_VD]

  def with_parameters(self, state, params):
    clusters_KD, leaves_KD = params
    return state._replace(
      clusters=state.clusters._replace(w_VD=clusters_KD),
      leaves=state.leaves._replace(w_VD=leaves_KD),
    )

  def dense(self, grads, params):
    of_leaves = grads.leaves
    rows_MSD = of_leaves.d_MS[:, :, None] * of_leaves.x_MD[:, None, :]
    rows_ME = rows_MSD.reshape(len(rows_MSD), -1)
    at_M = of_leaves.ids_M
    return [grads.clusters_KD, jnp.zeros_like(params[1]).at[at_M].add(rows_ME)]

  def tripled(self, grads):
    leaves = grads.leaves._replace(d_MS=3 * grads.leaves.d_MS)
    return grads._replace(clusters_KD=3 * grads.clusters_KD, leaves=leaves)

  def scores(self, head, state, h_ND):
    one_N1 = jnp.ones((len(h_ND), 1 if head.bias else 0))
    x_ND = jnp.concatenate([h_ND, one_N1], axis=1)
    log_softmax = lambda w_VD: jax.nn.log_softmax(x_ND @ w_VD[:, : x_ND.shape[1]].T)
    log_p_NK = log_softmax(state.clusters.w_VD)
    log_p_NV = jnp.zeros((len(h_ND), V))
    for k, block_D in enumerate(state.leaves.w_VD):
      ids = np.flatnonzero(np.asarray(state.cluster_V) == k)
      rows_VD = block_D.reshape(-1, state.clusters.w_VD.shape[1])[state.slot_V[ids]]
      log_p_NV = log_p_NV.at[:, ids].set(log_p_NK[:, [k]] + log_softmax(rows_VD))
    return log_p_NV

  def relabelled(self, state, new_V):
    """Classes stay where they are."""
    old_V = np.argsort(new_V)
    return state._replace(
      cluster_V=state.cluster_V[old_V],
      slot_V=state.slot_V[old_V],
      members_KS=jnp.asarray(np.append(new_V, V), jnp.int32)[state.members_KS],
    )


class AdaptiveView(ByScores):
  """Heads with a short-list, tails and projections."""

  def parameters(self, state):
    return [t.w_VD for t in (state.head, *state.tails, *state.downs)]

  def with_parameters(self, state, params):
    tables = state.head, state.tails, state.downs
    leaves, tree = jax.tree.flatten(tables, is_leaf=lambda x: isinstance(x, Table))
    new = [t._replace(w_VD=w) for t, w in zip(leaves, params, strict=True)]
    head, tails, downs = jax.tree.unflatten(tree, new)
    return dataclasses.replace(state, head=head, tails=tails, downs=downs)

  def dense(self, grads, params):
    return jax.tree.leaves(grads._replace(reached_J=None))

  def scores(self, head, state, h_ND):
    """By masks over all classes: no example is left out of any part."""
    extended = lambda x, bias: jnp.pad(x, ((0, 0), (0, int(bias))), constant_values=1)
    x_ND = extended(h_ND, head.bias)
    w_VD = state.head.w_VD[:, : x_ND.shape[1]]
    log_p_NV = jax.nn.log_softmax(x_ND @ w_VD.T)
    short = len(w_VD) - len(state.tails)
    in_order = [log_p_NV[:, :short]]
    for i, tail in enumerate(state.tails):
      width = state.clusters.widths[1 + i]
      down_ED = state.downs[0 if head.tied else i].w_VD[:width]
      x_NE = extended(h_ND @ down_ED.T, head.tail_bias)
      log_q_NV = jax.nn.log_softmax(x_NE @ tail.w_VD[:, : x_NE.shape[1]].T)
      in_order.append(log_p_NV[:, [short + i]] + log_q_NV)
    return jnp.concatenate(in_order, axis=1)[:, state.place_V]

  def relabelled(self, state, new_V):
    """Classes stay where they are; those that are equally likely are none here."""
    return dataclasses.replace(
      state,
      place_V=state.place_V[np.argsort(new_V)],
      class_V=jnp.asarray(new_V, jnp.int32)[state.class_V],
    )


class DSoftmaxView(AdaptiveView):
  """Heads with parts of one softmax, and projections."""

  def parameters(self, state):
    return [table.w_VD for table in (*state.rows, *state.downs)]

  def with_parameters(self, state, params):
    is_table = lambda x: isinstance(x, Table)
    tables, tree = jax.tree.flatten((state.rows, state.downs), is_leaf=is_table)
    new = [t._replace(w_VD=w) for t, w in zip(tables, params, strict=True)]
    rows, downs = jax.tree.unflatten(tree, new)
    return dataclasses.replace(state, rows=rows, downs=downs)

  def dense(self, grads, params):
    return [*grads.rows, *grads.downs]

  def scores(self, head, state, h_ND):
    """Computes all logits at once."""
    in_order, begin = [], 0
    for i, (table, width) in enumerate(zip(state.rows, state.widths, strict=True)):
      x_NE = h_ND[:, begin : begin + width]
      if head.projected:
        x_NE = h_ND @ state.downs[i - 1].w_VD.T if i else h_ND
      o_NV = x_NE @ table.w_VD[:, :width].T
      in_order.append(o_NV + table.w_VD[:, width][None] if head.bias else o_NV)
      begin += width
    return jax.nn.log_softmax(jnp.concatenate(in_order, axis=1)[:, state.place_V])


class HuffmanView(ByScores):
  """Heads with rows for the inner nodes of a binary tree."""

  def parameters(self, state):
    return [state.nodes.w_VD]

  def with_parameters(self, state, params):
    return state._replace(nodes=state.nodes._replace(w_VD=params[0]))

  def scores(self, head, state, h_ND):
    o_NV = head.features(h_ND) @ state.nodes.w_VD.T
    above_class_V, above_node_V, _ = map(np.asarray, jax.tree.leaves(state.tree))
    columns = []
    for above in above_class_V:
      log_p_N = jnp.zeros(len(h_ND))
      while above >= 0:
        sign = 2 * (above % 2) - 1
        log_p_N += jax.nn.log_sigmoid(sign * o_NV[:, above // 2])
        above = above_node_V[above // 2]
      columns.append(log_p_N)
    return jnp.stack(columns, axis=1)

  def relabelled(self, state, new_V):
    """Classes stay where they are."""
    above_V = state.tree.above_class_V[np.argsort(new_V)]
    return state._replace(tree=state.tree._replace(above_class_V=above_V))


class SphericalView(View):
  """Heads whose table W = V U + 1 omega^T is implied."""

  rounding = 3e-6
  # Each step of `started` solves a system with 1 - A; in the second one its condition
  # is 23, and so Q, W's sums and U's inverse end off by up to 23 eps = 2.7e-6 of their
  # largest entries. The terms of a loss add up to 2.5 times their sum: 6.9e-6. That a
  # refresh itself loses nothing of this size is tested in float64, in
  # `test_refresh_changes_the_table_by_rounding_only` of spherical_test.py.
  drift = 7e-6

  def parameters(self, state):
    return [implied(state)]

  def with_parameters(self, state, params):
    return factor(params[0])

  def dense(self, grads, params):
    rows_NPD = grads.do_NP[:, :, None] * grads.h_ND[:, None, :]
    at = jnp.zeros_like(params[0]).at[grads.ids_NP].add(rows_NPD, mode="drop")
    dq_N1, ds_N1 = grads.dq_N[:, None], grads.ds_N[:, None]
    a_DD = grads.h_ND.T @ (dq_N1 * grads.h_ND)
    return [2 * params[0] @ a_DD + jnp.sum(ds_N1 * grads.h_ND, 0)[None] + at]

  def tripled(self, grads):
    kept = {"h_ND": grads.h_ND, "gram_ND": grads.gram_ND}
    return super().tripled(grads)._replace(**kept)

  def scores(self, head, state, h_ND):
    o_NV = head.features(h_ND) @ implied(state).T
    q_N1, s_N1 = ((o_NV**p).sum(axis=1, keepdims=True) for p in (2, 1))
    return head.loss.score(o_NV, q_N1, s_N1, o_NV.shape[1])

  def relabelled(self, state, new_V):
    return state._replace(v_VD=state.v_VD[np.argsort(new_V)])


class NegativeSamplingView(View):
  """Heads whose evaluation depends on how often classes are drawn."""

  def scores(self, head, state, h_ND):
    o_NV = head.features(h_ND) @ state.table.w_VD.T
    log_expected_V = head.sampler.log_expected_of_all(state.stats)
    positive = 1 - head.loss.calibration * (1 - head.num_samples / (V - 1))
    odds_NV = jnp.exp(o_NV + log_expected_V[None]) / positive
    return jax.nn.log_softmax(jnp.log(odds_NV / (1 + odds_NV)))

  def relabelled(self, state, new_V):
    """Only what is evaluated: draws would be others."""
    state = super().relabelled(state, new_V)
    strata = state.stats.strata
    log_expected_V = strata.log_expected_V[np.argsort(new_V)]
    strata = strata._replace(log_expected_V=log_expected_V)
    return state._replace(stats=state.stats._replace(strata=strata))


VIEWS: dict[type, View] = {
  NegativeSampling: NegativeSamplingView(),
  Adaptive: AdaptiveView(),
  DSoftmax: DSoftmaxView(),
  Hierarchical: HierarchicalView(),
  Huffman: HuffmanView(),
  Spherical: SphericalView(),
}


def method(head):
  """What distinguishes heads: for sampled ones, the loss."""
  return head.loss if isinstance(head, Sampled) else head


class Remembering(View):
  """Sampled softmaxes with rows that are constants in the loss."""

  def loss(self, head, state, h_ND, y):
    x_ND, w_VD = head.features(h_ND), state.table.w_VD
    others = head.candidates(state, x_ND, y, KEY)
    own_NMD = w_VD[others.ids]
    own_NMD = jnp.where(
      others.constant[:, :, None], jax.lax.stop_gradient(own_NMD), own_NMD
    )
    true_NPD = w_VD.at[y.ids_NP].get(mode="fill", fill_value=0)
    return sampled_softmax_loss(
      jnp.einsum("nd,npd->np", x_ND, true_NPD),
      y.w_NP / jnp.sum(y.w_NP),
      true_mask(y, V),
      jnp.einsum("nd,nmd->nm", x_ND, own_NMD),
      others.log_expected,
      others.mask,
    )


def view_of(head) -> View:
  if isinstance(getattr(head, "sampler", None), CBNS):
    return Remembering()
  if isinstance(getattr(head, "logits", None), Cosine):
    return CosineView()
  own = (view for cls, view in VIEWS.items() if isinstance(method(head), cls))
  return next(own, View())


def test_state_leaves_are_distinct_arrays(head):
  leaves = jax.tree.leaves(head.init(KEY, counts(), D))
  assert all(isinstance(leaf, jax.Array) for leaf in leaves)
  pointers = [leaf.unsafe_buffer_pointer() for leaf in leaves if leaf.size]
  assert len(set(pointers)) == len(pointers)


def test_a_step_and_a_refresh_compile_once(head):
  def step(state, rate, scale):
    out = head.backward(state, *batch(0), KEY)
    return out, head.update(state, out.grads, rate, scale)

  state = head.init(KEY, counts(), D)
  out, after = jax.eval_shape(step, state, jnp.float32(0.1), jnp.float32(1))
  assert out.dh_ND.dtype == jnp.float32
  assert kinds(after) == kinds(jax.eval_shape(head.refresh, state, KEY)) == kinds(state)


def test_gradients_equal_those_of_the_loss(head):
  """Of one true class each, which autodiff reads with padding, and of several."""
  view, state = view_of(head), started(head)
  params = view.parameters(state)
  h_ND, y = batch(5)

  @jax.jit
  @jax.value_and_grad
  def wanted(inputs, y):
    h_ND, params = inputs
    return view.loss(head, view.with_parameters(state, params), h_ND, y)

  for targets, of_three in ((y, with_padding(y)), (multi_label(y), multi_label(y))):
    out = backward(head, state, h_ND, targets, KEY)
    want_loss, (dh_ND, dw) = wanted((h_ND, params), of_three)
    np.testing.assert_allclose(out.loss, want_loss, rtol=1e-5)
    np.testing.assert_allclose(out.dh_ND, dh_ND, rtol=1e-4, atol=1e-6)
    for got, want in zip(view.dense(out.grads, params), dw, strict=True):
      np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6 + view.rounding)
    np.testing.assert_allclose(out.sq_norm, sum(jnp.sum(g**2) for g in dw), rtol=1e-4)


# A draw that depends on h moves with it.
MOVING = {
  name
  for name, head in CASES.items()
  if isinstance(getattr(head, "sampler", None), (Softmax, TwoStage, Buckets, MIDX))
}


@pytest.mark.parametrize("name", cases([name for name in CASES if name not in MOVING]))
def test_gradient_equals_a_finite_difference(name):
  """Independent of autodiff: the loss along a direction of h, with a fixed draw."""
  head = CASES[name]
  h_ND, y = batch(6)
  state = started(head)
  dh_ND = backward(head, state, h_ND, y, KEY).dh_ND
  size_ND = jnp.abs(jax.random.normal(jax.random.key(1), h_ND.shape))
  step_ND = jnp.where(dh_ND < 0, -size_ND, size_ND)  # so that no terms cancel
  loss = lambda eps: backward(head, state, h_ND + eps * step_ND, y, KEY).loss
  slope = jnp.sum(dh_ND * step_ND)
  assert slope > 0.1
  np.testing.assert_allclose((loss(1e-2) - loss(-1e-2)) / 2e-2, slope, rtol=2e-3)


def test_examples_without_weight_change_nothing(head):
  h_ND, y = batch(7)
  y = y._replace(w_NP=y.w_NP.at[-2:].set(0))
  state = started(head)
  other_h_ND = h_ND.at[-2:].set(9.0)
  other_y = y._replace(ids_NP=y.ids_NP.at[-2:].set(V))
  a = backward(head, state, h_ND, y, KEY)
  b = backward(head, state, other_h_ND, other_y, KEY)
  np.testing.assert_allclose(a.loss, b.loss, rtol=1e-6)
  np.testing.assert_allclose(a.dh_ND[:-2], b.dh_ND[:-2], rtol=1e-5, atol=1e-7)
  assert not a.dh_ND[-2:].any()
  view, params = view_of(head), view_of(head).parameters(state)
  a_grads, b_grads = view.dense(a.grads, params), view.dense(b.grads, params)
  for x, z in zip(a_grads, b_grads, strict=True):
    np.testing.assert_allclose(x, z, atol=1e-6)


LAST = 2**31 - 1


def test_padding_is_any_id_without_weight(head):
  h_ND, y = batch(5)
  y = multi_label(y)
  state = started(head)
  ids_NP = y.ids_NP.at[1, 1:].set(jnp.array([-1, LAST]))
  ids_NP = ids_NP.at[2].set(jnp.array([-LAST, V + 1, -V]))
  padded = y._replace(ids_NP=ids_NP)
  assert not y.w_NP[ids_NP != y.ids_NP].any()
  a, b = (backward(head, state, h_ND, targets, KEY) for targets in (y, padded))
  for x, z in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
    np.testing.assert_array_equal(x, z)


def test_padding_does_not_change_the_loss(head):
  """Padding may be anywhere, also in the first example."""
  (h_ND, y), state = batch(5), started(head)
  a, b = (backward(head, state, h_ND, targets, KEY) for targets in (y, with_padding(y)))
  np.testing.assert_allclose(a.loss, b.loss, rtol=1e-5)
  np.testing.assert_allclose(a.dh_ND, b.dh_ND, rtol=1e-4, atol=1e-6)


# Heads whose loss reads how often true classes are drawn, with samplers of examples.
LAWS = [
  Sampled(loss=loss, num_samples=M, sampler=sampler, absolute=sampler.absolute)
  for loss, sampler in (
    (NCE(), Block()),
    (BlackOut(), Block(leaf_size=4)),
    (SampledSoftmax(correct_positive=True), Quadratic(leaf_size=2)),
    (NCE(), Softmax()),
  )
]


@pytest.mark.long
@pytest.mark.parametrize("head", LAWS, ids=repr)
def test_padding_does_not_change_the_law_of_true_classes(head):
  test_padding_does_not_change_the_loss(head)


@pytest.mark.parametrize("label", [V, V + 1, -1, LAST, -LAST])
def test_invalid_label_makes_the_loss_nan(head, label):
  """The label has weight; evaluation is NaN for its example only."""
  h_ND, y = batch(5)
  wrong = y._replace(ids_NP=y.ids_NP.at[1].set(label))
  state = started(head)
  assert np.isnan(backward(head, state, h_ND, wrong, KEY).loss)
  metrics, got = (evaluate(head, state, h_ND, targets) for targets in (y, wrong))
  name = "nll" if "nll" in metrics else "loss"
  expected_N = np.where(np.arange(N) == 1, np.nan, metrics[name])
  np.testing.assert_array_equal(got[name], expected_N)


def floats(tree):
  """Dtypes of the float arrays."""
  types = [x.dtype for x in jax.tree.leaves(tree)]
  return {str(dtype) for dtype in types if jnp.issubdtype(dtype, jnp.floating)}


@pytest.mark.parametrize(
  ("name", "dtype"),
  others_long(
    [(name, dtype) for name in CASES for dtype in ("bfloat16", "float16")],
    [(name, "bfloat16") for name in OF_EACH_CLASS],
  ),
)
def test_dh_has_the_dtype_of_h_and_all_else_is_float32(name, dtype):
  """`test_a_step_and_a_refresh_compile_once` tests this for float32."""
  head = CASES[name]
  state = started(head)
  h_ND, y = batch()

  def network(scale):
    return (scale * h_ND).astype(dtype)

  def step(state, scale):
    h_ND, pull_back = jax.vjp(network, scale)
    out = head.backward(state, h_ND, y, KEY)
    pull_back(out.dh_ND)
    results = head.evaluate(state, h_ND, y), head.top_k(state, h_ND, 3)
    return out, head.update(state, out.grads, 0.1, 1.0), results

  out, after, results = jax.eval_shape(step, state, jnp.float32(1))
  assert out.dh_ND.dtype == dtype
  assert floats(out._replace(dh_ND=None)) == floats(results) == {"float32"}
  assert kinds(after) == kinds(jax.eval_shape(lambda x: x, state))


# A sampler is given activations that the head has already widened.
@pytest.mark.parametrize("name", others_long(OF_EACH_KIND, [*OF_EACH_CLASS, NOISE]))
def test_bfloat16_activations_lose_precision_only_in_dh(name):
  head = CASES[name]
  state = started(head)
  h_ND, y = batch(5)
  h_ND = h_ND.astype(jnp.bfloat16)
  got = backward(head, state, h_ND, y, KEY)
  want = backward(head, state, h_ND.astype(jnp.float32), y, KEY)
  np.testing.assert_allclose(got.loss, want.loss, rtol=1e-6)
  np.testing.assert_allclose(got.sq_norm, want.sq_norm, rtol=1e-5)
  half = float(jnp.finfo(jnp.bfloat16).eps) / 2
  dh_ND = np.asarray(got.dh_ND, np.float32)
  np.testing.assert_allclose(dh_ND, want.dh_ND, rtol=1.01 * half, atol=1e-7)


# Of each head and loss, a plain one and another; steps of `spherical` are float32.
WITH_DTYPE = [name for name in CASES if class_of(name) is not Spherical]
OTHERS = firsts(WITH_DTYPE[::-1], lambda name: type(method(CASES[name])))
WITH_DTYPE = [n for n in WITH_DTYPE if n in OF_EACH_CLASS or n in OTHERS]


@pytest.mark.parametrize("name", others_long(WITH_DTYPE, OF_EACH_CLASS))
def test_bfloat16_products_are_close_and_summed_in_float32(name):
  """Close to float32, which the tests above compare with the definition."""
  head = CASES[name]
  half = dataclasses.replace(head, dtype="bfloat16")
  state, (h_ND, y), view = started(head), batch(5), view_of(head)
  params = view.parameters(state)

  def results(head):
    out = backward(head, state, h_ND, y, KEY)
    after = view.parameters(update(head, state, out.grads, 0.1, 1.0))
    metrics, (_, score_NK) = evaluate(head, state, h_ND, y), top_k(head, state, h_ND, 4)
    dense = view.dense(out.grads, params)
    return out.loss, out.dh_ND, out.sq_norm, dense, after, metrics, score_NK

  got, want = results(half), results(head)
  assert floats(got) == {"float32"}
  bits = float(jnp.finfo(jnp.bfloat16).eps)
  for i, (mine, theirs) in enumerate(zip(got, want, strict=True)):
    pairs = list(zip(*map(jax.tree.leaves, (mine, theirs)), strict=True))
    is_gradient = i in (1, 3)  # of any size; the others are about 1, or sums of such
    for x, z in pairs:
      size = np.abs(z).max() if is_gradient else 1 + np.abs(z).max()
      np.testing.assert_allclose(x, z, rtol=0, atol=4 * bits * size)
    assert any(np.any(x != z) for x, z in pairs)  # products of float32 are others


def test_batch_without_weight_makes_no_step(head):
  """Updates are those of a first step: momentum of steps before would move rows."""
  h_ND, y = batch(8)
  y = y._replace(w_NP=jnp.zeros_like(y.w_NP))
  view, fresh = view_of(head), head.init(KEY, counts(), D)
  for state in (started(head), fresh):
    out, params = backward(head, state, h_ND, y, KEY), view.parameters(state)
    assert out.loss == out.sq_norm == 0
    assert not out.dh_ND.any()
    assert not any(g.any() for g in view.dense(out.grads, params))
  after = view.parameters(update(head, fresh, out.grads, 0.1, 1.0))
  for new, old in zip(after, params, strict=True):
    np.testing.assert_array_equal(new, old)


def test_learning_rate_zero_keeps_parameters(head):
  state = started(head)
  grads = backward(head, state, *batch(9), KEY).grads
  after = update(head, state, grads, 0.0, 1.0)
  parameters = view_of(head).parameters
  for new, old in zip(parameters(after), parameters(state), strict=True):
    np.testing.assert_array_equal(new, old)


def test_scale_multiplies_the_gradient(head):
  state = started(head)
  grads = backward(head, state, *batch(9), KEY).grads
  parameters = view_of(head).parameters
  with jax.enable_x64(True):
    state, grads = in_float64((state, grads))
    tripled = view_of(head).tripled(grads)
    a = parameters(update(head, state, grads, 0.1, 3.0))
    b = parameters(update(head, state, tripled, 0.1, 1.0))
  for x, z in zip(a, b, strict=True):
    np.testing.assert_allclose(x, z, rtol=1e-10, atol=1e-13)


accumulated = jax.jit(accumulate)


def two_batches():
  """Two batches with several true classes, repeated and padding, their shares of all
  weight, and both in one."""
  parts = [(h_ND, multi_label(y)) for h_ND, y in (batch(20), batch(21))]
  parts[1] = parts[1][0], parts[1][1]._replace(w_NP=0.3 * parts[1][1].w_NP)
  weights = np.array([float(jnp.sum(y.w_NP)) for _, y in parts])
  whole = jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts)
  return parts, weights / weights.sum(), whole


def test_accumulated_gradients_equal_the_sum(head):
  """Of dense gradients in float64; and where nothing is drawn, one step on all."""
  parts, weights, whole = two_batches()
  state, view = started(head), view_of(head)
  params = view.parameters(state)
  each = [backward(head, state, *part, KEY).grads for part in parts]
  grads = accumulated(each, list(weights))
  denses = [view.dense(g, params) for g in each]
  for got, a, b in zip(view.dense(grads, params), *denses, strict=True):
    want = weights[0] * np.asarray(a, np.float64) + weights[1] * np.asarray(b)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-6)
  for ids_R in [g.ids_R for g in of_rows(grads)]:
    assert len(np.unique(ids_R)) == len(ids_R)
  sq_norm = sum(np.sum(np.square(z, dtype=float)) for z in view.dense(grads, params))
  np.testing.assert_allclose(head.sq_norm(state, grads), sq_norm, rtol=1e-4)
  if isinstance(head, Sampled):
    return
  want = view.dense(backward(head, state, *whole, KEY).grads, params)
  for got, z in zip(view.dense(grads, params), want, strict=True):
    np.testing.assert_allclose(got, z, rtol=1e-4, atol=1e-6 + view.rounding)


def of_rows(grads):
  is_rows = lambda x: isinstance(x, RowGrads)
  return [g for g in jax.tree.leaves(grads, is_leaf=is_rows) if is_rows(g)]


def test_gradients_added_leaf_by_leaf_are_right_or_refused(head):
  parts, _, _ = two_batches()
  state, view = started(head), view_of(head)
  parameters = view.parameters
  a, b = (backward(head, state, *parts[0], jax.random.key(k)).grads for k in (1, 2))
  wrong = jax.tree.map(jnp.add, a, b)
  if not of_rows(a) and not isinstance(head, (Hierarchical, Spherical)):
    params = parameters(state)
    for x, z in zip(view.dense(wrong, params), view.dense(a + b, params), strict=True):
      np.testing.assert_array_equal(x, z)
    return
  bounded = lambda g: jnp.clip(g, -1, 1)
  # A difference of gradients, whose ids and tags are 0.
  differing = lambda g: 0 * g if jnp.issubdtype(g.dtype, jnp.integer) else g
  for refused in (head.update, lambda *args: accumulate([args[1], a])):
    for change in (jnp.sign, jnp.square, bounded, differing):
      with pytest.raises(UserError, match="changed leaf by leaf"):
        refused(state, jax.tree.map(change, a), 0.1, 1.0)
    with pytest.raises(UserError, match="changed leaf by leaf"):
      refused(state, wrong, 0.1, 1.0)
  with pytest.raises(UserError, match="scaled with its ids"):
    head.update(state, jax.tree.map(lambda g: g / 2, a), 0.1, 1.0)
  after = update(head, state, wrong, 0.1, 1.0)  # traced: it cannot be refused
  assert any(np.isnan(x).any() for x in parameters(after))


def test_gradient_zeroed_leaf_by_leaf_changes_nothing(head):
  """This is how steps whose loss is not finite are skipped."""
  parts, _, _ = two_batches()
  # Momentum of steps before would move rows.
  state, parameters = head.init(KEY, counts(), D), view_of(head).parameters
  grads = backward(head, state, *parts[0], KEY).grads
  zeroed = jax.tree.map(lambda g: jnp.where(False, g, 0), grads)
  for step in (head.update, functools.partial(update, head)):
    after = step(state, zeroed, 0.1, 1.0)
    for x, z in zip(parameters(after), parameters(state), strict=True):
      np.testing.assert_allclose(x, z, rtol=1e-6, atol=1e-6)
  of_both = update(head, state, accumulate([zeroed, grads]), 0.1, 1.0)
  alone = update(head, state, grads, 0.1, 1.0)
  for x, z in zip(parameters(of_both), parameters(alone), strict=True):
    np.testing.assert_allclose(x, z, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("head", [Sampled(optimizer=Adam()), Huffman(optimizer=Adam())])
def test_zeroed_gradient_moves_no_row_by_momentum(head):
  state = started(head)
  h_ND, y = batch(7)
  for _ in range(2):
    grads = backward(head, state, h_ND, y, KEY).grads
    state = update(head, state, grads, 0.1, 1.0)
  zeroed = jax.tree.map(jnp.zeros_like, grads)
  for step in (head.update, functools.partial(update, head)):
    after = step(state, zeroed, 0.1, 1.0)
    for x, z in zip(*map(view_of(head).parameters, (after, state)), strict=True):
      np.testing.assert_array_equal(x, z)
  inside = jax.jit(lambda state: head.update(state, zeroed, 0.1, 1.0))(state)
  for x, z in zip(*map(view_of(head).parameters, (inside, state)), strict=True):
    np.testing.assert_array_equal(x, z)


def test_lazy_rows_do_not_change_if_no_example_has_weight():
  head = Sampled(num_samples=M, optimizer=Adam())
  h_ND, y = batch(7)
  y = y._replace(ids_NP=y.ids_NP.at[:, 0].set(jnp.arange(N)))
  y = y._replace(w_NP=y.w_NP.at[-2:].set(0))
  state = started(head)
  grads = backward(head, state, h_ND, y, KEY).grads
  after = update(head, state, grads, 0.1, 1.0)
  touched = np.unique(np.asarray(grads.rows.ids_R))
  rest = np.setdiff1d(np.arange(V), touched)
  assert len(rest)
  np.testing.assert_array_equal(after.table.w_VD[rest], state.table.w_VD[rest])
  padded = y._replace(ids_NP=y.ids_NP.at[-2:].set(V))
  grads = backward(head, state, h_ND, padded, KEY).grads
  other = update(head, state, grads, 0.1, 1.0)
  np.testing.assert_allclose(after.table.w_VD, other.table.w_VD, atol=1e-6)


def test_refresh_does_not_change_the_model(head):
  state = started(head)
  h_ND, y = batch(3)
  fresh = jax.jit(head.refresh)(state, KEY)
  assert jax.tree.map(jnp.shape, fresh) == jax.tree.map(jnp.shape, state)
  a, b = evaluate(head, state, h_ND, y), evaluate(head, fresh, h_ND, y)
  assert a.keys() == b.keys()
  for metric in a:
    np.testing.assert_allclose(a[metric], b[metric], rtol=view_of(head).drift)
  assert np.isfinite(backward(head, fresh, h_ND, y, KEY).loss)


def test_training_improves_the_exact_metric(normalized_head):
  head = normalized_head
  h_ND, y = batch(10)
  state = head.init(jax.random.key(0), counts(), D)
  before = evaluate(head, state, h_ND, y)["nll"].mean()
  for seed in range(60):
    grads = backward(head, state, h_ND, y, jax.random.key(seed)).grads
    state = update(head, state, grads, 0.3, 1.0)
  assert evaluate(head, state, h_ND, y)["nll"].mean() < 0.75 * before


def test_only_normalised_heads_have_an_nll():
  metrics = {
    name: jax.eval_shape(head.evaluate, shapes(head), *batch())
    for name, head in CASES.items()
  }
  assert {name for name in CASES if "nll" not in metrics[name]} == WITHOUT_NLL


def test_probabilities_sum_to_one(normalized_head):
  head = normalized_head
  state = started(head)
  h_ND = jnp.repeat(batch(11)[0][:1], N, axis=0)
  in_parts = np.arange(-(-V // N) * N).reshape(-1, N) % V
  nll = [evaluate(head, state, h_ND, single_targets(ids))["nll"] for ids in in_parts]
  nll_V = np.concatenate(nll)[:V]
  np.testing.assert_allclose(np.exp(-nll_V).sum(), 1, rtol=1e-5)
  log_p_V = view_of(head).scores(head, state, h_ND)[0]
  np.testing.assert_allclose(-nll_V, log_p_V, rtol=1e-4, atol=1e-5)


def test_relabelled_classes_give_permuted_results(head):
  state = started(head)
  h_ND, y = batch(12)
  new_V = np.random.default_rng(2).permutation(V)  # class c becomes new_V[c]
  moved = view_of(head).relabelled(state, new_V)
  moved_y = y._replace(ids_NP=jnp.asarray(new_V)[y.ids_NP])
  a, b = evaluate(head, state, h_ND, y), evaluate(head, moved, h_ND, moved_y)
  for metric in a:
    np.testing.assert_allclose(a[metric], b[metric], rtol=1e-5, atol=1e-6)
  (ids_NK, _), (moved_NK, _) = top_k(head, state, h_ND, 4), top_k(head, moved, h_ND, 4)
  np.testing.assert_array_equal(new_V[ids_NK], moved_NK)


def test_top_k_equals_dense_sorting(head):
  state = started(head)
  h_ND, _ = batch(13)
  ids_NK, score_NK = top_k(head, state, h_ND, 4)
  want_NK, want_ids_NK = jax.lax.top_k(view_of(head).scores(head, state, h_ND), 4)
  np.testing.assert_array_equal(ids_NK, want_ids_NK)
  np.testing.assert_allclose(score_NK, want_NK, rtol=1e-4, atol=1e-5)


def test_nan_activation_reaches_the_loss_and_its_example_only(head):
  (h_ND, y), state = batch(), started(head)
  broken_ND = h_ND.at[1, 2].set(jnp.nan)
  assert np.isfinite(backward(head, state, h_ND, y, KEY).loss)
  assert np.isnan(backward(head, state, broken_ND, y, KEY).loss)
  want, got = (evaluate(head, state, h, y) for h in (h_ND, broken_ND))
  for name in want:
    want_N = np.where(np.arange(N) == 1, np.nan, want[name])
    np.testing.assert_allclose(got[name], want_N, rtol=1e-6, err_msg=name)


def test_top_k_of_an_example_with_a_nan(head):
  state = started(head)
  h_ND, _ = batch(13)
  broken_ND = h_ND.at[0, 1].set(jnp.nan).at[3].set(jnp.nan)
  (ids_NK, score_NK), want = (top_k(head, state, x, 4) for x in (broken_ND, h_ND))
  assert ((ids_NK >= 0) & (ids_NK < V)).all()
  assert all(len(set(ids_K)) == 4 for ids_K in ids_NK.tolist())
  np.testing.assert_array_equal(
    np.isnan(score_NK).all(axis=1), np.isin(range(N), [0, 3])
  )
  sound = np.array([1, 2, 4, 5])
  np.testing.assert_array_equal(ids_NK[sound], want[0][sound])
  np.testing.assert_array_equal(score_NK[sound], want[1][sound])


@pytest.mark.parametrize("k", [0, V + 1])
def test_top_k_of_too_many_classes_is_refused(head, k):
  with pytest.raises(ValueError, match="k must be in 1"):
    jax.eval_shape(lambda state: head.top_k(state, batch()[0], k), shapes(head))


@pytest.mark.parametrize("size", [0.0, 1e4])
def test_extreme_activations_stay_finite(head, size):
  state = started(head)
  h_ND, y = batch(14)
  out = backward(head, state, size * jnp.sign(h_ND), y, KEY)
  view = view_of(head)
  grads = view.dense(out.grads, view.parameters(state))
  metrics = evaluate(head, state, size * h_ND, y)
  leaves = [out.loss, out.dh_ND, out.sq_norm, *grads, *metrics.values()]
  assert all(bool(jnp.isfinite(leaf).all()) for leaf in leaves)


FEW = (2, 1), (1, N)


# Of one class the laws of all samplers are in tests/samplers/contract_test.py.
@pytest.mark.parametrize(
  ("name", "num_classes", "num"),
  others_long(
    [(name, *of) for name in CASES for of in FEW],
    [(name, *FEW[i % 2]) for i, name in enumerate([*OF_EACH_CLASS, NOISE])],
  ),
)
def test_very_few_classes_and_one_example(name, num_classes, num):
  head = CASES[name]
  tokens = np.arange(20, dtype=np.int32) % num_classes
  if isinstance(head, Sampled):  # no more can be frequent than there are
    most = min(head.exact_frequent, num_classes)
    head = dataclasses.replace(head, exact_frequent=most)
  state = head.init(KEY, Counts(np.bincount(tokens), tokens), D)
  h_ND, y = batch(16, num)
  y = y._replace(ids_NP=y.ids_NP % num_classes, context_N=jnp.zeros_like(y.context_N))

  @jax.jit
  def step(state, h_ND, y):
    out = head.backward(state, h_ND, y, KEY)
    state = head.update(state, out.grads, 0.1, 1.0)
    return out.loss, out.dh_ND, head.evaluate(state, h_ND, y)

  loss, dh_ND, metrics = step(state, h_ND, y)
  assert np.isfinite(loss)
  assert dh_ND.shape == (num, D)
  assert np.isfinite(dh_ND).all()
  assert all(np.isfinite(metric).all() for metric in metrics.values())
  if num_classes == 1:
    np.testing.assert_allclose(metrics.get("nll", 0), 0, atol=1e-6)
    exact = (
      Full,
      SampledSoftmax,
      BlackOut,
      UpperBound,
      Adaptive,
      DSoftmax,
      Hierarchical,
      Huffman,
    )
    if isinstance(method(head), exact):
      np.testing.assert_allclose(loss, 0, atol=1e-6)


READERS = {
  "backward": lambda head, state, h, y: head.backward(state, h, y, KEY),
  "evaluate": lambda head, state, h, y: head.evaluate(state, h, y),
  "monitor": lambda head, state, h, y: head.monitor(state, h, y, KEY),
  "top_k": lambda head, state, h, y: head.top_k(state, h, 2),
  "head_loss": lambda head, state, h, y: head_loss(head)({}, state, h, y, KEY),
}


def readers(head):
  """The methods that read activations."""
  watches = isinstance(head, Sampled | Spherical)
  return [read for name, read in READERS.items() if watches or name != "monitor"]


@pytest.mark.parametrize("name", OF_EACH_KIND)
@pytest.mark.parametrize(
  ("h_ND", "says"),
  [
    (jnp.ones((N, 4)), "h_ND has 4 columns, .* dim=5: .* dim=4"),
    (jnp.ones((N, 7)), "h_ND has 7 columns, .* dim=5: .* dim=7"),
    (jnp.ones((N, 8)), "h_ND has 8 columns, but the head was made for dim=5"),
    (jnp.ones((0, D)), "h_ND has no rows: pass at least one"),
    (jnp.ones((N, D), complex), "h_ND is complex64: pass activations of a float type"),
    (jnp.ones((N, D), int), "h_ND is int32: pass"),
    ([[1.0] * D] * N, "h_ND is of type list: pass an array"),
    (jnp.ones(D), r"h_ND has shape \(5,\)"),
  ],
  ids=lambda x: x if isinstance(x, str) else "h",
)
def test_unsuitable_activations_are_named(name, h_ND, says):
  head = CASES[name]
  for read in readers(head):
    with pytest.raises(ValueError, match=says):
      read(head, shapes(head), h_ND, batch()[1])


@pytest.mark.parametrize("name", others_long(["adaptive", "full"], ["full"]))
def test_numpy_activations_give_the_same_results_as_jax_arrays(name):
  head, (h_ND, y) = CASES[name], batch()
  for read in readers(head):
    got, want = (read(head, started(head), h, y) for h in (np.asarray(h_ND), h_ND))
    jax.tree.map(np.testing.assert_array_equal, got, want)


@pytest.mark.parametrize("name", OF_EACH_KIND)
def test_labels_instead_of_targets_are_named(name):
  head, h_ND = CASES[name], batch()[0]
  for read in ("backward", "evaluate", "head_loss"):
    with pytest.raises(UserError, match=r"y is of type \w+: pass Targets"):
      READERS[read](head, shapes(head), h_ND, jnp.zeros(N, int))


@pytest.mark.parametrize("name", OF_EACH_KIND)
@pytest.mark.parametrize("dim", [-1, 0, 2.5, None])
def test_invalid_width_of_activations_is_named(name, dim):
  with pytest.raises(UserError, match=f"Activations.dim is {dim}; it must be"):
    CASES[name].init(KEY, counts(), dim)


def test_mismatched_shapes_are_named(head):
  h_ND, y = batch()
  with pytest.raises(ValueError, match=rf"ids_NP .* \({N}, 1\), but N = {N - 1} in"):
    head.backward(started(head), h_ND[:-1], y, KEY)


# Laws of short rows are in tests/samplers/contract_test.py.
SHORT_ROWS = others_long(
  of_each_kind([name for name, head in CASES.items() if hasattr(head, "optimizer")]),
  ["full", "sampled, |o|, no bias, adagrad", "adaptive", "hierarchical"],
)


def with_short_rows(head):
  optimizer = dataclasses.replace(head.optimizer, row_dtype="bfloat16")
  return dataclasses.replace(head, optimizer=optimizer)


def in_float32(tree):
  """A tree with its bfloat16 leaves as float32."""
  wide = lambda x: x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x
  return jax.tree.map(wide, tree)


def tables_of(state):
  is_table = lambda x: isinstance(x, Table)
  return [x for x in jax.tree.leaves(state, is_leaf=is_table) if is_table(x)]


def assert_close(got, want, **how):
  assert kinds(got) == kinds(want)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **how), got, want)


@pytest.mark.parametrize("name", SHORT_ROWS)
def test_bfloat16_rows_are_rounded_float32_rows(name):
  """At the same numbers, everything is as with rows of float32: loss, gradients, law,
  metrics, best classes. Only learned log-partition functions are not short."""
  head = CASES[name]
  short = with_short_rows(head)
  state = started(short)
  for table in tables_of(state):
    is_short = table is not getattr(state, "log_z", None)
    assert table.w_VD.dtype == (jnp.bfloat16 if is_short else jnp.float32)
    assert all(slot.dtype != jnp.bfloat16 for slot in table.slots.values())
  num_short = sum(x.dtype == jnp.bfloat16 for x in jax.tree.leaves(state))
  assert 0 < num_short <= len(tables_of(state))

  (h_ND, y), wide = batch(7), in_float32(state)
  y = with_padding(y) if name.startswith("huffman") else multi_label(y)
  got, want = backward(short, state, h_ND, y, KEY), backward(head, wide, h_ND, y, KEY)
  assert_close(got, want, rtol=1e-5, atol=1e-6)
  assert not any(x.dtype == jnp.bfloat16 for x in jax.tree.leaves(got))
  ids_R = jnp.arange(V)
  got, want = class_rows(short, state, ids_R), class_rows(head, wide, ids_R)
  assert_close(got, want, rtol=1e-6)
  y = batch(7)[1]
  got, want = evaluate(short, state, h_ND, y), evaluate(head, wide, h_ND, y)
  assert_close(got, want, rtol=1e-5, atol=1e-6)
  for h in (h_ND, h_ND.astype(jnp.bfloat16)):
    got, want = top_k(short, state, h, 4), top_k(head, wide, jnp.float32(h), 4)
    assert_close(got[1], want[1], rtol=1e-5, atol=1e-6)
  got, want = monitor(short, state, h_ND, y, KEY), monitor(head, wide, h_ND, y, KEY)
  assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", SHORT_ROWS)
def test_steps_with_bfloat16_rows_are_close_to_float32(name):
  """Statistics too: those that steps bring up to date are those of the rounded rows."""
  head = CASES[name]
  short = with_short_rows(head)
  states = {each: each.init(jax.random.key(0), counts(), D) for each in (head, short)}
  first = kinds(states[short])
  losses = {head: [], short: []}
  for seed in range(4):
    for each, state in states.items():
      h_ND, y = batch(seed)
      out = backward(each, state, h_ND, with_padding(y), jax.random.key(seed))
      states[each] = update(each, state, out.grads, 0.05, 1.0)
      losses[each].append(float(out.loss))
  assert kinds(states[short]) == first
  assert np.isfinite(losses[short]).all()
  np.testing.assert_allclose(losses[short], losses[head], rtol=0.02, atol=0.02)
  for got, want in zip(*map(tables_of, (states[short], states[head])), strict=True):
    got_VD = np.asarray(got.w_VD, np.float32)
    np.testing.assert_allclose(got_VD, want.w_VD, rtol=0.05, atol=0.01)
  if not isinstance(head, Sampled):
    return
  (h_ND, y), state = batch(9), states[short]
  x_ND, w_VD = head.features(h_ND), in_float32(state.table.w_VD)
  law = jax.jit(
    lambda stats, w_VD: head.sampler.log_expected(stats, w_VD, x_ND, y, jnp.arange(V))
  )
  of_rows = law(state.stats, state.table.w_VD)
  np.testing.assert_allclose(of_rows, law(state.stats, w_VD), rtol=1e-6, atol=1e-6)
  if isinstance(head.sampler, TwoStage) and not getattr(head.sampler, "centred", False):
    anew = jax.jit(head.sampler.refresh)(state.stats, w_VD, KEY)
    np.testing.assert_allclose(of_rows, law(anew, w_VD), rtol=1e-4, atol=1e-5)
