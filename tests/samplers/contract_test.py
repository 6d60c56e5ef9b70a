"""Tests of every sampler. Each law is defined again here, naively, in float64."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm, poisson

from largevocab.errors import UserError
from largevocab.labels import Counts, single_targets
from largevocab.samplers import (
  CBNS,
  IVF,
  MIDX,
  PPS,
  RECE,
  SAMPLERS,
  SCE,
  Bernoulli,
  Bigram,
  Block,
  InBatch,
  LogUniform,
  LSHEmbedding,
  LSHLabel,
  Mixture,
  Quadratic,
  QuadraticPrior,
  Quartic,
  RFSoftmax,
  Softmax,
  TopK,
  Uniform,
  Unigram,
)
from largevocab.samplers.base import log_expected_at, log_expected_in_range
from largevocab.samplers.buckets import Buckets
from largevocab.samplers.lsh_tables import LSH
from largevocab.samplers.rf_softmax import _SEED as RF_SEED
from largevocab.samplers.static import StaticLaw
from largevocab.samplers.two_stage import TwoStage
from tests.kinds import kinds
from tests.long import others_long
from tests.samplers import naive_buckets, naive_lsh
from tests.samplers.compiled import init, log_expected, refresh, sample, update

V, N, D, M = 50, 3, 4, 12
KEY = jax.random.key(0)


def problem(num_classes=V, n=N, seed=0, scale=1.0):
  """Counts with zeros and ties, not sorted; a table; activations; targets."""
  rng = np.random.default_rng(seed)
  law_V = rng.permutation(1.0 / np.arange(1, num_classes + 1) ** 1.2)
  law_V[1 :: max(num_classes // 4, 2)] = 0
  tokens = rng.choice(num_classes, size=800, p=law_V / law_V.sum())
  unigram_V = np.bincount(tokens, minlength=num_classes)
  w_VD = scale * rng.normal(size=(num_classes, D)).astype("f")
  h_ND = rng.normal(size=(n, D)).astype("f")
  y = single_targets(jnp.asarray(rng.integers(0, num_classes, n)))
  context_N = rng.integers(0, num_classes, n)
  context_N[-1] = np.argmin(unigram_V)  # not seen, if any is not
  y = y._replace(context_N=jnp.asarray(context_N))
  return Counts(unigram_V, tokens), jnp.asarray(w_VD), jnp.asarray(h_ND), y


def uniform_law(sampler, counts, w_VD, h_ND, y):
  return np.full(len(w_VD), 1 / len(w_VD))


def log_uniform_law(sampler, counts, w_VD, h_ND, y):
  num_classes = len(w_VD)
  law_V = np.zeros(num_classes)
  by_count = sorted(range(num_classes), key=lambda c: (-counts.unigram_V[c], c))
  for rank, c in enumerate(by_count):
    law_V[c] = np.log((rank + 2) / (rank + 1)) / np.log(num_classes + 1)
  return law_V


def unigram_law(sampler, counts, w_VD, h_ND, y):
  weight_V = (counts.unigram_V + sampler.smoothing) ** sampler.power
  return (
    np.where(counts.unigram_V + sampler.smoothing > 0, weight_V, 0) / weight_V.sum()
  )


def bigram_law(sampler, counts, w_VD, h_ND, y):
  unigram_V = (counts.unigram_V + sampler.smoothing) / (
    counts.unigram_V + sampler.smoothing
  ).sum()
  law_NV = np.zeros((len(h_ND), len(w_VD)))
  for n, context in enumerate(np.asarray(y.context_N)):
    after = counts.tokens[1:][counts.tokens[:-1] == context]
    count_V = np.bincount(after, minlength=len(w_VD))
    trust = len(after) / max(len(after) + len(set(after)), 1)
    law_NV[n] = trust * count_V / max(len(after), 1) + (1 - trust) * unigram_V
  return law_NV


def pps_law(sampler, counts, w_VD, h_ND, y):
  """Expected counts over M, by bisection on lam."""
  weight_V = unigram_law(sampler, counts, w_VD, h_ND, y)
  low, high = 0.0, 1e30
  drawn = min(M, np.count_nonzero(weight_V))
  for _ in range(400):
    lam = (low + high) / 2
    low, high = (
      (lam, high) if np.minimum(1, lam * weight_V).sum() < drawn else (low, lam)
    )
  return np.minimum(1, high * weight_V) / M


def bernoulli_law(sampler, counts, w_VD, h_ND, y):
  """Expected counts over M, by bisection on log lam, or on -alpha."""
  weight_V = counts.unigram_V + sampler.smoothing
  f_V = weight_V / weight_V.sum()
  low, high = -50.0, 50.0
  for _ in range(200):
    middle = (low + high) / 2
    if sampler.inclusion == "capped":
      b_V = np.minimum(1, np.exp(middle) * f_V)
    else:
      b_V = np.where(f_V > 0, f_V ** -min(middle, 0), 0)
    low, high = (middle, high) if (1 - f_V) @ b_V < M else (low, middle)
  return b_V / M


def softmax_law(sampler, counts, w_VD, h_ND, y):
  logits_NV = np.float64(h_ND) @ np.float64(w_VD).T
  logits_NV = np.abs(logits_NV) if sampler.absolute else logits_NV
  e_NV = np.exp(logits_NV - logits_NV.max(-1, keepdims=True))
  return e_NV / e_NV.sum(-1, keepdims=True)


def kernel_law(sampler, counts, w_VD, h_ND, y):
  weight_V = np.ones(len(w_VD))
  if sampler.power:
    weight_V = (counts.unigram_V + sampler.smoothing) ** sampler.power
  w_VD = np.float64(w_VD)
  if sampler.centred:
    w_VD = w_VD - weight_V @ w_VD / weight_V.sum()
  o_NV = np.float64(h_ND) @ w_VD.T + sampler.shift
  quartic = isinstance(sampler, Quartic)
  weight_NV = weight_V * (o_NV**4 + 1 if quartic else sampler.alpha * o_NV**2 + 1)
  return weight_NV / weight_NV.sum(-1, keepdims=True)


def block_law(sampler, counts, w_VD, h_ND, y):
  """Blocks of six by their moments or counts; the softmax within a block."""
  w_VD, h_ND = np.float64(w_VD), np.float64(h_ND)
  law_NV = np.zeros((len(h_ND), len(w_VD)))
  size = min(6, len(w_VD))
  for start in range(0, len(w_VD), size):
    rows = w_VD[start : start + size]
    o_NE = h_ND @ rows.T
    if sampler.mass == "unigram":
      mass_N = (counts.unigram_V + sampler.smoothing)[start : start + size].sum()
    else:
      mean_N, s_N = h_ND @ rows.mean(0), np.sqrt(h_ND**2 @ rows.var(0))
      e_N = np.exp(mean_N)
      if sampler.absolute:
        up_N, down_N = s_N + mean_N / s_N, s_N - mean_N / s_N
        e_N = e_N * norm.cdf(up_N) + np.exp(-mean_N) * norm.cdf(down_N)
      mass_N = len(rows) * e_N * np.exp(s_N**2 / 2)
    e_NE = np.exp(np.abs(o_NE) if sampler.absolute else o_NE)
    law_NV[:, start : start + size] = (
      np.broadcast_to(mass_N, len(h_ND))[:, None] * e_NE / e_NE.sum(-1, keepdims=True)
    )
  return law_NV / law_NV.sum(-1, keepdims=True)


def rf_law(sampler, counts, w_VD, h_ND, y):
  """Down a tree of equal blocks, by clipped sums of features; in them by the kernel."""
  h_ND, w_VD = np.float64(h_ND), np.float64(w_VD)
  num_classes, dim = w_VD.shape
  features = sampler.num_features // (2 if sampler.kind == "fourier" else 1)
  r_DK = np.float64(jax.random.normal(jax.random.key(RF_SEED), (dim, features)))
  unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)

  def phi(x):
    turn = np.sqrt(sampler.nu) * unit(x) @ r_DK
    if sampler.kind == "fourier":
      return np.concatenate([np.cos(turn), np.sin(turn)], axis=1) / np.sqrt(features)
    return np.exp(turn - sampler.nu) / np.sqrt(features)

  query_NF = phi(h_ND) + phi(-h_ND) if sampler.absolute else phi(h_ND)
  dot_NV, cos_NV = query_NF @ phi(w_VD).T, unit(h_ND) @ unit(w_VD).T
  k_NV = np.exp(sampler.nu * (np.abs(cos_NV) if sampler.absolute else cos_NV))
  size = min(sampler.leaf_size or num_classes, num_classes)
  blocks = 1 << (-(-num_classes // size) - 1).bit_length()
  size = -(-num_classes // blocks)

  def descend(first, last):  # of blocks
    at = slice(first * size, max(min(last * size, num_classes), first * size))
    if last - first == 1:
      return k_NV[:, at] / k_NV[:, at].sum(axis=1, keepdims=True)
    middle, mass = (first + last) // 2, []
    for a, b in ((first, middle), (middle, last)):
      num = max(min(b * size, num_classes) - a * size, 0)
      some_N = dot_NV[:, a * size : b * size].sum(axis=1)
      most = 2 * num if sampler.absolute else num
      mass.append(np.clip(some_N, num * np.exp(-2 * sampler.nu), most))
    left_N1 = (mass[0] / (mass[0] + mass[1]))[:, None]
    parts = left_N1 * descend(first, middle), (1 - left_N1) * descend(middle, last)
    return np.concatenate(parts, axis=1)

  return descend(0, blocks)


def lsh_law(sampler, counts, w_VD, h_ND, y):
  """From dictionaries of the rows, with the hash functions of a new sampler."""
  if sampler.exact:
    return pps_law(sampler, counts, w_VD, h_ND, y)
  stats = sampler.init(counts, w_VD, M)
  tables = naive_lsh.fill(
    stats.functions, stats.tables.factor_L, w_VD, sampler.codes, sampler.slots
  )
  unigram_V = unigram_law(sampler, counts, w_VD, h_ND, y)
  law_NV = np.zeros((len(h_ND), len(w_VD)))
  for n, h_D in enumerate(h_ND):
    if isinstance(sampler, LSHLabel):
      h_D = w_VD[y.ids_NP[n, 0]]
    found = naive_lsh.look_up(tables, stats.functions, h_D, sampler.codes)
    if sampler.draw == "fill":
      law_NV[n, naive_lsh.filled(found, y.ids_NP[n].tolist(), M)] = 1 / M
      continue
    law_NV[n] = naive_lsh.mixture(sampler, naive_lsh.law(found, len(w_VD)), unigram_V)
  return law_NV


def midx_law(sampler, counts, w_VD, h_ND, y):
  """The softmax of rows quantised with the codebooks of a new sampler."""
  stats = sampler.init(counts, w_VD, M)
  first, second, left = np.float64(stats.first_KA), np.float64(stats.second_KB), w_VD
  quantised_VD = np.zeros((len(w_VD), 0))
  if sampler.quantizer == "product":
    for book in (first, second):
      part_VE, left = left[:, : book.shape[1]], left[:, book.shape[1] :]
      quantised_VD = np.hstack([quantised_VD, nearest_word(part_VE, book)])
  else:
    quantised_VD = nearest_word(w_VD, first)
    quantised_VD = quantised_VD + nearest_word(w_VD - quantised_VD, second)
  o_NV = np.float64(h_ND) @ quantised_VD.T
  o_NV = np.abs(o_NV) if sampler.absolute else o_NV
  weight_V = np.ones(len(w_VD))
  if sampler.power:
    weight_V = unigram_law(sampler, counts, w_VD, h_ND, y)
  weight_NV = weight_V * np.exp(o_NV - o_NV.max(-1, keepdims=True))
  return weight_NV / weight_NV.sum(-1, keepdims=True)


def nearest_word(x_VE, book_KE):
  distance_VK = ((np.float64(x_VE)[:, None] - book_KE[None]) ** 2).sum(-1)
  return book_KE[distance_VK.argmin(1)]


def top_k_law(sampler, counts, w_VD, h_ND, y):
  """The M largest logits, each with probability one."""
  o_NV = np.float64(h_ND) @ np.float64(w_VD).T
  o_NV = np.abs(o_NV) if sampler.absolute else o_NV
  return (np.argsort(np.argsort(-o_NV)) < M) / M


def buckets_law(sampler, counts, w_VD, h_ND, y):
  """The classes of the first projections, each with probability one."""
  law_NV = np.zeros((len(h_ND), len(w_VD)))
  for n, chosen in enumerate(naive_buckets.chosen(sampler, w_VD, h_ND, y, M)):
    law_NV[n, sorted(chosen)] = 1 / M
  return law_NV


def mixture_law(sampler, counts, w_VD, h_ND, y):
  """Each part's share of the draws, by the law of its own case."""
  first, _ = sampler.sizes(M)
  laws = {"unigram": unigram_law, "uniform": uniform_law, "softmax": softmax_law}
  of = [laws[type(p).__name__.lower()](p, counts, w_VD, h_ND, y) for p in sampler.parts]
  return (first * of[0] + (M - first) * of[1]) / M


