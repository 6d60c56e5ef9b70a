"""The classes of the largest logits: the hardest negatives, chosen without sampling."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from largevocab.fields import settings
from largevocab.labels import Counts, Targets
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax import top_k
from largevocab.ops.softmax.log_partition import score_of
from largevocab.samplers.base import Draw, NoUpkeep, Size, log_certain_at, own_ids


@settings
class TopK(NoUpkeep):
  """The m classes of the largest logits of each example, deterministically.

  They are not a random sample: all other classes are left out. A loss that treats them
  as a sample is therefore biased, and its log-partition function is too small. Classes
  outside the top m get no negative gradient. This is a baseline, and the exact version
  of what LSH approximates.

  Attributes:
    absolute: choose by |o|, for models that take |o| as logits. A head with another
      setting is refused.

  Source: Daghaghi et al. 2021, section 3.2, TopK Softmax.
  Cost: a product of N V D a draw, as expensive as the exact loss, and the selection of
    the largest; see `ops/softmax/top_k.py`.
  """

  is_choice: ClassVar[bool] = True
  absolute: bool = False

  def init(self, counts: Counts, w_VD: jax.Array, m: int) -> Size:
    return Size(m)

  def sample(
    self,
    stats: Size,
    w_VD: jax.Array,
    key: jax.Array,
    h_ND: jax.Array,
    y: Targets,
  ) -> Draw:
    ids_NK = self._best(w_VD, h_ND, stats.m)
    unused = stats.m - ids_NK.shape[1]
    pad = lambda x_NK, mode: jnp.pad(x_NK, ((0, 0), (0, unused)), mode=mode)
    mask_NM = pad(jnp.ones(ids_NK.shape, bool), "constant")
    return Draw(pad(ids_NK, "edge"), jnp.zeros(mask_NM.shape), mask_NM)

  def log_expected(
    self,
    stats: Size,
    w_VD: jax.Array,
    h_ND: jax.Array,
    y: Targets,
    ids: jax.Array,
  ) -> jax.Array:
    ids_NM = own_ids(ids, len(h_ND))
    return log_certain_at(self._best(w_VD, h_ND, stats.m), ids_NM, len(w_VD))

  def _best(self, w_VD: jax.Array, h_ND: jax.Array, m: int) -> jax.Array:
    check_shapes(w_VD=w_VD, h_ND=h_ND)
    w_VD, h_ND = jax.lax.stop_gradient((w_VD, h_ND))
    score = score_of(self.absolute)
    return top_k.top_k(h_ND, w_VD, min(m, len(w_VD)), score=score, row_major=True)[0]
