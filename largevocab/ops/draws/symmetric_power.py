"""Powers of inner products as inner products: feature maps of polynomial kernels.

<u, v>^p is a sum over products of p coordinates. Each product is kept once, in one
order of its factors: C(D + p - 1, p) features instead of D^p.

Here F is the number of features, and E the number of vectors that are summed.
"""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.ops.shapes import check_shapes


def num_features(dim: int, degree: int) -> int:
  """F = C(dim + degree - 1, degree).

  >>> num_features(16, 2), num_features(16, 4)
  (136, 3876)
  """
  return math.comb(dim + degree - 1, degree)


@functools.lru_cache
def factors(dim: int, degree: int) -> np.ndarray:
  """i32[F, degree], the coordinates that each feature multiplies, ascending.

  >>> factors(2, 2).tolist()
  [[0, 0], [0, 1], [1, 1]]
  """
  chosen = itertools.combinations_with_replacement(range(dim), degree)
  return np.array(list(chosen), np.int32).reshape(-1, degree)


@functools.lru_cache
def multiplicity(dim: int, degree: int) -> np.ndarray:
  """f32[F], number of distinct orders of the factors of each feature.

  >>> multiplicity(2, 2).tolist()
  [1.0, 2.0, 1.0]
  """
  count = lambda chosen: math.prod(
    math.factorial(len(list(same))) for _, same in itertools.groupby(chosen)
  )
  orders = math.factorial(degree)
  return np.array([orders / count(f) for f in factors(dim, degree)], np.float32)


def features(v_ND: jax.Array, degree: int) -> jax.Array:
  """psi(v), f32[N, F]: all products of `degree` coordinates.

  <query(u), features(v)> = <u, v>^degree, also for sums of features over many v.

  Cost: O(N F).

  >>> u, v = jnp.array([[1.0, 2.0]]), jnp.array([[3.0, 5.0]])
  >>> float(jnp.vdot(query(u, 2), features(v, 2)))
  169.0
  """
  dim = check_shapes(v_ND=v_ND)["D"]
  if degree == 1:
    return v_ND
  product = jnp.ones((), v_ND.dtype)
  for index_F in factors(dim, degree).T:
    product = product * v_ND[:, index_F]
  return product


def query(u_ND: jax.Array, degree: int) -> jax.Array:
  """phi(u), f32[N, F]: the features times their multiplicities."""
  dim = check_shapes(u_ND=u_ND)["D"]
  return features(u_ND, degree) * multiplicity(dim, degree).astype(u_ND.dtype)[None]


def moments(v_ED: jax.Array, weight_E: jax.Array, degree: int) -> jax.Array:
  """The weighted sum of features: sum over e of weight_e psi(v_e), f32[F].

  Args:
    v_ED: f32[E, D].
    weight_E: f32[E].
    degree: even, so that features of half the degree can be multiplied as matrices.

  Cost: O(E G^2) in a matrix product, with G features of half the degree.

  >>> moments(jnp.ones((3, 2)), jnp.ones(3), 2)
  Array([3., 3., 3.], dtype=float32)
  """
  dim = check_shapes(v_ED=v_ED, weight_E=weight_E)["D"]
  half = degree // 2
  half_EG = features(v_ED, half)
  product_GG = jnp.einsum(
    "eg,ef->gf",
    half_EG * weight_E[:, None],
    half_EG,
    precision=jax.lax.Precision.HIGHEST,
  )
  # A feature's ascending factors are a left and a right half, each a smaller feature.
  number = {tuple(f): i for i, f in enumerate(factors(dim, half).tolist())}
  halves = np.split(factors(dim, degree), 2, axis=1)
  left_F, right_F = ([number[tuple(f)] for f in side.tolist()] for side in halves)
  return product_GG[np.array(left_F), np.array(right_F)]
