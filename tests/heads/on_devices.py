"""Trains heads on some of eight devices, in a process that has so many: see
`sharded_test.py`. Prints a JSON line for each head.

  python -m tests.heads.on_devices 1,2,8 full sampled/pps

With `sent` in place of the numbers, what a step sends for few and for many classes.
"""

import dataclasses
import functools
import json
import math
import operator
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from largevocab import config
from largevocab.heads import ShardedHead, class_mesh
from largevocab.heads.base import ROWS, SUM, WHOLE
from largevocab.labels import Counts, Targets
from largevocab.ops import passes
from largevocab.rows import Adagrad, accumulate

V, D, N, P, M, STEPS, K = 203, 8, 22, 2, 64, 20, 7  # V and N divide by nothing
FEW = 3  # class rows that are read
# Others share the programs that read a state.
READ = (
  *(path for path in config.head_paths() if "/" not in path),
  *("sampled/pps", "nce/unigram", "spherical/taylor"),
  *("full/cosine", "sampled/unigram/cosine"),
)
# And these also add up gradients.
ADDED = ("full", "sampled/pps", "nce/unigram", "spherical/taylor")
# Clusters whose sizes 8 blocks do not divide, each with narrower rows.
DECAYED = Adagrad(decoupled_decay=0.1, average=0.9)
CLUSTERS = {"cutoffs": (20, 91), "factor": 2, "align": 1, "optimizer": DECAYED}
FIELDS = {
  "spherical": {"limit": 1.001},  # so tight that it is stabilised
  "adaptive": CLUSTERS,
  "d_softmax": {**CLUSTERS, "projected": True},
}
# A block has 26 classes, and of each structure several parts all the same.
SMALL = {
  **{"leaf_size": 4, "dense_levels": 1, "num_features": 16},  # trees
  **{"codewords": 4, "clusters": 6, "probes": 2, "iterations": 1},  # codebooks
  "batches": 3,  # remembered
}
ANGLES = {"scale": 8.0, "angular": 0.2, "additive": 0.1}
COUNTS = (1e4 / np.arange(1, V + 1)).astype(np.int64) + 1
TOKENS = np.random.default_rng(0).choice(V, 500, p=COUNTS / COUNTS.sum())
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


def stepper(head):
  """A compiled step: the new state, and the loss and gradients."""

  @jax.jit
  def step(state, h_ND, y, key):
    out = head.backward(state, h_ND, y, key)
    return head.update(state, out.grads, 0.5, 1.0), out._replace(grads=None)

  return step


def sent(program):
  """The largest number of elements in a result of a collective of a program."""
  results = " ".join(COLLECTIVE.findall(program.as_text()))
  shapes = [list(map(int, filter(None, s.split(",")))) for s in SHAPE.findall(results)]
  return max(map(math.prod, shapes), default=0)


def sent_by_step(path, num_classes):
  """The same of a step on all devices, for so many classes."""
  head = over(made(path), len(jax.devices()))
  count_V = (1e4 / np.arange(1, num_classes + 1)).astype(np.int64) + 1
  state = head.abstract_state(Counts(count_V, TOKENS), D)
  return sent(stepper(head).lower(state, *batch(0), jax.random.key(0)).compile())


def over(head, num_devices):
  return ShardedHead(head, class_mesh(jax.devices()[:num_devices]), 8)


def initial(head):
  return head.init(jax.random.key(0), Counts(COUNTS, TOKENS), D)


def moved(state, head):
  """A copy of a state on the devices of another head."""
  place = lambda x: NamedSharding(head.mesh, x.sharding.spec)
  copy = lambda x: jax.device_put(jnp.copy(x), place(x))
  return jax.tree.map(copy, state)


def trained(head, state, reads, adds):
  """What a head computes in a few steps, half of them after a refresh, with `reads`
  what its other programs do, and with `adds` sums of gradients."""

  @functools.partial(jax.jit, donate_argnums=0)
  def step(state, h_ND, y, key):
    out = head.backward(state, h_ND, y, key)
    scale = 0.05 / jnp.maximum(0.05, jnp.sqrt(out.sq_norm))
    return head.update(state, out.grads, 0.3, scale), out._replace(grads=None)

  program = step.lower(state, *batch(0), jax.random.key(0)).compile()
  losses, norms, dh = [], [], []

  def leaves(*kinds):
    of_leaves = zip(*map(jax.tree.leaves, (kind_of, state.parts)), strict=True)
    return [leaf for kind, leaf in of_leaves if kind in kinds]

  def tables():
    return {
      shard.data.unsafe_buffer_pointer()
      for leaf in leaves(ROWS)
      for shard in leaf.addressable_shards
    }

  kind_of = head.head.sharding(state.parts)
  for i in range(STEPS):
    if i == STEPS // 2:
      state = jax.jit(head.refresh)(state, jax.random.key(STEPS))
      before = tables()
    state, out = step(state, *batch(i), jax.random.key(i))
    losses.append(float(out.loss))
    norms.append(float(out.sq_norm))
    dh.append(np.asarray(out.dh_ND).tolist())
  in_place = tables() == before
  return {
    "loss": losses,
    "norm": norms,
    "dh": dh,
    "rows": [np.asarray(x, np.float32).ravel().tolist() for x in leaves(ROWS)],
    "in_place": in_place,
    "equal": all(map(is_equal_everywhere, leaves(WHOLE, SUM))),
    "sent": sent(program),
    **(read(head, state) if reads else {}),
    **(added(head, state) if adds else {}),
  }


