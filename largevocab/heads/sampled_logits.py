"""The logits of a draw, for a sampled loss in training code without a head."""

import jax
import jax.numpy as jnp

from largevocab.heads.base import total_weight
from largevocab.heads.candidates import candidates, true_mask
from largevocab.labels import Targets, known_targets
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import compute_dtype, logits, product
from largevocab.samplers.base import Draw


def sampled_logits(
  draw: Draw,
  h_ND: jax.Array,
  w_VD: jax.Array,
  y: Targets,
  log_expected_NP: jax.Array | None = None,
  keep_hits: bool = False,
) -> dict[str, jax.Array]:
  """The logits of a draw, as arguments of `sampled_softmax_loss`.

  They are the logits o = <w_c, h> of the true classes and of the drawn ones, with the
  logQ correction.

  Draws may be shared by the batch or made for each example. Accidental hits are masked.
  Classes that the sampler wants summed exactly (`Draw.exact_ids`) are among the
  negatives, with expected count 1. The loss is the mean over the batch, by the weights
  of its examples. The result is differentiable in h and W, except for rows that are
  constants (`Draw.constant`).

  Args:
    draw: result of `Sampler.sample` for this batch. The sampler must have a known
      proposal distribution (`weighable`); LSH with draw='fill' does not.
    h_ND: float[N, D].
    w_VD: float[V, D]. For a bias append a constant column to h.
    y: the true classes. An id that is no class and has weight makes the loss NaN.
    log_expected_NP: for `blackout_loss` and `nce_loss`: log expected counts of the true
      classes in a draw, `sampler.log_expected(stats, w_VD, h_ND, y, y.ids_NP)`.
    keep_hits: keep accidental hits, as needed by `nce_loss`.

  Returns:
    {'o_NP', 'w_NP', 'true_NP', 'o_NM', 'log_expected_NM', 'mask_NM'}, with the M drawn
    and exactly summed classes. Logits and losses are at least float32. If
    `log_expected_NP` is given, it takes the place of 'true_NP'. Together with
    `num_classes`, the result is also what `upper_bound_loss` takes, for a sampler of
    distinct classes.

  Raises:
    ValueError: shapes do not agree.

  Deviation: independent draws of each example have the weight 1 / expected count. The
    weights of the head `Sampled` are different and vary less (`complement_weights`).
    The estimate of the partition function is unbiased with both.
  Cost: O(N (P + M) D). The gradient of W is dense; that of `Sampled` has few rows.

  >>> from largevocab import Counts, single_targets
  >>> from largevocab.losses import sampled_softmax_loss
  >>> from largevocab.samplers import Unigram
  >>> w_VD, h_ND, y = jnp.zeros((9, 4)), jnp.ones((2, 4)), single_targets([3, 1])
  >>> sampler, key = Unigram(per_example=True), jax.random.key(0)
  >>> stats = sampler.init(Counts([1] * 9), w_VD, 5)
  >>> draw = sampler.sample(stats, w_VD, key, h_ND, y)
  >>> sampled_softmax_loss(**sampled_logits(draw, h_ND, w_VD, y)).shape
  ()
  >>> from largevocab.losses import nce_loss
  >>> log_NP = sampler.log_expected(stats, w_VD, h_ND, y, y.ids_NP)
  >>> nce_loss(**sampled_logits(draw, h_ND, w_VD, y, log_NP, keep_hits=True)).shape
  ()
  """
  check_shapes(h_ND=h_ND, w_VD=w_VD, **y._asdict())
  if log_expected_NP is not None:
    check_shapes(ids_NP=y.ids_NP, log_expected_NP=log_expected_NP)
  h_ND, w_VD = jnp.asarray(h_ND), jnp.asarray(w_VD)
  dtype = compute_dtype(h_ND, w_VD)
  y = known_targets(y, len(w_VD))
  others = candidates(jax.lax.stop_gradient(draw), [], y, len(w_VD), keep_hits)
  num_own, constant_NM = others.own_NS.shape[1], others.constant
  if constant_NM is None:
    constant_NM = jnp.zeros(others.mask.shape, bool)

  def rows(ids, is_constant):
    rows = w_VD.at[ids].get(mode="clip")
    return jnp.where(is_constant[..., None], jax.lax.stop_gradient(rows), rows)

  of_each = lambda rows_NSD: product("nd,nsd->ns", h_ND, rows_NSD, dtype)
  o_NS = of_each(rows(others.own_NS, constant_NM[:, :num_own]))
  o_NT = logits(h_ND, rows(others.shared_T, constant_NM[0, num_own:]), dtype)
  of_true = {"true_NP": true_mask(y, len(w_VD))}
  if log_expected_NP is not None:
    log_expected_NP = others.expected_of_true(log_expected_NP, y.ids_NP)
    of_true = {"log_expected_NP": jax.lax.stop_gradient(log_expected_NP)}
  return {
    **of_true,
    "o_NP": of_each(w_VD.at[y.ids_NP].get(mode="clip")),
    "w_NP": y.w_NP / total_weight(y),
    "o_NM": others.known(jnp.concatenate([o_NS, o_NT], axis=1), len(w_VD)),
    "log_expected_NM": others.log_expected,
    "mask_NM": others.mask,
  }
