"""How the heads `Full` and `Sampled` make logits from activations and class rows."""

from collections.abc import Callable
from typing import Annotated, Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from largevocab.errors import UserError
from largevocab.fields import Between, Positive, settings
from largevocab.ops import shards
from largevocab.ops.activations import Activations
from largevocab.ops.cosine import inverse_norm, tangent, unit, with_margin
from largevocab.ops.pair_logits import of_pairs
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import wide
from largevocab.ops.softmax.log_partition import Change, ChunkScore, Score
from largevocab.rows import RowGrads, Table, looked_up_grads
from largevocab.samplers.base import follows_products


@runtime_checkable
class Logits(Protocol):
  """Logits as functions of products <x, w>, where x are features of the activation."""

  def check(self, head: Any) -> None:
    """Raises a UserError if these logits and other settings of the head conflict."""
    ...

  def features(self, h_ND: jax.Array) -> jax.Array:
    """Features x, [N, D'], that the head multiplies with rows; h_ND is f32[N, D]."""
    ...

  def rows(self, w_RD: jax.Array) -> jax.Array:
    """Class rows w_RD as they are evaluated, f32[R, D'].

    Logits are their products with x. The rows of cosines have length 1.
    """
    ...

  def score(self, score: Score) -> ChunkScore:
    """The score that an exact loss applies to a chunk of products.

    `score` is the score for linear logits.
    """
    ...

  def of_pairs(
    self, w_VD: jax.Array, ids_NS: jax.Array, shared_T: jax.Array, num_true: int
  ) -> Callable[[jax.Array], jax.Array]:
    """The function from products of pairs, as in `pair_logits`, to logits.

    The first `num_true` products of an example are those of true classes.
    """
    ...

  def row_gradient(
    self, w_VD: jax.Array, ids_R: jax.Array, rows_RD: jax.Array
  ) -> jax.Array:
    """The gradient f32[R, D'] of the rows `ids_R`.

    `rows_RD` is the gradient through the products <x, w_c>. This method adds the
    gradient through |w_c|, on which cosines depend.
    """
    ...

  def change(self, w_VD: jax.Array) -> Change | None:
    """The function from products of x with all rows to the logits of evaluation.

    None if the products are the logits.
    """
    ...


@settings
class Linear:
  """o_c = <w_c, h> + b_c."""

  def check(self, head):
    pass  # all settings agree with these logits

  def features(self, h_ND):
    return h_ND

  def rows(self, w_RD):
    return w_RD

  def score(self, score):
    return score

  def of_pairs(self, w_VD, ids_NS, shared_T, num_true):
    return lambda o: o

  def row_gradient(self, w_VD, ids_R, rows_RD):
    return rows_RD

  def change(self, w_VD):
    return None


