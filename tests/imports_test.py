"""Heads and samplers, which users can import alone, need only a few packages."""

import pathlib
import re
import subprocess
import sys
from importlib import metadata

PROGRAM = """
import sys

blocked = set(sys.argv[1].split(","))

class Blocker:
  def find_spec(self, name, path=None, target=None):
    if name.partition(".")[0] in blocked:
      raise ModuleNotFoundError(f"{name} is not to be needed", name=name)

sys.meta_path.insert(0, Blocker())

import functools

import jax
import jax.numpy as jnp
import numpy as np

import largevocab
import largevocab.models
from largevocab import labels
from largevocab.heads import HEADS
from largevocab.samplers import SAMPLERS

N, D, V, M = 4, 3, 20, 5
key = jax.random.key(0)
counts = labels.Counts(np.arange(V, 0, -1), np.arange(10 * V) % V)
h_ND = jax.random.normal(key, (N, D))
w_VD = jax.random.normal(key, (V, D))
y = labels.single_targets(jnp.arange(N))

def drawn(sampler, w_VD):
  stats = sampler.init(counts, w_VD, M)
  return sampler.sample(stats, w_VD, key, h_ND, y)

def used(head, key):
  state = head.init(key, counts, D)
  step = head.backward(state, h_ND, y, key)
  state = head.update(state, step.grads, 0.1, 1.0)
  return head.refresh(state, key), head.evaluate(state, h_ND, y)

# Traces all of it, and compiles nothing.
for Sampler in SAMPLERS.values():
  jax.eval_shape(functools.partial(drawn, Sampler()), w_VD)
for Head in HEADS.values():
  jax.eval_shape(functools.partial(used, Head()), key)

print(len(SAMPLERS), len(HEADS))
"""


def requirements_of(*names: str) -> set[str]:
  """The installed packages that these require, with themselves, without extras."""
  found: set[str] = set()
  todo = list(names)
  while todo:
    name = re.sub(r"[-_.]+", "-", todo.pop().lower())
    if name in found:
      continue
    try:
      needed = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
      continue  # Needed only on another platform.
    found.add(name)
    todo += [re.split(r"[^\w.-]", n)[0] for n in needed if "extra ==" not in n]
  return found


def test_heads_and_samplers_need_only_the_core_packages():
  needed = requirements_of("jax", "flax", "optax", "numpy")
  blocked = {
    module
    for module, owners in metadata.packages_distributions().items()
    if not {re.sub(r"[-_.]+", "-", owner.lower()) for owner in owners} & needed
  } - {"largevocab"}
  assert {"tensorflow_datasets", "tqdm", "tensorboard", "ml_collections"} <= blocked
  done = subprocess.run(
    [sys.executable, "-c", PROGRAM, ",".join(blocked)],
    cwd=pathlib.Path(__file__).parents[1],
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  num_samplers, num_heads = map(int, done.stdout.split())
  assert num_samplers > 0
  assert num_heads > 0