RF_TREE = {"nu": 1.5, "leaf_size": 7, "dense_levels": 0, "num_features": 16}
FILL = {"draw": "fill", "unigram_share": 0.0}
CASES = {
  "uniform": (Uniform(), uniform_law),
  "uniform per example": (Uniform(per_example=True), uniform_law),
  "log_uniform": (LogUniform(), log_uniform_law),
  "unigram": (Unigram(), unigram_law),
  "unigram per example": (Unigram(per_example=True, power=0.75), unigram_law),
  "unigram without smoothing": (Unigram(power=0.5, smoothing=0.0), unigram_law),
  "bigram": (Bigram(), bigram_law),
  "bigram without smoothing": (Bigram(smoothing=0.0), bigram_law),
  "pps": (PPS(), pps_law),
  "pps of roots": (PPS(power=0.5, smoothing=0.1), pps_law),
  "pps without smoothing": (PPS(smoothing=0.0), pps_law),
  "bernoulli": (Bernoulli(), bernoulli_law),
  "bernoulli, power": (Bernoulli(inclusion="power"), bernoulli_law),
  "bernoulli, power, without smoothing": (
    Bernoulli(inclusion="power", smoothing=0.0),
    bernoulli_law,
  ),
  "bernoulli per example": (Bernoulli(per_example=True, smoothing=0.1), bernoulli_law),
  "bernoulli, systematic": (Bernoulli(systematic=True), bernoulli_law),
  "bernoulli, systematic per example": (
    Bernoulli(inclusion="power", systematic=True, per_example=True),
    bernoulli_law,
  ),
  "ivf": (IVF(probes=2), pps_law),
  "ivf, |o|": (IVF(clusters=3, probes=1, absolute=True, power=0.5), pps_law),
  "ivf without smoothing": (IVF(smoothing=0.0), pps_law),
  "midx": (MIDX(codewords=4), midx_law),
  "midx, product": (MIDX(codewords=3, quantizer="product", absolute=True), midx_law),
  "midx of counts": (MIDX(codewords=3, power=0.75, smoothing=0.0), midx_law),
  "softmax": (Softmax(), softmax_law),
  "absolute softmax": (Softmax(absolute=True), softmax_law),
  "quadratic": (Quadratic(), kernel_law),
  "quadratic, tree": (Quadratic(leaf_size=4, dense_levels=0), kernel_law),
  "quadratic, cut": (Quadratic(leaf_size=3, dense_levels=2, shift=0.5), kernel_law),
  "quadratic, flat": (Quadratic(leaf_size=7, dense_levels=9), kernel_law),
  "quartic": (Quartic(), kernel_law),
  "quartic, tree": (Quartic(leaf_size=4, dense_levels=1), kernel_law),
  "quadratic_prior": (QuadraticPrior(), kernel_law),
  "quadratic, all coordinates": (Quadratic(leaf_size=4, rank=D), kernel_law),
  "quadratic_prior, cut": (QuadraticPrior(leaf_size=5, dense_levels=1), kernel_law),
  "rf_softmax": (RFSoftmax(), rf_law),
  "rf_softmax, tree": (RFSoftmax(**RF_TREE), rf_law),
  "rf_softmax, positive": (RFSoftmax(kind="positive", **RF_TREE), rf_law),
  "rf_softmax, |o|": (RFSoftmax(absolute=True, **RF_TREE), rf_law),
  "block": (Block(leaf_size=6), block_law),
  "block, absolute": (Block(leaf_size=6, absolute=True), block_law),
  "block of counts": (Block(leaf_size=6, mass="unigram"), block_law),
  "block, one": (Block(leaf_size=V), softmax_law),
  "lsh_embedding": (LSHEmbedding(codes=2, tables=6, slots=4), lsh_law),
  "lsh_label": (LSHLabel(codes=2, tables=6, slots=3, power=0.75), lsh_law),
  "lsh simhash": (
    LSHEmbedding(family="simhash", codes=3, tables=5, unigram_share=0.3),
    lsh_law,
  ),
  "lsh mips": (
    LSHEmbedding(family="mips", codes=3, tables=5, unigram_share=0.0),
    lsh_law,
  ),
  "lsh exact": (LSHEmbedding(codes=2, tables=6, exact=5), lsh_law),
  "lsh fill": (LSHEmbedding(family="simhash", codes=2, tables=9, **FILL), lsh_law),
  "lsh_label fill": (LSHLabel(family="simhash", codes=2, tables=9, **FILL), lsh_law),
  "top_k": (TopK(), top_k_law),
  "top_k, absolute": (TopK(absolute=True), top_k_law),
  "sce": (SCE(mix=False, buckets=4, examples=N), buckets_law),
  "rece": (RECE(neighbours=0), buckets_law),
  "mixture": (Mixture(), mixture_law),
  "mixture, own": (Mixture("softmax", "unigram", share=0.3), mixture_law),
}
# One of each sampler, but by hash tables one in all, and of even kernels a deep tree;
# other settings are `long`.
FIRST = {
  type(s): name
  for name, (s, _) in reversed(CASES.items())
  if not isinstance(s, (LSHLabel, Quadratic, Quartic))
}
FIRST = ["quadratic, tree", *FIRST.values()]