@settings
class Cosine:
  """o_c = s cos(theta_c), where theta_c is the angle between w_c and h.

  In training, the true classes have a margin:

    o_y = s (cos(theta_y + angular) - additive),

  so that an example has to be nearer to its class by this margin. `evaluate`, `top_k`
  and `monitor` use no margins. Rows and activations are stored as they are, and
  normalised in each step: gradients are with respect to w and h of any length. If an
  example has several true classes, each has the margin, wherever its logit occurs.

  Beyond theta + angular = pi, the cosine is continued as in `with_margin`. A vector of
  0 has cosines of 0, to which margins are applied, and gradients of 0.

  Attributes:
    scale: s, the inverse of a temperature.
    angular: margin of the angle, in radians; 0.5 in ArcFace.
    additive: margin of the cosine; 0.35 in CosFace.

  Source: Deng et al. 2019, equation 3 (ArcFace: `angular`); Wang et al. 2018 (CosFace:
    `additive`).
  Cost: norms of the rows that a step reads: O(1) numbers for each row, and one more
    read of each row. No normalised table is held.

  >>> from largevocab.heads import Full
  >>> from largevocab.labels import single_targets
  >>> head = Full(bias=False, logits=Cosine(scale=8.0, angular=0.5))
  >>> state = head.init(jax.random.key(0), [3, 2, 1], 4)
  >>> h_ND, y = jnp.ones((1, 4)), single_targets([1])
  >>> a, b = (head.backward(state, s * h_ND, y, None).loss for s in (1.0, 5.0))
  >>> bool(jnp.allclose(a, b))
  True
  """

  scale: Positive = 64.0
  angular: Annotated[float, Between(0, 1.57)] = 0.0
  additive: Annotated[float, Between(0, 2)] = 0.0

  def check(self, head):
    sampler: Any = getattr(head, "sampler", None)
    if head.bias or head.absolute:
      raise UserError(
        "head.logits are cosines, which have neither bias nor absolute value: set "
        "head.bias and head.absolute to False"
      )
    if not head.init_scale:
      raise UserError(
        "head.init_scale is 0, but rows of zeros have no cosine: set it above 0"
      )
    if follows_products(sampler):
      raise UserError(
        "head.sampler follows <w, h>, but head.logits are cosines: choose a sampler by "
        "counts, or one that follows directions: 'rf_softmax', 'rece', or "
        "'lsh_embedding' or 'lsh_label' with a family other than 'mips'"
      )
    loss: Any = getattr(head, "loss", None)
    if self._has_margin and loss and (not loss.likelihood or loss.keeps_hits):
      raise UserError(
        "head.logits has a margin, which this loss does not support: set its angular "
        "and additive to 0, or choose the loss 'softmax' or 'upper_bound'"
      )

  def features(self, h_ND):
    return self.scale * unit(h_ND)

  def rows(self, w_RD):
    return unit(w_RD)

  def score(self, score):
    return self

  def of_rows(self, o_NV: jax.Array, w_VD: jax.Array, at_NP: jax.Array) -> jax.Array:
    """Logits in training, see `largevocab.ops.softmax.log_partition.RowScore`."""
    s_NV = o_NV * inverse_norm(w_VD)[None]
    if not self._has_margin:
      return s_NV
    s_NP = jnp.take_along_axis(s_NV, at_NP, axis=1, mode="fill", fill_value=0)
    at_N1 = jnp.arange(len(at_NP))[:, None]
    return s_NV.at[at_N1, at_NP].set(self._with_margin(s_NP), mode="drop")

  def of_pairs(self, w_VD, ids_NS, shared_T, num_true):
    inverse = of_pairs(lambda w: inverse_norm(wide(w)), w_VD, ids_NS, shared_T)

    def logits(o):
      s = o * inverse
      if not self._has_margin:
        return s
      true_NP = self._with_margin(s[:, :num_true])
      return jnp.concatenate([true_NP, s[:, num_true:]], axis=1)

    return logits

  def row_gradient(self, w_VD, ids_R, rows_RD):
    return tangent(wide(w_VD.at[ids_R].get(mode="clip")), rows_RD)

  def change(self, w_VD):
    inverse_V = inverse_norm(wide(w_VD))
    return lambda o_NV, ids_V: o_NV * inverse_V[ids_V][None]

  @property
  def _has_margin(self) -> bool:
    return self.angular > 0 or self.additive > 0

  def _with_margin(self, s_NP):
    return self.scale * with_margin(s_NP / self.scale, self.angular, self.additive)


LOGITS = {"linear": Linear, "cosine": Cosine}


def class_rows(logits: Logits, w_VD: jax.Array, ids_R: jax.Array) -> jax.Array:
  """Rows of a table as they are multiplied, including classes of other devices."""
  return logits.rows(wide(shards.rows_of(w_VD, ids_R)))


def class_row_grads(
  logits: Logits,
  table: Table,
  ids_R: jax.Array,
  g_RD: jax.Array,
  given: Activations | None,
) -> RowGrads:
  """The gradient of a table, from that of the first D columns of `class_rows`.

  Raises:
    ValueError: the numbers of ids and of rows differ.
    UserError: the width of the rows is not that of the activations that the head was
      made for.
  """
  check_shapes(ids_R=ids_R, g_RD=g_RD)
  if given is not None and g_RD.shape[1] != given.dim:
    raise UserError(
      f"g_RD has {g_RD.shape[1]} columns, but the head was made for dim={given.dim}: "
      f"pass the gradient of the first {given.dim} columns of class_rows"
    )
  w_RE = wide(shards.rows_of(table.w_VD, ids_R))
  g_RE = jnp.pad(wide(g_RD), ((0, 0), (0, w_RE.shape[1] - g_RD.shape[1])))
  (g_RE,) = jax.vjp(logits.rows, w_RE)[1](g_RE)
  return looked_up_grads(table, ids_R, g_RE)
