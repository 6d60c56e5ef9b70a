"""Softmax trained with an upper bound on Z, estimated from a random set of classes."""

from dataclasses import field

from largevocab.errors import UserError
from largevocab.fields import settings
from largevocab.heads.sampling import SamplingHead
from largevocab.losses.upper_bound import upper_bound_loss
from largevocab.samplers.base import Sampler
from largevocab.samplers.bernoulli import Bernoulli


@settings
class UpperBound(SamplingHead):
  """loss = log B - o_y, where E B bounds Z from above: see `losses.upper_bound_loss`.

  The model is the softmax, and `evaluate` is exact.

  Attributes:
    sampler: must draw distinct classes, as `bernoulli` or `pps` do. With `smoothing` 0
      classes without counts are never drawn, and B is no bound.

  Source: Barber & Botev 2016, section 5, equation 48.
  """

  sampler: Sampler = field(default_factory=Bernoulli)

  def __post_init__(self):
    super().__post_init__()
    if not getattr(self.sampler, "distinct", False):
      raise UserError(
        "head.sampler may draw a class twice, and the bound is one of sets: choose "
        "'bernoulli', 'pps' or 'ivf'"
      )

  def monitor(self, state, h_ND, y, key):
    """Diagnostics of a sampled softmax with the same draws, without its bias, which
    differs from that of this head."""
    metrics = super().monitor(state, h_ND, y, key)
    del metrics["log_z_bias"]
    return metrics

  def loss(self, o_NP, o_NM, scored):
    others = scored.candidates
    return upper_bound_loss(
      *(o_NP, scored.w_NP, scored.true_NP),
      *(o_NM, others.log_expected, others.mask),
      scored.num_classes,
    )
