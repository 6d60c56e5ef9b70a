"""Draws by an inverted multi-index: the softmax of quantised class rows.

The letter K stands for the number of words of a codebook, L = K^2 for the number of
cells, and A and B for the widths of the two codebooks.
"""

import math
from functools import partial
from typing import Annotated, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.fields import Between, OneOf, settings
from largevocab.labels import Counts, Targets, is_class
from largevocab.ops.draws import inverse_cdf, kmeans
from largevocab.ops.draws.integers import below
from largevocab.ops.draws.strata import apportion
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import wide
from largevocab.ops.softmax.log_partition import score_of
from largevocab.samplers.base import Draw, NoUpkeep, Size, own_ids
from largevocab.samplers.static import Power, Smoothing, check_counts, count_weights

_LEAST = -40.0  # least value of <h, w~>, relative to the largest
_MOST = 2**31 - 1
_SEED = 0x2545F491  # for the first codebooks; unlikely as the seed of a training run


class MIDXStats(NamedTuple):
  """Statistics of `MIDX`. Classes lie side by side, cell after cell.

  Attributes:
    first_KA: f32[K, A], the first codebook.
    second_KB: f32[K, B], the second codebook.
    length_V: i32[V], the weight of each class.
    cell_V: i32[V], the cell of each class.
    class_V: i32[V], the classes, ascending in each cell.
    end_V: i32[V], cumulative sums of the lengths of `class_V`, including each class.
    mass_L: i32[L], the total length of each cell.
    size: number of draws.
  """

  first_KA: jax.Array
  second_KB: jax.Array
  length_V: jax.Array
  cell_V: jax.Array
  class_V: jax.Array
  end_V: jax.Array
  mass_L: jax.Array
  size: Size


