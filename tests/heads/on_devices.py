"""Trains heads on some of eight devices, in a process that has so many: see
`over_devices_test.py`. Prints a JSON line for each head.

  python -m tests.heads.on_devices 1,2,8 full sampled/pps
"""

import functools
import json
import math
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np

from largevocab import config
from largevocab.heads import OverDevices, class_mesh
from largevocab.labels import Counts, Targets
from largevocab.rows import Adagrad

V, D, N, P, M, STEPS, K = 203, 8, 22, 2, 64, 20, 7  # V and N divide by nothing
READ = ("full", "sampled/pps", "nce/unigram")  # others share these programs
COUNTS = (1e4 / np.arange(1, V + 1)).astype(np.int64) + 1
KINDS = "all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute"
COLLECTIVE = re.compile(rf"= (.*?) (?:{KINDS})(?:-start)?\(")
SHAPE = re.compile(r"\w+\[([\d,]*)\]")


def batch(i):
  """Labels with padding, weights of 0 and repeated classes."""
  rng = np.random.default_rng(i)
  ids_NP = rng.choice(V, (N, P), p=COUNTS / COUNTS.sum()).astype(np.int32)
  w_NP = rng.random((N, P)).astype(np.float32)
  w_NP[::5], ids_NP[3, 1], w_NP[3, 1] = 0, V, 0
  h_ND = rng.standard_normal((N, D)).astype(np.float32)
  return h_ND, Targets(ids_NP, w_NP, rng.integers(0, V, N).astype(np.int32))


def sent(program):
  """The largest number of elements in a result of a collective of a program."""
  results = " ".join(COLLECTIVE.findall(program.as_text()))
  shapes = [list(map(int, filter(None, s.split(",")))) for s in SHAPE.findall(results)]
  return max(map(math.prod, shapes), default=0)


def trained(head, num_devices, reads):
  """What a head computes in a few steps on so many devices, and with `reads` what its
  other programs do."""
  head = OverDevices(head, class_mesh(jax.devices()[:num_devices]), 8)
  state = head.init(jax.random.key(0), Counts(COUNTS), D)

  @functools.partial(jax.jit, donate_argnums=0)
  def step(state, h_ND, y, key):
    out = head.backward(state, h_ND, y, key)
    scale = 0.05 / jnp.maximum(0.05, jnp.sqrt(out.sq_norm))
    return head.update(state, out.grads, 0.3, scale), out._replace(grads=None)

  program = step.lower(state, *batch(0), jax.random.key(0)).compile()
  losses, norms, dh = [], [], []

  def tables():
    return {
      shard.data.unsafe_buffer_pointer()
      for leaf in jax.tree.leaves(state.parts.table)
      for shard in leaf.addressable_shards
      if leaf.ndim
    }

  before = tables()
  for i in range(STEPS):
    state, out = step(state, *batch(i), jax.random.key(i))
    losses.append(float(out.loss))
    norms.append(float(out.sq_norm))
    dh.append(np.asarray(out.dh_ND).tolist())
  in_place = tables() == before
  state = jax.jit(head.refresh)(state, jax.random.key(STEPS))
  return {
    "loss": losses,
    "norm": norms,
    "dh": dh,
    "rows": np.asarray(state.parts.table.w_VD, np.float32).tolist(),
    "in_place": in_place,
    "sent": sent(program),
    **(read(head, state) if reads else {}),
  }


def read(head, state):
  """What the other programs compute from a state."""
  h_ND, y = batch(STEPS)
  metrics = jax.jit(head.evaluate)(state, h_ND, y)
  ids_NK, score_NK = jax.jit(head.top_k, static_argnums=2)(state, h_ND, K)
  monitored = jax.jit(head.monitor)(state, h_ND, y, jax.random.key(5))
  return {
    **{name: np.asarray(x).tolist() for name, x in metrics.items()},
    "monitor": [float(x) for x in monitored.values()],
    "top_k": np.asarray(ids_NK).tolist(),
    "scores": np.asarray(score_NK).tolist(),
    "class_rows": np.asarray(jax.jit(head.class_rows)(state, jnp.arange(V))).tolist(),
  }


def main(devices, *paths):
  for path in paths:
    name, _, dtype = path.partition("@")
    fields = {"optimizer": Adagrad(row_dtype=dtype or "float32")}
    if "/" in name:
      fields["num_samples"] = M
    head = config.head(name, **fields)
    reads = name in READ
    results = {n: trained(head, n, reads) for n in map(int, devices.split(","))}
    print(json.dumps({"head": path, "results": results}), flush=True)


if __name__ == "__main__":
  main(*sys.argv[1:])
