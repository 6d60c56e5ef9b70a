"""The law of positive random features: judged by the sampler report, not built."""

from collections.abc import Callable

import jax
import numpy as np

from largevocab.labels import Targets

CLASSES = 8192  # whose random features are held at a time


def random_feature_law(
  w_VD: jax.Array,
  absolute: bool,
  scale: float,
  num_features: int = 1024,
  seed: int = 0,
) -> Callable[[jax.Array, Targets], np.ndarray]:
  """q(c | x) proportional to <phi(x), phi(w_c)>: positive random features.

  phi(x) = exp(R x - |x|^2 / 2) / sqrt(F), rows of R orthogonal and as long as Gaussian
  ones, so that E <phi(x), phi(w)> = exp(<x, w>). x is taken times `scale` and w over
  it, which changes nothing but the variance: that grows with the exponential of either
  squared length. For absolute logits phi(x) + phi(-x) takes the place of phi(x).

  Source: Choromanski et al. 2021 (FAVOR+), lemma 1 and section 2.4; Rawat et al. 2019
    for such laws as samplers. Here they are enumerated, at O(V F D) for each chunk.
  """
  rows_VD = np.asarray(w_VD, np.float64)
  dim = rows_VD.shape[1]
  rng = np.random.default_rng(seed)
  blocks = -(-num_features // dim)
  q_KDD, r_KDD = np.linalg.qr(rng.normal(size=(blocks, dim, dim)))
  # Without these signs the rotations would not be uniform.
  q_KDD = q_KDD * np.sign(np.diagonal(r_KDD, axis1=1, axis2=2))[:, None, :]
  lengths_F = np.sqrt(rng.chisquare(dim, num_features))
  r_FD = q_KDD.reshape(-1, dim)[:num_features] * lengths_F[:, None]
  half_norm = lambda a_ND: (a_ND**2).sum(axis=1, keepdims=True) / 2

  def law(x_ND: jax.Array, y: Targets) -> np.ndarray:
    # What multiplies a whole row of phi(x) is lost to the normalisation of q.
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
