"""Categorical draws from a row of weights per example, with exact probabilities.

The weights are summed in groups of 128, the sums in groups of 128 again, until one
group is left. A draw descends from there: at each level it picks one entry of one group
by inverting the cumulative weights of that group.

At each level the weights of a group are rounded to integers that sum to 2^31, and a
31-bit random integer selects one by seven steps of bisection over sums of halves. Sums
of integers are exact in any order, so the probabilities of the draw are known exactly,
entries of weight zero are never picked, and every other entry can be.

Here L is the number of levels, K the number of groups of a level, and G the size of a
group.
"""

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.labels import is_class
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import RowChunk, fold_rows

GROUP = 128
UNIT = np.uint32(1 << 31)  # sum of the integer weights of a group
AT_A_TIME = 1 << 17  # weights in a chunk, so that all temporaries fit in a cache


def draw(key: jax.Array, weight_NV: jax.Array, m: int) -> tuple[jax.Array, jax.Array]:
  """m independent draws per row, with probabilities proportional to its weights.

  Args:
    key: PRNG key.
    weight_NV: f32[N, V], non-negative. A row of zeros draws class 0, with a meaningless
      probability; a row whose sum is not finite draws any class, with probability NaN.
    m: number of draws.

  Returns:
    ids_NM: i32[N, M].
    log_q_NM: f32[N, M], log-probability of each draw in nats, exact up to the rounding
      of logarithms. The probability equals weight / sum up to the rounding to integers.
      This rounding changes each entry by up to 2^-31 of the weight of its group and
      2^-24 of the entry, and the heaviest entry of the group by the sum of these
      changes.

  Cost: O(V + min(128 M, V) + M log V) a row. Besides the results and a random integer
    per draw and level, it holds a few arrays of the rows of a chunk, which has 2^17
    weights or one row.

  >>> ids_NM, log_q_NM = draw(jax.random.key(0), jnp.array([[0.0, 3.0, 0.0]]), 4)
  >>> ids_NM, log_q_NM.tolist()
  (Array([[1, 1, 1, 1]], dtype=int32), [[0.0, 0.0, 0.0, 0.0]])
  """
  sizes = check_shapes(weight_NV=weight_NV)
  u_NLM = jnp.moveaxis(_random_units(key, weight_NV.shape, m), 0, 1)

  def draw_some(drawn, chunk: RowChunk):
    some = jax.vmap(_draw_row)(chunk.rows(weight_NV), chunk.rows(u_NLM))
    return jax.tree.map(chunk.put, drawn, some)

  none = jnp.zeros((sizes["N"], m), jnp.int32), jnp.zeros((sizes["N"], m))
  return fold_rows(draw_some, none, sizes["N"], AT_A_TIME // max(sizes["V"], m))


def _draw_row(weight_V: jax.Array, u_LM: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Draws of one row and their log-probabilities, from random integers per level."""
  m = u_LM.shape[1]
  ids_M, log_q_M = jnp.zeros(m, jnp.int32), jnp.zeros(m)
  levels = _levels(weight_V)
  for (total_K, weight_KG), u_M in zip(levels, u_LM, strict=True):
    group_M = ids_M
    if m < len(weight_KG):  # few draws: copy the group of each
      at_MG = ids_M[:, None] * GROUP + jnp.arange(GROUP, dtype=jnp.int32)[None, :]
      weight_KG = weight_KG.ravel().at[at_MG].get(mode="promise_in_bounds")
      total_K = total_K.at[ids_M].get(mode="promise_in_bounds")
      group_M = jnp.arange(m, dtype=jnp.int32)
    length_KG = _lengths(total_K, weight_KG)
    pick_M = _pick(length_KG, group_M, u_M)
    ids_M = ids_M * weight_KG.shape[1] + pick_M
    length_M = length_KG.at[group_M, pick_M].get(mode="promise_in_bounds")
    log_q_M += jnp.log(length_M / UNIT)
  is_law = jnp.isfinite(levels[0][0][0])
  return jnp.minimum(ids_M, len(weight_V) - 1), jnp.where(is_law, log_q_M, jnp.nan)


def log_law(weight_NV: jax.Array, ids_NM: jax.Array) -> jax.Array:
  """Log-probability f32[N, M], in nats, with which `draw` draws each of ids_NM.

  It is -inf exactly for classes that are never drawn and for ids outside 0 ... V - 1.

  Cost: O(V + min(128 M, V) + M log V) a row in time and memory.

  >>> log_law(jnp.array([[1.0, 0.0]]), jnp.array([[0, 1]]))
  Array([[  0., -inf]], dtype=float32)
  """
  V = check_shapes(weight_NV=weight_NV, ids_NM=ids_NM)["V"]
  log_q_NM = jax.vmap(_log_law_row)(weight_NV, ids_NM)
  return jnp.where(is_class(ids_NM, V), log_q_NM, -jnp.inf)


def _log_law_row(weight_V: jax.Array, ids_M: jax.Array) -> jax.Array:
  log_q_M = jnp.zeros(ids_M.shape)
  levels = _levels(weight_V)
  for total_K, weight_KG in reversed(levels):
    group_M, entry_M = jnp.divmod(ids_M, weight_KG.shape[1])
    ids_M = group_M
    if ids_M.size < len(weight_KG):  # few ids: copy the group of each
      weight_KG = weight_KG.at[group_M].get(mode="clip")
      total_K = total_K.at[group_M].get(mode="clip")
      group_M = jnp.arange(ids_M.size, dtype=ids_M.dtype)
    length_M = _lengths(total_K, weight_KG).at[group_M, entry_M].get(mode="clip")
    log_q_M += jnp.log(length_M / UNIT)
  return jnp.where(jnp.isfinite(levels[0][0][0]), log_q_M, jnp.nan)


def _random_units(key: jax.Array, shape: tuple[int, ...], m: int) -> jax.Array:
  """Random integers 0..UNIT-1 u32[L, N, M], one for each draw at each level."""
  (n, num_classes), num_levels = shape, 1
  while num_classes > GROUP**num_levels:
    num_levels += 1
  return jax.random.bits(key, (num_levels, n, m), jnp.uint32) >> 1


def _levels(weight_V: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
  """Groups of weights [K, G], and above them groups of their sums, top level first.

  G is 128, or the least power of 2 that holds all classes if that is smaller. Groups
  are padded with 0.
  """
  levels, size = [], len(weight_V)
  while True:
    group = min(GROUP, 1 << (size - 1).bit_length())
    weight_KG = jnp.pad(weight_V, (0, -size % group)).reshape(-1, group)
    weight_V, size = weight_KG.sum(-1), len(weight_KG)
    levels.insert(0, (weight_V, weight_KG))
    if size == 1:
      return levels


def _lengths(total_K: jax.Array, weight_KG: jax.Array) -> jax.Array:
  """Integers u32[K, G] that sum to UNIT in each group, positive where the weights are.

  The heaviest entry, of UNIT / G or more, absorbs the rounding errors.
  """
  size = weight_KG.shape[1]
  share_KG = weight_KG / jnp.where(total_K > 0, total_K, 1.0)[:, None]
  length_KG = jnp.rint(share_KG * float(UNIT)).astype(jnp.uint32)
  length_KG = jnp.maximum(length_KG, (weight_KG > 0).astype(jnp.uint32))
  # Modulo 2^32, like its sum with a length.
  left_K = UNIT - length_KG.sum(-1, dtype=jnp.uint32)
  # Index of the first maximum; `argmax` is slow on CPU.
  at_1G = jnp.arange(size)[None, :]
  is_max_KG = weight_KG == weight_KG.max(-1, keepdims=True)
  heaviest_K = jnp.where(is_max_KG, at_1G, size).min(-1)
  return length_KG + jnp.where(at_1G == heaviest_K[:, None], left_K[:, None], 0)


def _pick(length_KG: jax.Array, group_M: jax.Array, u_M: jax.Array) -> jax.Array:
  """The entry i32[M] of its group whose part of 0..UNIT-1 contains each integer."""
  sums = [length_KG]
  while sums[0].shape[1] > 1:
    pairs_KE2 = sums[0].reshape(len(length_KG), -1, 2)
    sums.insert(0, pairs_KE2.sum(-1, dtype=jnp.uint32))
  if len(sums) == 1:
    return jnp.zeros(u_M.shape, jnp.int32)
  # A loop over one array of all sums: unrolled, XLA recomputes each step from scratch.
  sum_T = jnp.concatenate([sum_KE.ravel() for sum_KE in sums[1:]])

  def halve(i, at_and_u):
    at_M, u_M = at_and_u
    start = len(length_KG) * ((2 << i) - 2)
    left_M = sum_T.at[start + 2 * at_M].get(mode="promise_in_bounds")
    right_M = u_M >= left_M
    at_M = 2 * at_M + right_M.astype(jnp.int32)
    return at_M, jnp.where(right_M, u_M - left_M, u_M)

  at_M, _ = jax.lax.fori_loop(0, len(sums) - 1, halve, (group_M, u_M))
  return at_M % length_KG.shape[1]