def is_equal_everywhere(x):
  """Whether all devices have the same bits of an array."""
  first, *others = (np.asarray(shard.data) for shard in x.addressable_shards)
  return all(np.array_equal(first, other) for other in others)


def added(head, state):
  """The state after a step with the summed gradients of two parts of a batch, with
  those of the batch, and with those of a part, and the norms of these."""
  h_ND, y = batch(STEPS)
  key, backward = jax.random.key(6), jax.jit(head.backward)
  parts = []
  for at in (slice(0, 12), slice(12, N)):
    of_part = jax.tree.map(operator.itemgetter(at), (h_ND, y))
    parts.append(backward(state, *of_part, key).grads)
  one, two = parts
  share = float(np.sum(y.w_NP[:12]) / np.sum(y.w_NP))
  every = {
    "by parts": jax.jit(accumulate)([one, two], [share, 1 - share]),
    "at once": backward(state, h_ND, y, key).grads,
    "part": one,
    "sum": one + two,
    "scaled sum": accumulate([one, two], [1.0, 1.0]),
  }
  update, sq_norm = jax.jit(head.update), jax.jit(head.sq_norm)
  leaves = lambda grads: [
    *jax.tree.leaves(update(state, grads, 0.3, 1.0).parts),
    sq_norm(state, grads),
  ]
  numbers = lambda grads: np.concatenate([np.ravel(x) for x in leaves(grads)])
  return {name: numbers(grads).tolist() for name, grads in every.items()}


def read(head, state):
  """What the other programs compute from a state."""
  h_ND, y = batch(STEPS)
  few_R = jnp.arange(FEW)
  programs = {
    "evaluate": jax.jit(head.evaluate).lower(state, h_ND, y).compile(),
    "top_k": jax.jit(head.top_k, static_argnums=2).lower(state, h_ND, K).compile(),
    "class_rows": jax.jit(head.class_rows).lower(state, few_R).compile(),
  }
  metrics = programs["evaluate"](state, h_ND, y)
  ids_NK, score_NK = programs["top_k"](state, h_ND)
  monitored = jax.jit(head.monitor)(state, h_ND, y, jax.random.key(5))
  return {
    **{name: np.asarray(x).tolist() for name, x in metrics.items()},
    "monitor": [float(x) for x in monitored.values()],
    "top_k": np.asarray(ids_NK).tolist(),
    "scores": np.asarray(score_NK).tolist(),
    "class_rows": np.asarray(jax.jit(head.class_rows)(state, jnp.arange(V))).tolist(),
    "sent to read": {name: sent(program) for name, program in programs.items()},
  }


def made(path):
  """The head of a path, with '@' and the type of its rows, or a space and fields."""
  path, _, given = path.partition(" ")
  path, _, dtype = path.partition("@")
  of_head = FIELDS.get(path.partition("/")[0], {})
  optimizer = of_head.get("optimizer", Adagrad())
  fields = {
    **of_head,
    **{"num_samples": M, "sampler": SMALL, "logits": ANGLES},
    "optimizer": dataclasses.replace(optimizer, row_dtype=dtype or "float32"),
    **json.loads(given or "{}"),
  }
  return config.head(path, **fields)


def main(devices, *paths):
  passes.LEAST = 1  # several passes over the few labels here, too
  if devices == "sent":
    for path in paths:
      both = [sent_by_step(path, num) for num in (V, V + 1000)]
      print(json.dumps({"head": path, "sent": both}), flush=True)
    return
  for path in paths:
    head, reads, adds = made(path), path in READ, path in ADDED
    heads = [over(head, n) for n in map(int, devices.split(","))]
    start, results = initial(heads[0]), {}
    for each in heads:
      # To make a state on many devices is slow: of most heads on the last only.
      is_own = reads or each == heads[-1]
      state = initial(each) if is_own else moved(start, each)
      results[each.mesh.size] = trained(each, state, reads, adds)
    print(json.dumps({"head": path, "results": results}), flush=True)


if __name__ == "__main__":
  main(*sys.argv[1:])
