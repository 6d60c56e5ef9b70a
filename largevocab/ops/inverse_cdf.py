"""Categorical draws from a row of weights per example, with an exactly known law.

The weights are summed in groups of 128, the sums in groups of 128 again, until one
group is left. A draw descends from there: at each level it picks one entry of one group
by inverting the cumulative weights of that group alone. So a draw reads 128 numbers a
level, and all that touches V entries is one pass of sums.

At each level the weights of a group are rounded to integers that sum to 2^24 and are
compared with a 24-bit random integer. The cumulative sums of such integers are exact in
float32 in any order, so the law of the draw is known exactly, an entry of weight zero
is never picked, and every other entry can be.
"""

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.ops.shapes import check_shapes

GROUP = 128
UNIT = 1 << 24  # sum of the integer weights of a group


def draw(key: jax.Array, weight_NV: jax.Array, m: int) -> tuple[jax.Array, jax.Array]:
  """m independent draws per row, with probabilities in proportion to its weights.

  Args:
    key: PRNG key.
    weight_NV: f32[N, V], finite and non-negative. A row of zeros draws class 0, at a
      probability that means nothing.
    m: number of draws.

  Returns:
    ids_NM: i32[N, M].
    log_q_NM: f32[N, M], log-probability of each draw, nats. It is the law of the draw
      up to the rounding of logarithms. That law is weight / sum but for the rounding to
      integers, which moves each entry by up to 2^-24 of the weight of its group, and
      the heaviest of the group by what the others lack.

  Cost: one pass over the weights; then O(M * 128 * log V / log 128) a row. Holds a
    few arrays of max(V, M, 128) a row: of many draws only some are made at a time.

  >>> ids_NM, log_q_NM = draw(jax.random.key(0), jnp.array([[0.0, 3.0, 0.0]]), 4)
  >>> ids_NM, log_q_NM.tolist()
  (Array([[1, 1, 1, 1]], dtype=int32), [[0.0, 0.0, 0.0, 0.0]])
  """
  n, num_classes = check_shapes(weight_NV=weight_NV).values()
  levels = _levels(weight_NV)
  u_LNM = _random_units(key, len(levels), n, m)
  # So many draws at a time as read about as much as there are weights, or draws.
  size = -(-max(num_classes, m) // GROUP)
  if size >= m:
    return _descend(levels, u_LNM)
  chunks = -(-m // size)
  u_LNM = jnp.pad(u_LNM, ((0, 0), (0, 0), (0, chunks * size - m)))
  u_CLNM = jnp.moveaxis(u_LNM.reshape(len(levels), n, chunks, size), 2, 0)
  drawn_CNM = jax.lax.map(lambda u_LNM: _descend(levels, u_LNM), u_CLNM)
  joined = lambda x_CNM: jnp.moveaxis(x_CNM, 0, 1).reshape(n, -1)[:, :m]
  ids_NM, log_q_NM = map(joined, drawn_CNM)
  return ids_NM, log_q_NM


def _descend(levels: list[jax.Array], u_LNM: jax.Array) -> tuple[jax.Array, jax.Array]:
  """A draw, and its log-probability, for the random integers of every level."""
  _, n, m = u_LNM.shape
  ids_NM, log_q_NM = jnp.zeros((n, 1), jnp.int32), jnp.zeros((n, m))
  total_NM = levels[0].sum(-1, keepdims=True)
  for level_NE, u_NM in zip(levels, u_LNM, strict=True):
    group_G = jnp.arange(min(level_NE.shape[1], GROUP))
    index_NMG = ids_NM[:, :, None] * GROUP + group_G[None, None, :]
    weight_NMG = jnp.take_along_axis(
      level_NE[:, None, :], index_NMG, axis=2, mode="fill", fill_value=0
    )
    length_NMG = _lengths(weight_NMG, total_NM)
    pick_NM = (_cumulative(length_NMG) <= u_NM[:, :, None]).sum(-1)
    total_NM, length_NM = (
      jnp.take_along_axis(x_NMG, pick_NM[:, :, None], axis=-1)[:, :, 0]
      for x_NMG in (weight_NMG, length_NMG)
    )
    ids_NM = ids_NM * GROUP + pick_NM
    log_q_NM += jnp.log(length_NM / UNIT)
  return ids_NM, log_q_NM


def log_law(weight_NV: jax.Array, ids_NM: jax.Array) -> jax.Array:
  """Log-probability f32[N, M], in nats, that a draw of `draw` is each of ids_NM.

  It is -inf just for classes that are never drawn.

  Cost: O(V) a row in time and memory.

  >>> log_law(jnp.array([[1.0, 0.0]]), jnp.array([[0, 1]]))
  Array([[  0., -inf]], dtype=float32)
  """
  sizes = check_shapes(weight_NV=weight_NV, ids_NM=ids_NM)
  levels = _levels(weight_NV)
  log_q_NM = jnp.zeros(ids_NM.shape)
  total_NK = levels[0].sum(-1, keepdims=True)
  below = GROUP ** (len(levels) - 1)  # classes under one entry of the level
  for level_NE in levels:
    weight_NKG = _groups(level_NE)
    length_NE = _lengths(weight_NKG, total_NK).reshape(sizes["N"], -1)
    length_NM = jnp.take_along_axis(length_NE, ids_NM // below, axis=-1, mode="clip")
    log_q_NM += jnp.log(length_NM / UNIT)
    total_NK, below = level_NE, below // GROUP
  return log_q_NM


def reference_draw(
  key: jax.Array, weight_NV: np.ndarray, m: int
) -> tuple[np.ndarray, np.ndarray]:
  """What `draw` computes, one draw and one group at a time on the host.

  >>> reference_draw(jax.random.key(0), np.array([[0.0, 3.0, 0.0]]), 2)
  (array([[1, 1]]), array([[0., 0.]]))
  """
  levels = [np.asarray(_groups(level)) for level in _levels(jnp.asarray(weight_NV))]
  u_LNM = np.asarray(_random_units(key, len(levels), len(weight_NV), m))
  ids_NM, log_q_NM = np.zeros(u_LNM.shape[1:], int), np.zeros(u_LNM.shape[1:])
  for n, i in np.ndindex(ids_NM.shape):
    for weight_NKG, u_NM in zip(levels, u_LNM, strict=True):
      weight_G = weight_NKG[n, ids_NM[n, i]]
      share_G = weight_G / weight_G.sum()
      length_G = np.maximum(np.rint(share_G * UNIT), weight_G > 0)
      length_G[weight_G.argmax()] += UNIT - length_G.sum()
      pick = np.searchsorted(np.cumsum(length_G), u_NM[n, i], side="right")
      ids_NM[n, i] = ids_NM[n, i] * len(weight_G) + pick
      log_q_NM[n, i] += np.log(length_G[pick] / UNIT)
  return ids_NM, log_q_NM


def _random_units(key: jax.Array, num_levels: int, n: int, m: int) -> jax.Array:
  """Random integers 0..UNIT-1 for each draw at each level, exact in f32."""
  return (jax.random.bits(key, (num_levels, n, m), jnp.uint32) >> 8).astype(jnp.float32)


def _levels(weight_NV: jax.Array) -> list[jax.Array]:
  """Sums of groups of groups [N, E], from one group of at most 128 to the weights."""
  levels = [weight_NV]
  while (size := levels[0].shape[1]) > GROUP:
    n, full = len(weight_NV), size - size % GROUP
    whole_NE = levels[0][:, :full].reshape(n, -1, GROUP).sum(-1)
    rest_NE = levels[0][:, full:].sum(-1, keepdims=True)  # not padded: that copies
    both = (whole_NE, rest_NE) if full < size else (whole_NE,)
    levels.insert(0, jnp.concatenate(both, axis=1))
  return levels


def _groups(level_NE: jax.Array) -> jax.Array:
  """The entries of a level in their groups, [N, K, G]; 0 beyond the last."""
  n, size = level_NE.shape
  group = min(size, GROUP)
  return jnp.pad(level_NE, ((0, 0), (0, -size % group))).reshape(n, -1, group)


def _lengths(weight_NKG: jax.Array, total_NK: jax.Array) -> jax.Array:
  """Integers i32[N, K, G], of sum UNIT in each group, positive where the weights are.

  total_NK is the weight of each group as the level above has it. The heaviest entry,
  of UNIT / G or more, takes what rounding leaves or lacks.
  """
  size = weight_NKG.shape[-1]
  share_NKG = weight_NKG / jnp.where(total_NK > 0, total_NK, 1.0)[:, :, None]
  length_NKG = jnp.rint(share_NKG * UNIT).astype(jnp.int32)
  length_NKG = jnp.maximum(length_NKG, (weight_NKG > 0).astype(jnp.int32))
  left_NK = UNIT - length_NKG.sum(-1)
  heaviest_NK = jnp.argmax(weight_NKG, axis=-1)
  takes_NKG = jnp.arange(size)[None, None, :] == heaviest_NK[:, :, None]
  return length_NKG + jnp.where(takes_NKG, left_NK[:, :, None], 0)


def _cumulative(length_NKG: jax.Array) -> jax.Array:
  """Cumulative sums as f32, exact. A product with a triangle: `cumsum` is slow."""
  size = length_NKG.shape[-1]
  triangle_GG = jnp.triu(jnp.ones((size, size)))
  return jnp.matmul(
    length_NKG.astype(jnp.float32), triangle_GG, precision=jax.lax.Precision.HIGHEST
  )
