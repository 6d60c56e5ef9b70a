from collections import Counter

import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.labels import Counts
from largevocab.ops.draws.strata import UNIT
from largevocab.samplers import Bigram
from largevocab.samplers.bigram import count_pairs, row_lengths

TOKENS = np.random.default_rng(0).integers(0, 7, 1000).astype(np.uint16)


@pytest.mark.parametrize("chunk", [1, 7, 999, 1000, 10_000])
def test_pairs_are_counted_across_chunks(chunk):
  tokens = TOKENS[:60] if chunk == 1 else TOKENS
  codes_P, counts_P = count_pairs(tokens, 7, chunk)
  pairs = Counter(zip(tokens[:-1].tolist(), tokens[1:].tolist(), strict=True))
  assert {(c // 7, c % 7): n for c, n in zip(codes_P, counts_P, strict=True)} == pairs
  assert (np.diff(codes_P) > 0).all()


def test_rows_sum_exactly_and_lose_no_pair():
  counts_P = np.array([1, 2_000_000_000, 3, 1, 1, 1])
  length_P = row_lengths(counts_P, np.array([0, 3]))
  assert length_P[:3].sum() == length_P[3:].sum() == UNIT
  assert (length_P > 0).all()


def test_missing_tokens_are_refused():
  with pytest.raises(UserError, match="token stream"):
    Bigram().init(Counts(np.ones(3, np.int64)), jnp.zeros((3, 2)), 4)


@pytest.mark.parametrize("bad", [-1, 3])
def test_tokens_of_other_classes_are_refused(bad):
  counts = Counts(np.ones(3, np.int64), np.array([0, bad, 1]))
  with pytest.raises(UserError, match="there are 3 classes"):
    Bigram().init(counts, jnp.zeros((3, 2)), 4)