def of_cases(rows):
  """Parameters, from a row of them for each name."""
  marks = lambda name: () if name in FIRST else pytest.mark.long
  return [pytest.param(*row, id=name, marks=marks(name)) for name, row in rows.items()]


every_sampler = pytest.mark.parametrize(("sampler", "law"), of_cases(CASES))


def needs_counts(sampler) -> bool:
  if isinstance(sampler, Mixture):
    return any(map(needs_counts, sampler.parts))
  if isinstance(sampler, TwoStage):
    is_counting = getattr(sampler, "mass", None) == "unigram"
    return is_counting or getattr(sampler, "power", 0) > 0
  if isinstance(sampler, MIDX):
    return sampler.power > 0
  counting = (StaticLaw, Bigram, Bernoulli, PPS, IVF, LSH)
  return isinstance(sampler, counting) and not isinstance(sampler, Uniform)


def has_random_size(sampler) -> bool:
  """Whether a draw has its own capacity and a mask, instead of m entries."""
  return isinstance(sampler, Bernoulli)


def is_certain(sampler) -> bool:
  """Whether draws are not random."""
  is_filled = isinstance(sampler, LSH) and sampler.draw == "fill"
  return is_filled or isinstance(sampler, (TopK, Buckets))


def is_defined_by(state, sampler) -> bool:
  """Whether the law's definition, on the table of today, holds for these statistics."""
  if isinstance(sampler, LSH) and not sampler.exact:  # it has functions of its own
    return state == "new" or (state == "updated" and sampler.family != "mips")
  if isinstance(sampler, Buckets):  # an update brings other projections
    return state != "updated"
  if isinstance(sampler, MIDX):  # codebooks are those of the statistics
    return state == "new"
  if state in ("new", "refreshed"):
    return True
  if getattr(sampler, "centred", False):  # as of the last refresh
    return False
  if isinstance(sampler, RFSoftmax):  # it knows the lengths of the rows
    return state == "updated"
  if isinstance(sampler, TwoStage):
    return state == "updated" or not sampler.leaf_size
  return state == "updated" or not keeps_statistics_of_rows(sampler)


