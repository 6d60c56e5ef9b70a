"""Mixtures: the law of the union of both parts' draws, and unbiased sums."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import command_line, config
from largevocab.errors import UserError
from largevocab.heads import Cosine, Sampled
from largevocab.labels import Counts, single_targets
from largevocab.losses import NegativeSampling
from largevocab.samplers import SAMPLERS, LSHEmbedding, Mixture, Unigram
from largevocab.samplers.base import has_fixed_law, is_choice, keeps_up, rebuilds
from tests.long import others_long
from tests.samplers.compiled import log_expected, sample

V, N, D, M = 30, 2, 4, 9
RNG = np.random.default_rng(0)
TOKENS = np.minimum(RNG.zipf(1.5, 500) - 1, V - 2)  # the last class is not seen
COUNTS = Counts(np.bincount(TOKENS, minlength=V), TOKENS)
W_VD = jnp.asarray(RNG.normal(size=(V, D)), jnp.float32)
H_ND = jnp.asarray(RNG.normal(size=(N, D)), jnp.float32)
Y = single_targets([3, 1])
PAIRS = [
  ("unigram", "uniform"),
  ("pps", "uniform"),
  ("bernoulli", "pps"),
  ("bigram", "log_uniform"),
  ("softmax", "bernoulli"),
  ("block", "quadratic_prior"),
  ("lsh_embedding", "uniform"),
  ("top_k", "uniform"),
  ("sce", "uniform"),
  ("uniform", "ivf"),
]


def test_mean_over_all_draws_equals_the_sum():
  """Enumerates the outcomes of one and of two draws of each part."""
  count_V, z_V = np.array([5, 1, 0]), np.array([0.3, 2.0, 7.0])
  w_VD = jnp.zeros((3, D))
  q_V, u = (count_V + 1) / (count_V + 1).sum(), 1 / 3
  for share, sizes in ((0.5, (1, 1)), (0.6, (2, 1))):
    sampler = Mixture(share=share)
    m = sum(sizes)
    assert sampler.sizes(m) == sizes
    stats = sampler.init(Counts(count_V), w_VD, m)
    law = log_expected(sampler, stats, w_VD, H_ND, Y, jnp.arange(3))
    weight_V = np.exp(-np.float64(law))
    of_own_part = [1 / (sizes[0] * q_V), np.full(3, 1 / (sizes[1] * u))]
    mean = wrong = total = 0.0
    for drawn in itertools.product(range(3), repeat=m):
      by_first, by_second = drawn[: sizes[0]], drawn[sizes[0] :]
      p = np.prod(q_V[[*by_first]]) * u ** len(by_second)
      total += p
      mean += p * sum(z_V[c] * weight_V[c] for c in drawn)
      wrong += p * sum(z_V[c] * of_own_part[0][c] for c in by_first)
      wrong += p * sum(z_V[c] * of_own_part[1][c] for c in by_second)
    assert total == pytest.approx(1)
    assert mean == pytest.approx(z_V.sum(), rel=1e-6)
    assert wrong == pytest.approx(2 * z_V.sum(), rel=1e-6)  # weights of a part alone


@pytest.mark.parametrize(("first", "second"), others_long(PAIRS, PAIRS[2:6:2]))
def test_sums_over_classes_are_unbiased_for_any_two_parts(first, second):
  """Classes are also drawn as often as reported."""
  sampler = Mixture(first, second, share=0.6)
  stats = sampler.init(COUNTS, W_VD, M)
  times, z_V = 4000, jnp.exp(H_ND[0] @ W_VD.T)
  args = W_VD, H_ND, Y

  def one(key):
    draw = sampler.sample(stats, args[0], key, *args[1:])
    row = lambda x: x if x.ndim == 1 else x[0]
    ids, mask, log = row(draw.ids), row(draw.mask), row(draw.log_expected)
    z = jnp.sum(jnp.where(mask, z_V[ids] * jnp.exp(-log), 0))
    return z, jnp.zeros(V).at[ids].add(mask)

  z_T, count_TV = jax.jit(lambda k: jax.lax.map(one, k))(
    jax.random.split(jax.random.key(1), times)
  )
  z_T, count_TV = np.float64(z_T), np.float64(count_TV)
  error = z_T.std() / np.sqrt(times) + 1e-4
  assert abs(z_T.mean() - z_V.sum()) < 4.5 * error
  assert abs(z_T.mean() - z_V[:-3].sum()) > 4.5 * error  # of fewer classes
  law = log_expected(sampler, stats, *args, jnp.arange(V))
  law_V = np.exp(np.float64(law if law.ndim == 1 else law[0]))
  error_V = np.maximum(count_TV.std(axis=0), 0.01) / np.sqrt(times)
  assert (np.abs(count_TV.mean(axis=0) - law_V) < 5 * error_V).all()
  parts = [
    SAMPLERS[name]().init(COUNTS, W_VD, m) for name, m in ((first, M), (second, M))
  ]
  for name, of_part in zip((first, second), parts, strict=True):
    alone = log_expected(SAMPLERS[name](), of_part, *args, jnp.arange(V))
    alone_V = np.exp(np.float64(alone if alone.ndim == 1 else alone[0]))
    assert (np.abs(count_TV.mean(axis=0) - alone_V) > 5 * error_V).any()


def test_each_part_draws_its_share():
  sampler = Mixture("top_k", "uniform", share=0.6)
  stats = sampler.init(COUNTS, W_VD, M)
  ids_NM = sample(sampler, stats, W_VD, jax.random.key(0), H_ND, Y).ids
  best_NV = np.argsort(-np.float64(H_ND @ W_VD.T), axis=1)
  assert sampler.sizes(M) == (5, 4)
  np.testing.assert_array_equal(ids_NM[:, :5], best_NV[:, :5])
  np.testing.assert_array_equal(ids_NM[0, 5:], ids_NM[1, 5:])  # one for the batch


def test_statistics_follow_the_rows_like_those_of_a_part():
  sampler, alone = Mixture("lsh_embedding", "uniform", share=0.6), LSHEmbedding()
  stats, start = sampler.init(COUNTS, W_VD, M), alone.init(COUNTS, W_VD, 5)
  new_VD = -W_VD
  change = new_VD, jnp.arange(V), W_VD, new_VD
  updated, want = sampler.update(stats, *change), alone.update(start, *change)
  assert not jax.tree.all(jax.tree.map(np.array_equal, start, want))
  jax.tree.map(np.testing.assert_array_equal, updated.parts[0], want)
  law = lambda s, x: np.exp(log_expected(s, x, new_VD, H_ND, Y, jnp.arange(V)))
  np.testing.assert_allclose(law(sampler, updated), law(alone, want) + 4 / V, rtol=1e-5)
  key = jax.random.key(0)
  refreshed = sampler.refresh(updated, new_VD, key)
  want = alone.refresh(want, new_VD, jax.random.fold_in(key, 0))
  jax.tree.map(np.testing.assert_array_equal, refreshed.parts[0], want)


def test_traits_of_a_mixture_follow_from_its_parts():
  assert has_fixed_law(Mixture())
  assert not has_fixed_law(Mixture("softmax"))
  assert not keeps_up(Mixture("softmax"))
  assert keeps_up(Mixture("uniform", "quadratic"))
  assert rebuilds(Mixture("uniform", "quadratic"))
  assert not rebuilds(Mixture("uniform", "sce"))
  assert is_choice(Mixture("top_k", "sce"))
  assert not is_choice(Mixture("top_k", "uniform"))


def test_scores_become_probabilities_only_with_a_fixed_law():
  """Otherwise evaluation uses the learned scores."""
  h_ND, y = H_ND, Y
  for second, is_fixed in (("uniform", True), ("softmax", False)):
    head = Sampled(
      loss=NegativeSampling(), sampler=Mixture("unigram", second), num_samples=M
    )
    state = head.init(jax.random.key(0), COUNTS, D)
    assert (head.change(state) is not None) == is_fixed
    assert np.isfinite(head.evaluate(state, h_ND, y)["nll"]).all()
  sampler = Mixture()
  stats = sampler.init(COUNTS, W_VD, M)
  np.testing.assert_array_equal(
    sampler.log_expected_of_all(stats),
    sampler.log_expected(stats, W_VD, H_ND, Y, jnp.arange(V)),
  )
  m1, m2 = sampler.sizes(M)
  unigram = Unigram().init(COUNTS, W_VD, m1)
  want_V = np.exp(Unigram().log_expected_of_all(unigram)) + m2 / V
  law_V = np.exp(sampler.log_expected_of_all(stats))
  np.testing.assert_allclose(law_V, want_V, rtol=1e-5)


def test_parts_are_named_in_a_config():
  settings = config.experiment(
    data=config.part("data", "zipf"),
    model=config.part("model", "lstm"),
    head=config.head("sampled/mixture", sampler={"first": "pps"}),
    optimizer=config.part("optimizer", "sgd"),
  )
  flags = ["--config.head.sampler.second=softmax", "--config.head.sampler.share=0.25"]
  command_line.override(settings, ["main", *flags], known=[])
  sampler = config.build(settings).head.sampler
  assert sampler == Mixture("pps", "softmax", share=0.25)


@pytest.mark.parametrize("name", ["lsh_label", "mixture", "unigramm", ""])
def test_invalid_parts_are_refused(name):
  with pytest.raises(UserError, match=r"head\.sampler\.second is .*; it must be one"):
    Mixture(second=name)


def test_absolute_does_not_matter_for_samplers_by_counts():
  Sampled(sampler=Mixture(), absolute=True)
  with pytest.raises(UserError, match=r"head\.absolute is True"):
    Sampled(sampler=Mixture("quadratic", "uniform", absolute=False), absolute=True)
  Sampled(sampler=Mixture("bigram", "uniform"), absolute=True)  # a law of contexts


def test_cosine_logits_need_parts_that_do_not_follow_products():
  for first in ("bigram", "rf_softmax"):
    Sampled(sampler=Mixture(first, "uniform"), logits=Cosine(), bias=False)
  for first in ("quadratic", "sce"):
    with pytest.raises(UserError, match=r"head\.sampler follows <w, h>"):
      Sampled(sampler=Mixture(first, "uniform"), logits=Cosine(), bias=False)


def test_part_that_draws_from_the_batch_makes_the_mixture_do_so():
  assert Mixture("sce", "uniform").of_batches
  assert not Mixture().of_batches


def test_two_equal_parts_are_refused():
  with pytest.raises(UserError, match="are both 'uniform': name two"):
    Mixture("uniform", "uniform")
