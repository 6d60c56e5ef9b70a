"""A proposal distribution by positive random features, for the sampler report only."""

from collections.abc import Callable

import jax
import numpy as np

from largevocab.labels import Targets

CLASSES = 8192  # number of classes per chunk


def random_feature_law(
  w_VD: jax.Array,
  absolute: bool,
  scale: float,
  num_features: int = 1024,
  seed: int = 0,
) -> Callable[[jax.Array, Targets], np.ndarray]:
  """q(c | x) proportional to <phi(x), phi(w_c)>: positive random features.

  phi(x) = exp(R x - |x|^2 / 2) / sqrt(F), where the rows of R are orthogonal and have
  the norms of Gaussian rows, so that E <phi(x), phi(w)> = exp(<x, w>). x is multiplied
  by `scale` and w is divided by it. This changes only the variance, which grows
  exponentially with either squared norm. For absolute logits, phi(x) is replaced by
  phi(x) + phi(-x).

  Source: Choromanski et al. 2021 (FAVOR+), lemma 1 and section 2.4; Rawat et al. 2019
    for sampling from such distributions. Here all classes are enumerated, at O(V F D)
    for each chunk.
  """
  rows_VD = np.asarray(w_VD, np.float64)
  dim = rows_VD.shape[1]
  rng = np.random.default_rng(seed)
  blocks = -(-num_features // dim)
  q_KDD, r_KDD = np.linalg.qr(rng.normal(size=(blocks, dim, dim)))
  # These signs make the rotations uniformly distributed.
  q_KDD = q_KDD * np.sign(np.diagonal(r_KDD, axis1=1, axis2=2))[:, None, :]
  lengths_F = np.sqrt(rng.chisquare(dim, num_features))
  r_FD = q_KDD.reshape(-1, dim)[:num_features] * lengths_F[:, None]
  half_norm = lambda a_ND: (a_ND**2).sum(axis=1, keepdims=True) / 2

  def law(x_ND: jax.Array, y: Targets) -> np.ndarray:
    # A factor of a whole row of phi(x) cancels when q is normalised.
    logs_NF = scale * np.asarray(x_ND, np.float64) @ r_FD.T
    top_N1 = np.abs(logs_NF).max(axis=1, keepdims=True)
    phi_NF = np.exp(logs_NF - top_N1)
    phi_NF = phi_NF + np.exp(-logs_NF - top_N1) if absolute else phi_NF
    log_q = []
    for start in range(0, len(rows_VD), CLASSES):
      w_CD = rows_VD[start : start + CLASSES] / scale
      logs_CF = w_CD @ r_FD.T - half_norm(w_CD)
      top_C1 = logs_CF.max(axis=1, keepdims=True)
      log_q.append(np.log(phi_NF @ np.exp(logs_CF - top_C1).T) + top_C1.T)
    log_q_NV = np.concatenate(log_q, axis=1)
    return np.exp(log_q_NV - log_q_NV.max(axis=1, keepdims=True))

  return law