def of_ids(sampler) -> bool:
  """Whether the law changes if classes are relabelled."""
  return isinstance(sampler, (LSH, MIDX))


@cache
def keeps_statistics_of_rows(sampler) -> bool:
  """Whether statistics depend on the table."""
  counts, w_VD, _, _ = problem()
  here, there = initial(sampler), sampler.init(counts, 2 * w_VD, M)
  return not all(map(np.array_equal, jax.tree.leaves(here), jax.tree.leaves(there)))


@cache
def initial(sampler):
  """Statistics of the problem."""
  counts, w_VD, _, _ = problem()
  return sampler.init(counts, w_VD, M)


def enumerate_law(sampler, stats, w_VD, h_ND, y) -> np.ndarray:
  ids_V = jnp.arange(w_VD.shape[0])
  return np.exp(np.float64(log_expected(sampler, stats, w_VD, h_ND, y, ids_V)))


def test_ids_that_are_not_classes_are_never_expected():
  ids_NM = jnp.array([[2, 0], [3, -1], [2**31 - 1, 1]])
  got_NM = log_expected_at(jnp.array([0.0, -1.0, -2.0]), ids_NM)
  want_NM = [[-2, 0], [-np.inf, -np.inf], [-np.inf, -1]]
  np.testing.assert_array_equal(got_NM, want_NM)


