"""How often hashes agree, and how often tables then retrieve: the theory, in float64.

Probabilities are over the hash functions. For given functions a table is what it is;
the law of a draw from it is in `ops/lsh/slot_tables.py`.
"""

from math import comb

import numpy as np


def winner_take_all(a_D: np.ndarray, b_D: np.ndarray, width: int = 8) -> float:
  """Probability that two vectors agree in a code, given that neither's bin is empty.

    p = sum over i of C(n_i, width - 1) / (C(D, width) P(neither is empty))

  Both have their largest coordinate at i if a_i and b_i are not zero and the other
  width - 1 come from the n_i coordinates that lie below in both; zeros are missing and
  lie below everything.

  Args:
    a_D, b_D: f64[D], without equal coordinates other than zeros.
    width: coordinates in a bin, up to D.

  Returns:
    p; nan if one of the vectors is zero.

  Source: Yagnik et al. 2011; Chen and Shrivastava 2018 for sparse vectors.
  Cost: O(D^2).

  >>> a_D = np.array([3.0, 1.0, 2.0])
  >>> winner_take_all(a_D, a_D, 2), round(winner_take_all(a_D, -a_D, 3), 3)
  (1.0, 0.0)
  """
  a_D, b_D = (np.where(x == 0, -np.inf, np.float64(x)) for x in (a_D, b_D))
  none_a_D, none_b_D = np.isinf(a_D), np.isinf(b_D)
  below_DD = (a_D[None] < a_D[:, None]) & (b_D[None] < b_D[:, None])
  agree = sum(
    comb(int(below_DD[i].sum()), width - 1)
    for i in np.flatnonzero(~none_a_D & ~none_b_D)
  )
  empty = [none_a_D, none_b_D, none_a_D & none_b_D]
  empty_a, empty_b, both = (comb(int(none_D.sum()), width) for none_D in empty)
  neither = comb(len(a_D), width) - empty_a - empty_b + both
  return agree / neither if neither else float("nan")


def simhash(a_D: np.ndarray, b_D: np.ndarray) -> float:
  """Probability that two vectors agree in a sign: 1 - angle / pi.

  Source: Goemans and Williamson 1995; Charikar 2002.

  >>> simhash(np.array([1.0, 0.0]), np.array([0.0, 2.0]))
  0.5
  """
  cosine = a_D @ b_D / (np.linalg.norm(a_D) * np.linalg.norm(b_D))
  return float(1 - np.arccos(np.clip(cosine, -1, 1)) / np.pi)


def mips(query_D: np.ndarray, row_D: np.ndarray, limit: float) -> float:
  """Probability that a query and a row agree in a sign of `sign_hashing.MIPS`.

  It grows with their inner product, whatever the norms. A row longer than `limit`
  counts as that long.

  >>> mips(np.array([2.0, 0.0]), np.array([0.0, 1.0]), limit=3.0)
  0.5
  """
  limit = max(limit, float(np.linalg.norm(row_D)))
  cosine = query_D @ row_D / (np.linalg.norm(query_D) * limit)
  return float(1 - np.arccos(np.clip(cosine, -1, 1)) / np.pi)


def retrieval(p: float, codes: int, tables: int) -> float:
  """Probability that two vectors share a bucket in at least one table.

    1 - (1 - p^codes)^tables

  Source: Daghaghi et al. 2021, theorems 1 and 2. It takes the codes of a table for
    independent, which winners of the same permutation are but roughly.

  >>> round(retrieval(0.5, codes=2, tables=2), 4)
  0.4375
  """
  return float(-np.expm1(tables * np.log1p(-(p**codes)))) if p < 1 else 1.0
