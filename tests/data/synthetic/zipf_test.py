import numpy as np
import pytest

from largevocab.data import DATASETS
from largevocab.errors import UserError

Zipf = DATASETS["zipf"]
SMALL = {"num_classes": 12, "num_tokens": 40_000, "rank": 3}


@pytest.fixture(scope="module")
def corpus():
  return Zipf(**SMALL).load()


@pytest.fixture(scope="module")
def follows(chi_square):
  """Whether the successors of each of 12 tokens follow the law of this token."""

  def all_follow(tokens, prob_VV):
    after = [tokens[1:][tokens[:-1] == token] for token in range(12)]
    return min(map(chi_square, after, prob_VV)) > 1e-4 / 12

  return all_follow


def test_text_follows_the_true_law(corpus, follows):
  prob_VV = np.exp(corpus.true_log_prob(np.arange(12)))
  assert follows(corpus.train, prob_VV)


def test_another_law_is_rejected(corpus, follows):
  unigram_VV = np.tile(corpus.vocabulary.counts_V / 40_000, (12, 1))
  assert not follows(corpus.train, unigram_VV)
  prob_VV = np.exp(Zipf(**SMALL, seed=1).load().true_log_prob(np.arange(12)))
  assert not follows(corpus.train, prob_VV)


def test_second_order_statistics_follow_the_chain(corpus, follows):
  """Boundaries of sentences, which the sampler joins, are part of the chain, too."""
  prob_VV = np.exp(corpus.true_log_prob(np.arange(12)))
  eos = corpus.vocabulary.eos
  after_eos = corpus.train[1:][corpus.train[:-1] == eos]
  # Words after successive <eos> are independent.
  assert follows(after_eos, np.tile(prob_VV[eos], (12, 1)))


def test_true_log_prob_equals_the_formula(corpus):
  language = corpus.language
  log_prob_NV = corpus.true_log_prob(np.array([3, 0]))
  assert log_prob_NV.dtype == np.float64
  weights_V = np.exp(language.log_base_V + language.v_VE @ language.u_VE[3])
  np.testing.assert_allclose(np.exp(log_prob_NV[0]), weights_V / weights_V.sum())
  rank_V = [
    {"<eos>": 1, "<unk>": 2}.get(w) or int(w[1:]) for w in corpus.vocabulary.words
  ]
  np.testing.assert_allclose(language.log_base_V, -np.log(rank_V))


def test_classes_are_ordered_by_training_count(corpus):
  counts_V = np.bincount(corpus.train, minlength=12)
  np.testing.assert_array_equal(counts_V, corpus.counts.unigram_V)
  assert (np.diff(counts_V) <= 0).all()


def test_same_seed_gives_the_same_text(corpus):
  again = Zipf(**SMALL).load()
  np.testing.assert_array_equal(corpus.train, again.train)
  np.testing.assert_array_equal(corpus.test, again.test)


def test_splits_have_the_right_sizes_and_types():
  corpus = Zipf(num_classes=30, num_tokens=17).load()
  assert [len(s) for s in (corpus.train, corpus.valid, corpus.test)] == [17, 1, 1]
  assert corpus.train.dtype == corpus.valid.dtype == np.int32
  assert len(corpus.vocabulary) == 30


def test_zero_coupling_and_exponent_give_a_uniform_law():
  corpus = Zipf(num_classes=4, num_tokens=10, exponent=0.0, coupling=0.0).load()
  np.testing.assert_allclose(corpus.true_log_prob(np.arange(4)), -np.log(4))


@pytest.mark.parametrize(
  "wrong", [{"num_classes": 1}, {"num_tokens": 0}, {"coupling": -1.0}, {"seed": -1}]
)
def test_invalid_settings_are_named(wrong):
  (name,) = wrong
  with pytest.raises(UserError, match=f"^Zipf.{name} is .*must be at least"):
    Zipf(**wrong)