def test_every_sampler_has_a_case():
  by_batch = {InBatch, CBNS}  # they have own tests: there is no chance given the labels
  tried = {type(sampler) for sampler, _ in CASES.values()}
  assert tried == set(SAMPLERS.values()) - by_batch


@every_sampler
def test_statistics_are_distinct_arrays_that_can_be_saved(sampler, law):
  counts, w_VD, h_ND, y = problem()
  stats = sampler.init(counts, w_VD, M)
  leaves = jax.tree.leaves(stats)
  assert all(isinstance(leaf, jax.Array) for leaf in leaves)
  pointers = [leaf.unsafe_buffer_pointer() for leaf in [*leaves, w_VD]]
  assert len(set(pointers)) == len(pointers)
  restored = jax.tree.map(lambda leaf: jnp.asarray(np.array(leaf)), stats)
  for a, b in zip(
    sample(sampler, stats, w_VD, KEY, h_ND, y),
    sample(sampler, restored, w_VD, KEY, h_ND, y),
    strict=True,
  ):
    if a is not None:
      np.testing.assert_array_equal(a, b)


@every_sampler
def test_draw_has_the_documented_shapes_and_types(sampler, law):
  _, w_VD, h_ND, y = problem()
  stats = initial(sampler)
  first, second = (
    sample(sampler, stats, table, jax.random.key(seed), h_ND, y)
    for seed, table in enumerate((w_VD, w_VD + 1))
  )
  drawn = [np.where(draw.mask, draw.ids, V) for draw in (first, second)]
  assert (drawn[0] != drawn[1]).any() or is_certain(sampler)

  shared = enumerate_law(sampler, stats, w_VD, h_ND, y).ndim == 1
  size = first.ids.shape[-1] if has_random_size(sampler) else M
  assert M <= size <= V
  assert first.ids.shape == second.ids.shape == ((size,) if shared else (N, size))
  assert first.ids.dtype == jnp.int32
  assert first.log_expected.shape == first.mask.shape == first.ids.shape
  assert first.log_expected.dtype == jnp.float32
  assert first.mask.dtype == jnp.bool_
  assert (first.ids >= 0).all()
  assert (first.ids < V).all()
  assert np.isfinite(first.log_expected).all()
  if first.exact_ids is not None:  # each at most once, or padding
    assert first.exact_ids.dtype == jnp.int32
    for exact_S in np.atleast_2d(first.exact_ids):
      assert np.bincount(exact_S, minlength=V + 1)[:V].max() == 1
      assert (exact_S <= V).all()
  np.testing.assert_allclose(
    first.log_expected,
    log_expected(sampler, stats, w_VD, h_ND, y, first.ids),
    rtol=1e-5,
    atol=1e-5,
  )
  in_rows = jnp.broadcast_to(first.ids, (N, size))
  of_rows = log_expected(sampler, stats, w_VD, h_ND, y, in_rows)
  assert of_rows.shape == (N, size)


# By example: ids that repeat, and ids that are no classes, in any order.
LAST = 2**31 - 1
MIXED_NM = np.array(
  [
    [V, 3, 3, 0, V + 1, LAST, -1, 3, V - 1, 3, V, 8],
    [V, V, LAST, -1, V, -V, -LAST, V, V, -1, V, V],
    [7, 0, V - 1, 7, V, 49, 1, 2, 7, -LAST, V, 0],
  ]
)


BY_RANGE = {n: c for n, c in CASES.items() if isinstance(c[0], (Uniform, TwoStage))}


