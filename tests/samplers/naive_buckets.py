"""Naive references of the samplers by buckets, in float64, one example at a time."""

import math

import jax
import numpy as np

from largevocab.samplers import SCE
from largevocab.samplers.buckets import _SEED


def chosen(sampler, w_VD, h_ND, y, m, updates=0):
  """The candidates of each example after so many updates: a list of sets."""
  key = jax.random.fold_in(jax.random.key(_SEED), updates)
  args = np.float64(w_VD), np.float64(h_ND), np.asarray(y.ids_NP)
  live_N = np.asarray(y.w_NP).any(axis=1)
  by = _sce if isinstance(sampler, SCE) else _rece
  return by(sampler, key, *args, live_N, m)


def sce_buckets(sampler, key, w_VD, h_ND, live_N, m):
  """The examples and the classes of each bucket."""
  N, D = h_ND.shape
  num = sampler.buckets or int(2 * math.sqrt(N))
  size = min(sampler.examples or int(2 * math.sqrt(N)), N)
  if sampler.mix:
    g_NB = [jax.random.normal(jax.random.fold_in(key, n), (num,)) for n in range(N)]
    z_BD = np.float64(g_NB)[live_N].T @ h_ND[live_N]
  else:
    z_BD = np.float64(jax.random.normal(key, (num, D)))
  for z_D in z_BD:
    best = sorted(np.flatnonzero(live_N), key=lambda n: -(h_ND[n] @ z_D))[:size]
    yield best, np.argsort(-(w_VD @ z_D), kind="stable")[:m].tolist()


def _sce(sampler, key, w_VD, h_ND, ids_NP, live_N, m):
  chosen, best = [set() for _ in h_ND], np.full(len(h_ND), -np.inf)
  for examples, classes in sce_buckets(sampler, key, w_VD, h_ND, live_N, m):
    for n in examples:
      false = [c for c in classes if c not in ids_NP[n]]
      total = np.exp(w_VD[false] @ h_ND[n]).sum()
      if total > best[n]:
        best[n], chosen[n] = total, {*classes}
  return chosen


def rece_occurrences(sampler, key, w_VD, h_ND, live_N, m):
  """The candidates of each example, with repetitions over rounds: a list of lists."""
  around = 2 * sampler.neighbours + 1
  N, V = len(h_ND), len(w_VD)
  num = sampler.buckets or int(math.sqrt(4 * around * min(N, V)))
  size = m // (sampler.rounds * around)
  chunks = -(-V // size)
  found = [[] for _ in h_ND]
  for key_of_round in jax.random.split(key, sampler.rounds):
    r_BD = np.float64(jax.random.normal(key_of_round, (num, h_ND.shape[1])))

    def place(v_D):
      return np.argmax(r_BD @ v_D), -np.max(r_BD @ v_D)  # noqa: B023

    classes = sorted(range(V), key=lambda c: place(w_VD[c]))
    examples = sorted(np.flatnonzero(live_N), key=lambda n: place(h_ND[n]))
    for i, n in enumerate(examples):
      chunk = i * chunks // len(examples)
      start = max(chunk - sampler.neighbours, 0) * size
      found[n] += classes[start : (chunk + sampler.neighbours + 1) * size]
  return found


def _rece(sampler, key, w_VD, h_ND, ids_NP, live_N, m):
  return [*map(set, rece_occurrences(sampler, key, w_VD, h_ND, live_N, m))]