@settings
class MIDX:
  """q(c | h) proportional to f_c exp(<h, w~_c>), m independent draws per example.

  w~_c is the row of c, quantised by two codebooks of K words.

  Classes with the same two words form a cell, and all of them have the same quantised
  row. A cell is drawn in proportion to its sum of f_c times exp(<h, w~>), and then one
  of its classes in proportion to f_c.

  With 'residual', w~ is the nearest word of the first codebook plus the word of the
  second codebook that is nearest to the difference. With 'product', each codebook
  quantises half of the columns. Both codebooks are learned by k-means over the rows at
  each refresh, starting from the previous codebooks. Between refreshes words and cells
  do not change, even if rows do: the proposal distribution lags behind the model, but
  is known exactly.

  Attributes:
    codewords: K, the number of words of a codebook.
    quantizer: 'residual' or 'product'.
    iterations: steps of Lloyd's algorithm for each codebook at each refresh.
    power, smoothing: f_c = (count_c + smoothing)^power; 1 if the power is 0.
    absolute: use |<h, w~>| in place of <h, w~>, for models that take |o| as logits. A
      head with another setting is refused.

  Source: Chen et al. 2022, and Chen et al. 2025 (MIDX-pq and MIDX-rq with uniform draws
    in a cell); inverted multi-index: Babenko and Lempitsky 2012. Deviations: both words
    are drawn at once, with the same probability as one after the other. `log_expected`
    has the normaliser over all cells. The authors' code leaves it out, as it cancels in
    their loss, but it does not cancel in an estimate of the partition function.
    exp(<h, w~>) is at least e^-40 of the largest, so that every class can be drawn.
    Words are learned by k-means, not by gradients.
  Cost: a draw O(K^2 + K D + m log V) an example; `refresh` 2 (iterations + 1) V K D and
    a sort of V; `update` none. State: 2 K D numbers, K^2, and 16 bytes a class.

  >>> sampler, w_VD = MIDX(codewords=2), jnp.array([[0.0], [1.0], [1.0]])
  >>> stats = sampler.init(Counts(np.ones(3, int)), w_VD, 8)
  >>> draw = sampler.sample(stats, w_VD, jax.random.key(0), jnp.array([[99.0]]), None)
  >>> bool((draw.ids == 0).any())
  False
  """

  independent: ClassVar[bool] = True

  codewords: Annotated[int, Between(1, 4096)] = 32
  quantizer: Annotated[str, OneOf("residual", "product")] = "residual"
  iterations: Annotated[int, Between(1, 1000)] = 2
  power: Power = 0.0
  smoothing: Smoothing = 1.0
  absolute: bool = False

  def init(self, counts: Counts, w_VD: jax.Array, m: int) -> MIDXStats:
    V = check_shapes(w_VD=w_VD)["V"]
    length_V = np.ones(V, np.int64)
    if self.power > 0:
      weight_V = count_weights(check_counts(counts, w_VD), self.power, self.smoothing)
      length_V = apportion(weight_V, _MOST)
    length_V = jnp.asarray(length_V, jnp.int32)
    words, key = min(self.codewords, V), jax.random.key(_SEED)
    return _index(self, w_VD, (), words, length_V, key, Size(m))

  def sample(
    self,
    stats: MIDXStats,
    w_VD: jax.Array,
    key: jax.Array,
    h_ND: jax.Array,
    y: Targets,
  ) -> Draw:
    m, (k_cell, k_class) = stats.size.m, jax.random.split(key)
    cell_NM, log_q_NM = inverse_cdf.draw(k_cell, self._weights(stats, h_ND), m)
    mass_NM = stats.mass_L[cell_NM]
    start_L = jnp.cumsum(stats.mass_L) - stats.mass_L
    at_NM = start_L[cell_NM] + below(k_class, jnp.maximum(mass_NM, 1))
    place_NM = jnp.searchsorted(stats.end_V, at_NM, side="right")
    ids_NM = stats.class_V[jnp.minimum(place_NM, len(stats.class_V) - 1)]
    log_q_NM += jnp.log(stats.length_V[ids_NM] / mass_NM)
    return Draw(ids_NM, log_q_NM + math.log(m), jnp.ones(ids_NM.shape, bool))

  def log_expected(
    self,
    stats: MIDXStats,
    w_VD: jax.Array,
    h_ND: jax.Array,
    y: Targets,
    ids: jax.Array,
  ) -> jax.Array:
    ids_NM = own_ids(ids, len(h_ND))
    is_class_NM = is_class(ids_NM, len(stats.cell_V))
    cell_NM = stats.cell_V.at[ids_NM].get(mode="clip")
    length_NM = stats.length_V.at[ids_NM].get(mode="clip")
    log_q_NM = inverse_cdf.log_law(self._weights(stats, h_ND), cell_NM)
    log_q_NM += jnp.log(length_NM / stats.mass_L[cell_NM])
    # A class without weight may be the only one of its cell.
    is_drawn_NM = is_class_NM & (length_NM > 0)
    return jnp.where(is_drawn_NM, log_q_NM + math.log(stats.size.m), -jnp.inf)

  update = NoUpkeep.update

  def refresh(self, stats: MIDXStats, w_VD: jax.Array, key: jax.Array) -> MIDXStats:
    books = stats.first_KA, stats.second_KB
    words = len(stats.first_KA)
    return _index(self, w_VD, books, words, stats.length_V, key, stats.size)

  def _weights(self, stats: MIDXStats, h_ND: jax.Array) -> jax.Array:
    """Weights of the cells, [N, L]."""
    h_ND = jax.lax.stop_gradient(h_ND)
    A, D = stats.first_KA.shape[1], h_ND.shape[1]
    h_NB = h_ND[:, A:] if A < D else h_ND
    first_NK = jnp.matmul(h_ND[:, :A], stats.first_KA.T)
    second_NK = jnp.matmul(h_NB, stats.second_KB.T)
    o_NKK = first_NK[:, :, None] + second_NK[:, None, :]
    s_NL = score_of(self.absolute)(o_NKK).reshape(len(h_ND), -1)
    is_cell_1L = stats.mass_L[None] > 0
    top_N1 = jnp.max(jnp.where(is_cell_1L, s_NL, -jnp.inf), axis=1, keepdims=True)
    weight_NL = stats.mass_L[None] * jnp.exp(jnp.clip(s_NL - top_N1, _LEAST, 0))
    return jnp.where(is_cell_1L, weight_NL, 0)


@partial(jax.jit, static_argnums=(0, 3))
def _index(
  sampler: MIDX,
  w_VD: jax.Array,
  books: tuple[jax.Array, ...],
  words: int,
  length_V: jax.Array,
  key: jax.Array,
  size: Size,
) -> MIDXStats:
  """The statistics of a table.

  Args:
    books: the previous codebooks; if empty, random rows are used.
    words: K.
  """
  is_product, half = sampler.quantizer == "product", w_VD.shape[1] // 2

  def of_first(ids_C, w_CD):
    return w_CD[:, :half] if is_product else w_CD

  def of_second(ids_C, w_CD):
    if is_product:
      return w_CD[:, half:]
    return wide(w_CD) - first_KA[word_V[ids_C]]

  def learned(number, points):
    k_rows, *keys = jax.random.split(
      jax.random.fold_in(key, number), 1 + sampler.iterations
    )
    book = books[number] if books else kmeans.random_rows(k_rows, w_VD, words, points)
    for key_i in keys:
      book = kmeans.lloyd_step(w_VD, book, key_i, points)
    return book, kmeans.nearest(w_VD, book, points=points)

  first_KA, word_V = learned(0, of_first)
  second_KB, other_V = learned(1, of_second)
  cell_V = word_V * words + other_V
  class_V = kmeans.members(cell_V, words * words).class_V
  mass_L = jax.ops.segment_sum(length_V, cell_V, num_segments=words * words)
  end_V = jnp.cumsum(length_V[class_V])
  # A copy: arrays of statistics must be distinct, since they may be donated.
  length_V = jnp.copy(length_V)
  return MIDXStats(first_KA, second_KB, length_V, cell_V, class_V, end_V, mass_L, size)