@pytest.mark.parametrize(("sampler", "law"), of_cases(BY_RANGE))
def test_law_of_consecutive_classes_equals_that_of_their_ids(sampler, law):
  _, w_VD, h_ND, y = problem()
  stats = initial(sampler)
  law_NV = log_expected(sampler, stats, w_VD, h_ND, y, jnp.arange(V))
  args = sampler, stats, w_VD, h_ND, y
  in_range = jax.jit(
    lambda first, num: log_expected_in_range(*args, first, num), static_argnums=1
  )
  for first, num in [(0, V), (0, 7), (V - 7, 7), (V // 2, 7), (V // 3, 1)]:
    want = law_NV[..., first : first + num]
    np.testing.assert_allclose(in_range(first, num), want, rtol=1e-5, atol=1e-5)
  beyond = np.broadcast_to(in_range(V - 2, 7), (N, 7))
  np.testing.assert_array_equal(np.isneginf(beyond[:, 2:]), True)


@every_sampler
def test_padding_is_never_drawn_and_no_entry_depends_on_another(sampler, law):
  _, w_VD, h_ND, y = problem()
  stats = initial(sampler)
  law_NV = log_expected(sampler, stats, w_VD, h_ND, y, jnp.arange(V))
  is_shared, law_NV = law_NV.ndim == 1, np.broadcast_to(law_NV, (N, V))
  assert not np.isnan(law_NV).any()
  want_NM = np.take_along_axis(law_NV, np.clip(MIXED_NM, 0, V - 1), axis=1)
  want_NM = np.where((MIXED_NM >= 0) & (MIXED_NM < V), want_NM, -np.inf)
  for order in ([0, 1, 2], [1, 2, 0], [2, 1, 0]):
    order = np.array(order)
    of_order = jax.tree.map(lambda a: a[order], y)  # noqa: B023
    ids_NM = jnp.asarray(MIXED_NM[order], jnp.int32)
    args = sampler, stats, w_VD, h_ND[order], of_order
    got_NM = log_expected(*args, ids_NM)
    np.testing.assert_allclose(got_NM, want_NM[order], rtol=1e-5, atol=1e-5)
    others_NM = ids_NM.at[:, :4].set(V).at[:, 5:].set(9)
    got_N = log_expected(*args, others_NM)[:, 4]
    np.testing.assert_allclose(got_N, want_NM[order, 4], rtol=1e-5, atol=1e-5)
  ids_V = jnp.resize(jnp.array([V, 3, -1, 3]), V)
  got = log_expected(sampler, stats, w_VD, h_ND, y, ids_V)
  assert got.ndim == (1 if is_shared else 2)
  none_N = np.full(N, -np.inf)
  want_N4 = np.stack([none_N, law_NV[:, 3], none_N, law_NV[:, 3]], axis=1)
  got_N4 = np.broadcast_to(got, (N, V))[:, :4]
  np.testing.assert_allclose(got_N4, want_N4, rtol=1e-5, atol=1e-5)


@every_sampler
def test_law_equals_its_definition_also_after_the_table_changed(sampler, law):
  counts, w_VD, h_ND, y = problem()
  stats = initial(sampler)
  new_VD = w_VD + problem(seed=9)[1]
  ids_R = jnp.arange(V)
  updated = update(sampler, stats, new_VD, ids_R, w_VD, new_VD)
  refreshed = refresh(sampler, stats, new_VD, KEY)
  assert kinds(updated) == kinds(refreshed) == kinds(stats)  # nothing compiles anew
  for name, state, table in (
    ("new", stats, w_VD),
    ("stale", stats, new_VD),
    ("updated", updated, new_VD),
    ("refreshed", refreshed, new_VD),
  ):
    expected = enumerate_law(sampler, state, table, h_ND, y)
    definition = M * law(sampler, counts, table, h_ND, y)
    definition = np.broadcast_to(definition, expected.shape)
    np.testing.assert_allclose(expected.sum(-1), definition.sum(-1), rtol=1e-5)
    if is_defined_by(name, sampler):
      # The features of fourth powers cancel: some 100 units of the last place.
      rtol = 2e-5 if isinstance(sampler, Quartic) else 5e-6
      np.testing.assert_allclose(expected, definition, rtol=rtol, atol=1e-7)
    draw = sample(sampler, state, table, KEY, h_ND, y)
    reported = np.exp(np.float64(draw.log_expected))
    rows = np.broadcast_to(expected, (*reported.shape[:-1], V))
    at_ids = np.take_along_axis(rows, np.asarray(draw.ids), -1)
    np.testing.assert_allclose(reported, at_ids, rtol=2e-5)


# Of the others the laws depend on counts alone.
READ_ROWS = {
  name: case
  for name, case in CASES.items()
  if not isinstance(case[0], (StaticLaw, Bigram, Bernoulli, PPS))
}


OF_SHORT = ("softmax", "quadratic, tree", "block", "lsh_embedding")


@pytest.mark.parametrize("name", others_long(READ_ROWS, OF_SHORT))
def test_law_of_bfloat16_rows_is_that_of_the_rounded_rows(name):
  """In every state the law, the draw and the statistics are those of rows of float32
  with the same numbers; and the law is its definition."""
  (sampler, law), (counts, w_VD, h_ND, y) = CASES[name], problem()
  short, new = (jnp.bfloat16(w) for w in (w_VD, w_VD + problem(seed=9)[1]))
  wide, new_wide = jnp.float32(short), jnp.float32(new)
  ids_R, changes = jnp.arange(V), (wide, new_wide)
  states = []
  for old_VD, new_VD in ((short, new), (wide, new_wide)):
    stats = init(sampler, counts, old_VD, M)
    updated = update(sampler, stats, new_VD, ids_R, *changes)
    states.append([stats, updated, refresh(sampler, stats, new_VD, KEY)])
  for at, (got, want) in enumerate(zip(*states, strict=True)):
    assert kinds(got) == kinds(want)
    for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True):
      np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    rows, same = (new, new_wide) if at else (short, wide)
    of_rows = enumerate_law(sampler, got, rows, h_ND, y)
    as_wide = enumerate_law(sampler, want, same, h_ND, y)
    np.testing.assert_allclose(of_rows, as_wide, rtol=2e-5, atol=1e-7)
    if is_defined_by(("new", "updated", "refreshed")[at], sampler):
      definition = M * law(sampler, counts, same, h_ND, y)
      definition = np.broadcast_to(definition, of_rows.shape)
      np.testing.assert_allclose(of_rows, definition, rtol=2e-5, atol=1e-7)
    draw = sample(sampler, got, rows, KEY, h_ND, y)
    again = sample(sampler, want, same, KEY, h_ND, y)
    np.testing.assert_array_equal(draw.ids, again.ids)
    reported = np.exp(np.float64(draw.log_expected))
    laws = np.broadcast_to(of_rows, (*reported.shape[:-1], V))
    at_ids = np.take_along_axis(laws, np.asarray(draw.ids), -1)
    np.testing.assert_allclose(reported, at_ids, rtol=2e-5)


# Sets of distinct classes are no independent draws: pps_test.py and bernoulli_test.py
# have tests of their own.
def draws_a_set(sampler) -> bool:
  is_lsh = isinstance(sampler, LSH) and sampler.exact
  is_set = bool(is_lsh) or isinstance(sampler, (PPS, Bernoulli, IVF))
  return is_set or is_certain(sampler)


ONE_BY_ONE = {name: case for name, case in CASES.items() if not draws_a_set(case[0])}


@pytest.mark.parametrize(("sampler", "law"), of_cases(ONE_BY_ONE))
def test_draws_follow_the_law_and_the_test_would_notice(sampler, law, chi_square):
  counts, w_VD, h_ND, y = problem()
  m = 20_000
  stats = sampler.init(counts, w_VD, m)
  draw = sample(sampler, stats, w_VD, KEY, h_ND, y)
  expected = enumerate_law(sampler, stats, w_VD, h_ND, y)
  for ids_M, law_V in zip(
    np.atleast_2d(draw.ids), np.atleast_2d(expected / m), strict=True
  ):
    assert chi_square(ids_M, law_V) > 1e-4
    up_V = np.zeros(V, bool)
    up_V[np.argsort(-law_V)[::2]] = True
    wrong_V = law_V * np.where(
      up_V, 1 + 0.05 / law_V[up_V].sum(), 1 - 0.05 / law_V[~up_V].sum()
    )
    assert 0.049 < np.abs(wrong_V - law_V).sum() / 2 < 0.051
    assert chi_square(ids_M, wrong_V) < 1e-4


KEYS = 400


BY_CHANCE = {name: case for name, case in CASES.items() if not is_certain(case[0])}


@pytest.mark.parametrize(("sampler", "law"), of_cases(BY_CHANCE))
def test_each_key_and_each_example_has_its_own_draw(sampler, law):
  """Over many keys a class is drawn as often as expected, and by two examples that are
  alike as often at once as by independent ones."""
  _, w_VD, h_ND, y = problem()
  h_ND, y = jax.tree.map(lambda a: jnp.repeat(a[:1], N, axis=0), (h_ND, y))
  stats = initial(sampler)
  expected_NV = np.atleast_2d(enumerate_law(sampler, stats, w_VD, h_ND, y))
  count_KNV = np.zeros((KEYS, *expected_NV.shape))
  for count_NV, key in zip(count_KNV, jax.random.split(KEY, KEYS), strict=True):
    draw = sample(sampler, stats, w_VD, key, h_ND, y)
    for count_V, ids_M, mask_M in zip(
      count_NV, np.atleast_2d(draw.ids), np.atleast_2d(draw.mask), strict=True
    ):
      np.add.at(count_V, ids_M[mask_M], 1)
  # Counts of classes, and of the likelier half. A count has at most the tails of a
  # Poisson variable.
  half_V = expected_NV[0] >= np.median(expected_NV[0])
  with_half = lambda a_NV: np.append(a_NV, a_NV[0, half_V].sum())
  counts, means = with_half(count_KNV.sum(0)), with_half(KEYS * expected_NV)
  tails = lambda means: np.minimum(
    poisson.cdf(counts, means), poisson.sf(counts - 1, means)
  )
  limit = 1e-6 / len(counts)
  assert (tails(means) > limit).all()
  assert tails(0.85 * means)[-1] < limit
  assert tails(1.15 * means)[-1] < limit
  if len(expected_NV) == 1 or isinstance(sampler, Mixture):  # of which a part is shared
    return
  want = expected_NV[0] @ expected_NV[1]
  error = lambda other_KV: abs(errors_of_the_mean(count_KNV[:, 0], other_KV, want))
  assert error(count_KNV[:, 1]) < 5
  assert error(count_KNV[:, 0]) > 5


def errors_of_the_mean(count_KV, other_KV, want):
  """Distance of the mean number of common draws from another, in standard errors."""
  common_K = (count_KV * other_KV).sum(axis=1)
  return (common_K.mean() - want) / (common_K.std() / np.sqrt(len(common_K)))


# What a block holds depends on the order of the classes, slots on their ids, codebooks
# on the rows that they begin with.
def by_order(sampler, law) -> bool:
  return law in (block_law, rf_law) or of_ids(sampler)


IN_ANY_ORDER = {name: case for name, case in CASES.items() if not by_order(*case)}


@pytest.mark.parametrize(("sampler", "law"), of_cases(IN_ANY_ORDER))
def test_relabelling_the_classes_permutes_the_law(sampler, law):
  counts, w_VD, h_ND, y = problem()
  # Classes without counts tie in the ranking: keep their order.
  unseen = np.flatnonzero(counts.unigram_V == 0)
  new_id = np.random.default_rng(4).permutation(V)
  new_id[unseen] = np.sort(new_id[unseen])
  if isinstance(sampler, LogUniform):
    counts = replace(counts, unigram_V=counts.unigram_V * V + np.arange(V))
  expected = enumerate_law(sampler, sampler.init(counts, w_VD, M), w_VD, h_ND, y)
  old_id = np.argsort(new_id)
  permuted = Counts(counts.unigram_V[old_id], new_id[counts.tokens])
  y = y._replace(context_N=jnp.asarray(new_id)[y.context_N])
  stats = sampler.init(permuted, w_VD[old_id], M)
  again = enumerate_law(sampler, stats, w_VD[old_id], h_ND, y)
  np.testing.assert_allclose(again, expected[..., old_id], rtol=5e-6, atol=1e-7)


FEW = (1, 1, 7), (2, 3, 1)


@pytest.mark.parametrize(
  ("name", "num_classes", "n", "m"),
  others_long(
    [(name, *few) for name in CASES for few in FEW],
    [(name, *FEW[i % 2]) for i, name in enumerate(FIRST)],
  ),
)
def test_few_classes_and_more_draws_than_classes_are_valid(name, num_classes, n, m):
  sampler = CASES[name][0]
  counts, w_VD, h_ND, y = problem(num_classes, n)
  stats = init(sampler, counts, w_VD, m)
  ids_V = jnp.arange(num_classes)

  @jax.jit
  def draw_and_law(stats, w_VD, h_ND, y):
    draw = sampler.sample(stats, w_VD, KEY, h_ND, y)
    return draw, sampler.log_expected(stats, w_VD, h_ND, y, ids_V)

  for h in (h_ND, jnp.zeros_like(h_ND)):
    draw, log_expected = draw_and_law(stats, w_VD, h, y)
    expected = np.exp(np.float64(log_expected))
    possible = np.count_nonzero(np.atleast_2d(expected)[0])
    assert draw.ids.shape[-1] == (possible if has_random_size(sampler) else m)
    assert (draw.ids < num_classes).all()
    assert np.isfinite(draw.log_expected).all()
    size = np.asarray(draw.mask).sum(-1)
    np.testing.assert_allclose(expected.sum(-1), size, rtol=1e-5)


def assert_same(stats, others):
  for a, b in zip(*map(jax.tree.leaves, (stats, others)), strict=True):
    np.testing.assert_array_equal(a, b)


@every_sampler
def test_counts_that_are_all_zero_are_refused_if_needed(sampler, law):
  _, w_VD, _, _ = problem()
  counts = Counts(np.zeros(V, np.int64), np.zeros(9, np.int64))
  if not needs_counts(sampler):
    assert_same(sampler.init(counts, w_VD, M), initial(sampler))
  else:
    with pytest.raises(UserError, match="counts of all 50 classes are zero"):
      sampler.init(counts, w_VD, M)


@every_sampler
def test_counts_of_another_number_of_classes_are_refused(sampler, law):
  counts, w_VD, _, _ = problem()
  if needs_counts(sampler):
    with pytest.raises(UserError, match="counts of 50 classes for a table of shape"):
      sampler.init(counts, w_VD[1:], M)
  else:
    fewer = Counts(counts.unigram_V[1:], counts.tokens)
    stats = [sampler.init(given, w_VD[1:], M) for given in (counts, fewer)]
    assert_same(*stats)


@every_sampler
def test_draws_have_no_gradient(sampler, law):
  _, w_VD, h_ND, y = problem()
  stats = initial(sampler)

  def total(w_VD, h_ND):
    return sampler.sample(stats, w_VD, KEY, h_ND, y).log_expected.sum()

  for gradient in jax.jit(jax.grad(total, argnums=(0, 1)))(w_VD, h_ND):
    np.testing.assert_array_equal(gradient, 0)
