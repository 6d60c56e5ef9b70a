"""Benchmarks of kernel samplers: draws, and updates of their sums."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.case import Case, check_close
from largevocab import single_targets
from largevocab.labels import Counts
from largevocab.ops.draws import feature_tree, sumtree
from largevocab.samplers import Quadratic, Softmax
from largevocab.samplers.kernel_tree import KernelStats
from largevocab.tools.reports.measure import Stepper, compare

KEY = jax.random.key(0)


def _problem(V: int, D: int, N: int):
  w_VD = 0.3 * jax.random.normal(jax.random.key(1), (V, D))
  h_ND = jax.random.normal(jax.random.key(2), (N, D))
  return Counts(np.ones(V, int)), w_VD, h_ND, single_targets(jnp.zeros(N, int))


def _drawing(sampler, V: int, D: int, N: int, M: int):
  """A compiled draw without arguments, and the statistics that it reads."""
  counts, w_VD, h_ND, y = _problem(V, D, N)
  stats = sampler.init(counts, w_VD, M)
  sample = jax.jit(sampler.sample)
  return (lambda: sample(stats, w_VD, KEY, h_ND, y)), stats


def _error(draw, V: int, D: int, N: int, M: int) -> float:
  """Relative error of the reported distribution from K / sum K at drawn classes."""
  _, w_VD, h_ND, _ = _problem(V, D, N)
  kernel_NV = Quadratic().kernel(h_ND @ w_VD.T)
  law_NV = kernel_NV / kernel_NV.sum(axis=1, keepdims=True)
  law_NM = M * jnp.take_along_axis(law_NV, draw.ids, axis=1)
  return check_close(jnp.exp(draw.log_expected), law_NM, 1e-4)


def _memory(stats: KernelStats, V: int, D: int) -> float:
  return sum(x.size for x in jax.tree.leaves(stats)) / (V * D)


def kernel_draw(
  N: int = 64, M: int = 32, Ds: Sequence[int] = (16, 64)
) -> Iterator[Case]:
  """M draws for each of N examples: all logits / the tree, and V = 1 M / 10 k.

  Goals: at D = 64 and V = 1 M at least 20 times as fast as from all logits; at D = 16
  at most 6 times as long at V = 1 M as at V = 10 k; sums at most 1.5 times the table.
  """
  for D in Ds:
    draws = {}
    for V in (10_000, 100_000, 1_000_000):
      tree, stats = _drawing(Quadratic(), V, D, N, M)
      exact, _ = _drawing(Softmax(), V, D, N, M)
      blocks, depth = sumtree.num_blocks(stats.tree), sumtree.depth(stats.tree)
      sizes: dict[str, Any] = {"N": N, "M": M}
      sizes |= {"blocks": blocks, "scanned_levels": depth}
      sizes |= {"error": _error(tree(), V, D, N, M)}
      goal = {"at_least": 20} if (D, V) == (64, 1_000_000) else {}
      figures = {**compare(exact, tree, seconds=10), **goal}
      figures["memory_ratio"] = _memory(stats, V, D)
      yield Case(f"draws, all logits / quadratic, V={V:,} D={D}", sizes, figures)
      draws[V] = tree, exact
    goal = {"at_most": 6} if D == 16 else {}
    for name, i in (("quadratic", 0), ("all logits", 1)):
      figures = compare(draws[1_000_000][i], draws[10_000][i], seconds=10)
      figures |= goal if name == "quadratic" else {}
      yield Case(
        f"draws, {name}, V=1,000,000 / V=10,000, D={D}", {"N": N, "M": M}, figures
      )


def kernel_break_even(N: int = 64, M: int = 32) -> Iterator[Case]:
  """The number of classes above which the tree draws faster than all logits.

  Blocks have D / 2 classes, even where the default is a single block. V is interpolated
  between two measured sizes, linearly in the logarithms.
  """
  for D in (16, 64, 200):
    before, found = (0, 0.0), 0.0
    for V in (2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000):
      tree, _ = _drawing(Quadratic(leaf_size=D // 2), V, D, N, M)
      exact, _ = _drawing(Softmax(), V, D, N, M)
      ratio = compare(exact, tree, seconds=3, min_turns=5)["ratio"]
      if ratio > 1:
        found = float(V)
        if before[0]:
          share = -math.log(before[1]) / math.log(ratio / before[1])
          found = before[0] * (V / before[0]) ** share
        break
      before = V, ratio
    yield Case(
      f"classes from which quadratic draws faster than all logits, D={D}",
      {"N": N, "M": M},
      {"break_even": found},
    )


def binary_tree(N: int = 64, M: int = 32, R: int = 64, D: int = 16) -> Iterator[Case]:
  """Blanc and Rendle's tree, with D / 2 classes a leaf, as it grows with log V."""
  sampler = Quadratic(dense_levels=0, leaf_size=D // 2)
  draws, steps, levels = [], [], []
  for V in (2**20, 2**14):
    draw, stats = _drawing(sampler, V, D, N, M)
    _error(draw(), V, D, N, M)
    added, *_ = _updates(sampler, V, D, R)
    draws.append(draw), steps.append(added), levels.append(sumtree.depth(stats.tree))
  of = f"tree of {levels[0]} levels, V=1,048,576 / {levels[1]} levels, V=16,384, D={D}"
  for what, pair in (("draws", draws), (f"{R} rows added", steps)):
    yield Case(f"{what}, {of}", {"N": N, "M": M}, compare(*pair, seconds=10))


def _updates(sampler: Quadratic, V: int, D: int, R: int):
  """Steps that update kernel sums for R rows and that rebuild them.

  Also returns the relative error of the updated sums.
  """
  counts, w_VD, _, _ = _problem(V, D, 1)
  ids_R = jax.random.permutation(KEY, V)[:R]
  rows = ids_R, w_VD[ids_R], w_VD[ids_R] + 0.1
  stats = sampler.init(counts, w_VD, 32)
  features = sampler.features(stats)

  # All arrays are arguments: the compiler would compute with constants beforehand.
  def add(tree, *rows):
    return feature_tree.corrected(tree, features, V, *rows), None

  def rebuild(tree, w_VD):
    return feature_tree.rebuilt(tree, features, w_VD), None

  moved_VD = w_VD.at[ids_R].set(rows[2])
  error = check_close(
    jax.jit(add)(stats.tree, *rows), jax.jit(rebuild)(stats.tree, moved_VD), 1e-4
  )
  added = Stepper(add, stats.tree, *rows)
  rebuilt = Stepper(rebuild, sampler.init(counts, w_VD, 32).tree, w_VD)
  return added, rebuilt, error


def kernel_update(V: int = 100_000) -> Iterator[Case]:
  """Kernel sums after R rows changed: rebuilt / updated incrementally.

  Beside R = 64 to 4,096 at D = 64, trees with narrower and wider sums, and the tree of
  the paper with its many levels, at R on both sides of where a rebuild is chosen.
  """
  paper = Quadratic(dense_levels=0, leaf_size=8)
  cases = [(64, R, Quadratic()) for R in (64, 512, 4096, 8192)]
  cases += [(16, R, Quadratic()) for R in (8192, 32_768)]
  cases += [(128, R, Quadratic()) for R in (2048, 8192)]
  for D, R, sampler in [*cases, (16, 8192, paper), (16, 32_768, paper)]:
    added, rebuilt, error = _updates(sampler, V, D, R)
    levels = sumtree.depth(added.state)
    tree = f", {levels} levels" if sampler is paper else ""
    yield Case(
      f"kernel sums{tree}, built anew / {R:,} rows added, V={V:,} D={D}",
      {"R": R, "F": added.state.top_CF.shape[1], "levels": levels, "error": error},
      compare(rebuilt, added, seconds=5),
    )


ROWS: dict[str, Callable[[], Iterator[Any]]] = {
  "kernel_draw": kernel_draw,
  "kernel_break_even": kernel_break_even,
  "kernel_update": kernel_update,
  "binary_tree": binary_tree,
}
