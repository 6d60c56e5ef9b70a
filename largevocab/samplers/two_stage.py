"""Two-stage sampling: a block of classes, then a class in it: q(c) = q(b) q(c | b).

The product of the two stages is known exactly. The statistics of the blocks may
therefore be stale while classes within a block are drawn by current rows: the reported
probability is still that of the draw.

Here E is the number of classes in a block, K the number of blocks drawn per example, F
the number of sums kept per block, and P = K E.
"""

import abc
import math
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from largevocab.errors import UserError
from largevocab.fields import Between, CountOrNone, OneOf, settings
from largevocab.labels import Targets, is_class
from largevocab.ops.accidental_hits import LOG_ZERO
from largevocab.ops.draws import inverse_cdf
from largevocab.ops.draws.blocks import block_ids, block_logits
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import logits
from largevocab.ops.softmax.log_partition import Score
from largevocab.samplers.base import Draw, own_ids
from largevocab.samplers.block_layout import RATES, BlockLayout, choose_layout

PyTree = Any
DenseLevels = Annotated[int, Between(-1, 100)]


@settings
class TwoStage(abc.ABC):
  """Base of samplers that draw a block of consecutive classes first.

  Their statistics have a field `size`.

  Attributes:
    absolute: follow a model whose logits are |o| rather than o. A head with another
      setting is refused.
    leaf_size: E, the maximum number of classes in a block; 0: chosen by predicted time.
    whole_leaves: draw blocks with all their classes: m / E blocks, without a second
      stage (Blanc & Rendle 2018, section 3.2.2, multiple partial samples). The draws
      are dependent, but E classes cost as much as one.
    rates: device whose times determine the layout: 'cpu' or 'accelerator'. It is a
      setting, and not the current device, since a checkpoint must fit on any device.

  Cost: a single block holds the logits of all classes, [N, V].
  """

  absolute: bool = False
  leaf_size: CountOrNone = 0
  whole_leaves: bool = False
  rates: Annotated[str, OneOf(*RATES)] = "cpu"

  def choose_layout(
    self, w_VD: jax.Array, width: int, m: int, dense_levels: int
  ) -> BlockLayout:
    """The layout for `width` sums per node.

    Raises:
      UserError: m is less than a whole block, or sums would take too much memory.
    """
    V, D = w_VD.shape
    size, largest = min(self.leaf_size, V), m if self.whole_leaves else V
    layout = choose_layout(V, D, width, m, size, dense_levels, self.rates, largest)
    if self.whole_leaves and layout.size(V) > m:
      raise UserError(
        f"head.sampler.whole_leaves draws blocks of {layout.size(V)} classes: raise "
        f"head.num_samples, which is {m}, or lower head.sampler.leaf_size"
      )
    return layout

  @property
  def independent(self) -> bool:
    return not self.whole_leaves

  @abc.abstractmethod
  def num_blocks(self, stats: PyTree) -> int:
    """B; block b has the classes b E ... (b + 1) E - 1, with E = ceil(V / B)."""

  @abc.abstractmethod
  def draw_blocks(
    self, stats: PyTree, key: jax.Array, h_ND: jax.Array, m: int
  ) -> tuple[jax.Array, jax.Array]:
    """Blocks i32[N, M], and their log-probabilities in nats."""

  @abc.abstractmethod
  def log_blocks(
    self, stats: PyTree, h_ND: jax.Array, block_NM: jax.Array
  ) -> jax.Array:
    """Log-probability f32[N, M] with which `draw_blocks` draws each block."""

  @abc.abstractmethod
  def leaf_weights(
    self,
    stats: PyTree,
    h_ND: jax.Array,
    o_NKE: jax.Array,
    ids_NKE: jax.Array,
    mask_NKE: jax.Array,
  ) -> jax.Array:
    """Unnormalised weights of classes in their blocks, [N, K, E]; 0 where masked."""

  def sample(
    self,
    stats: PyTree,
    w_VD: jax.Array,
    key: jax.Array,
    h_ND: jax.Array,
    y: Targets,
  ) -> Draw:
    N = check_shapes(w_VD=w_VD, h_ND=h_ND)["N"]
    m = stats.size.m
    w_VD, h_ND = jax.lax.stop_gradient((w_VD, h_ND))
    k_block, k_leaf = jax.random.split(key)
    blocks = self.num_blocks(stats)
    size = -(-len(w_VD) // blocks)
    if self.whole_leaves:
      block_NK, log_q_NK = self.draw_blocks(stats, k_block, h_ND, m // size)
      return _whole(block_NK, log_q_NK, size, len(w_VD), m)
    if blocks == 1:  # all draws from the same leaf
      block_NK, log_q_NK = jnp.zeros((N, 1), jnp.int32), jnp.zeros((N, 1))
    else:
      block_NK, log_q_NK = self.draw_blocks(stats, k_block, h_ND, m)
    ids_NKE, weight_NKE = self._leaves(stats, w_VD, h_ND, block_NK)
    rows = weight_NKE.reshape(-1, weight_NKE.shape[-1])
    pick, log_leaf = inverse_cdf.draw(k_leaf, rows, m // block_NK.shape[1])
    ids_NM = (ids_NKE[:, :, :1] + pick.reshape(*block_NK.shape, -1)).reshape(N, m)
    log_q_NM = (log_q_NK[:, :, None] + log_leaf.reshape(*block_NK.shape, -1)).reshape(
      N, m
    )
    return Draw(ids_NM, log_q_NM + math.log(m), jnp.ones((N, m), bool))

  def log_expected(
    self,
    stats: PyTree,
    w_VD: jax.Array,
    h_ND: jax.Array,
    y: Targets,
    ids: jax.Array,
  ) -> jax.Array:
    N = check_shapes(w_VD=w_VD, h_ND=h_ND)["N"]
    V, blocks, m = len(w_VD), self.num_blocks(stats), stats.size.m
    size = -(-V // blocks)
    ids_NM = own_ids(ids, N)
    is_class_NM = is_class(ids_NM, V)
    ids_NM = jnp.clip(ids_NM, 0, V - 1)
    block_NM = ids_NM // size
    log_q_NM = jnp.zeros(ids_NM.shape)
    if blocks > 1:
      log_q_NM = self.log_blocks(stats, h_ND, block_NM)
    if self.whole_leaves:
      return jnp.where(is_class_NM, log_q_NM + math.log(m // size), -jnp.inf)
    if blocks == 1:
      _, weight_N1V = self._leaves(stats, w_VD, h_ND, jnp.zeros((N, 1), jnp.int32))
      log_q_NM = inverse_cdf.log_law(weight_N1V[:, 0], ids_NM)
      return jnp.where(is_class_NM, log_q_NM + math.log(m), -jnp.inf)
    # The blocks of the ids, or each block once if there are more ids than blocks.
    if ids_NM.shape[1] > blocks:
      block_NK, leaf_NM = jnp.broadcast_to(jnp.arange(blocks), (N, blocks)), block_NM
    else:
      block_NK, leaf_NM = (
        block_NM,
        jnp.broadcast_to(jnp.arange(ids_NM.shape[1]), ids_NM.shape),
      )
    log_q_NM += _at(self._leaves(stats, w_VD, h_ND, block_NK), leaf_NM, ids_NM)
    return jnp.where(is_class_NM, log_q_NM + math.log(m), -jnp.inf)

  def log_expected_in_range(
    self,
    stats: PyTree,
    w_VD: jax.Array,
    h_ND: jax.Array,
    y: Targets,
    first: jax.Array,
    num: int,
  ) -> jax.Array:
    """`log_expected` of the classes from `first` to `first + num - 1`, f32[N, num].

    The rows of their blocks are read once, for all examples. A subclass with another
    `log_expected` needs its own method.
    """
    N, V, blocks = len(h_ND), len(w_VD), self.num_blocks(stats)
    size = -(-V // blocks)
    ids_M = first + jnp.arange(num, dtype=jnp.int32)
    if blocks == 1 or self.whole_leaves:
      return self.log_expected(stats, w_VD, h_ND, y, ids_M)
    K = min(-(-num // size) + 1, blocks)
    start = jnp.clip(first // size, 0, blocks - K)
    block_1K = (start + jnp.arange(K, dtype=jnp.int32))[None]
    ids_1KE, mask_1KE = block_ids(block_1K, size, V)
    rows_PD = w_VD.at[ids_1KE.ravel()].get(mode="clip")
    o_NKE = logits(h_ND, rows_PD, jnp.float32).reshape(N, K, size)
    weight_NKE = self.leaf_weights(stats, h_ND, o_NKE, ids_1KE, mask_1KE)
    leaf_1M = jnp.clip(ids_M // size - start, 0, K - 1)[None]
    log_leaf_NM = _at((ids_1KE, weight_NKE), leaf_1M, ids_M[None])
    log_block_NK = self.log_blocks(stats, h_ND, jnp.broadcast_to(block_1K, (N, K)))
    log_q_NM = log_leaf_NM + log_block_NK[:, leaf_1M[0]]
    is_class_1M = is_class(ids_M, V)[None]
    return jnp.where(is_class_1M, log_q_NM + math.log(stats.size.m), -jnp.inf)

  def _leaves(self, stats, w_VD, h_ND, block_NK) -> tuple[jax.Array, jax.Array]:
    """Ids and weights of the classes of blocks, [N, K, E].

    For a single block the ids are [1, 1, V].
    """
    blocks, V = self.num_blocks(stats), len(w_VD)
    if blocks == 1:  # one product for all examples, and the same ids
      block_NK = jnp.zeros((1, 1), jnp.int32)
      o_NKE = logits(h_ND, w_VD, jnp.float32)[:, None, :]
    else:
      o_NKE = block_logits(h_ND, w_VD, block_NK, -(-V // blocks))
    ids_NKE, mask_NKE = block_ids(block_NK, -(-V // blocks), V)
    return ids_NKE, self.leaf_weights(stats, h_ND, o_NKE, ids_NKE, mask_NKE)


def _at(
  leaves: tuple[jax.Array, jax.Array], leaf_NM: jax.Array, ids_NM: jax.Array
) -> jax.Array:
  """Log-probabilities of classes in their blocks, f32[N, M].

  Args:
    leaves: ids and weights, [N, K, E].
    leaf_NM: which of the K blocks has each class.
    ids_NM: the classes.
  """
  ids_NKE, weight_NKE = leaves
  N, K, E = weight_NKE.shape
  rows = weight_NKE.reshape(N * K, E)
  entries = jnp.broadcast_to(jnp.arange(E), rows.shape)
  log_leaf_NP = inverse_cdf.log_law(rows, entries).reshape(N, K * E)
  first_NM = jnp.take_along_axis(ids_NKE[:, :, 0], leaf_NM, axis=1)
  index_NM = leaf_NM * E + ids_NM - first_NM
  index_NM = jnp.broadcast_to(index_NM, (N, index_NM.shape[1]))
  return jnp.take_along_axis(log_leaf_NP, index_NM, axis=1)


def softmax_weights(o_NKE: jax.Array, mask_NKE: jax.Array, score: Score) -> jax.Array:
  """exp(o), or exp(|o|), relative to the largest in each block; 0 where masked.

  >>> o, mask = jnp.array([[[0.0, 7.0]]]), jnp.array([[[True, False]]])
  >>> softmax_weights(o, mask, jnp.abs).tolist()
  [[[1.0, 0.0]]]
  """
  score_NKE = jnp.where(mask_NKE, score(o_NKE), LOG_ZERO)
  return jnp.exp(score_NKE - score_NKE.max(axis=-1, keepdims=True)) * mask_NKE


def _whole(
  block_NK: jax.Array, log_q_NK: jax.Array, size: int, num_classes: int, m: int
) -> Draw:
  """All classes of the drawn blocks as one draw; the unused rest of m is masked."""
  N, K = block_NK.shape
  ids_NKE, mask_NKE = block_ids(block_NK, size, num_classes)
  ids_NKE = jnp.where(mask_NKE, ids_NKE, block_NK[:, :, None] * size)
  log_expected_NK1 = log_q_NK[:, :, None] + math.log(K)
  log_expected_NKE = jnp.broadcast_to(log_expected_NK1, ids_NKE.shape)
  unused = m - K * size
  fill = lambda x, mode: jnp.pad(x.reshape(N, -1), ((0, 0), (0, unused)), mode=mode)
  return Draw(
    fill(ids_NKE, "edge"), fill(log_expected_NKE, "edge"), fill(mask_NKE, "constant")
  )
