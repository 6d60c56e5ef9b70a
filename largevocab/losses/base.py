"""The interface of sampled losses, as settings of the head `largevocab.heads.Sampled`.

They are functions of the scores of the true classes and of candidates.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import jax

from largevocab.ops.softmax.log_partition import Change


@dataclass(frozen=True)
class Scores:
  """The scores of N examples, for P true classes and M candidates each.

  Scores that are masked, or of weight 0, may be any finite number.

  Attributes:
    o_NP: f32[N, P], scores of the true classes.
    w_NP: f32[N, P], their weights, divided by the total weight of the batch.
    true_NP: bool[N, P], False on padding and repeated classes.
    o_NM: f32[N, M], scores of the candidates.
    log_expected_NM: f32[N, M], their log expected counts; 0 in exact sets.
    mask_NM: bool[N, M], which candidates count for which example.
    log_expected_true: computes the log expected counts of the true classes in a draw,
      f32[N, P]; -inf if they are never drawn.
    log_weights: computes the log importance weights of the true classes, f32[N, P] or
      f32[N, 1], and of the candidates, f32[N, M], in an unbiased estimate of the
      partition function.
    num_samples: m, the size of the draw that was asked for.
    num_classes: V.
  """

  o_NP: jax.Array
  w_NP: jax.Array
  true_NP: jax.Array
  o_NM: jax.Array
  log_expected_NM: jax.Array
  mask_NM: jax.Array
  log_expected_true: Callable[[], jax.Array]
  log_weights: Callable[[], tuple[jax.Array, jax.Array]]
  num_samples: int
  num_classes: int


class SampledLoss(abc.ABC):
  """A loss that reads the true classes and candidates only.

  Attributes:
    likelihood: the loss estimates the cross-entropy of the softmax. Otherwise
      `Sampled.evaluate` also reports the log-partition function of the scores, and
      exact sets are refused.
    keeps_hits: accidental hits (candidates that are true classes) stay in the loss.
    needs_sets: draws must be without replacement.
    needs_noise: draws must not depend on the true classes, nor be a deterministic
      choice that never includes most of the classes.
  """

  likelihood: ClassVar[bool] = False
  keeps_hits: ClassVar[bool] = False
  needs_sets: ClassVar[bool] = False
  needs_noise: ClassVar[bool] = False

  @property
  def weighs(self) -> bool:
    """Whether the loss uses the probabilities of the drawn classes."""
    return True

  @property
  def active_set(self) -> bool:
    """Whether drawn classes count once each, with weight 1, without logQ correction."""
    return False

  @property
  def estimates_log_z(self) -> bool:
    """Whether the loss is a weighted estimate of log Z, whose bias is monitored."""
    return False

  @abc.abstractmethod
  def __call__(self, scores: Scores) -> jax.Array:
    """The loss, f32[], nats: the weighted mean over the batch."""

  def num_log_z(self, num_classes: int) -> int:
    """Number of learned log-partition functions, subtracted from the scores."""
    return 0

  def initial_bias(self, num_classes: int) -> float:
    """Initial value of the classes' biases."""
    return 0.0

  def change(self, log_expected_V: jax.Array, num_samples: int) -> Change | None:
    """How scores become logits of the model for evaluation; None: they are logits.

    Args:
      log_expected_V: f32[V], log expected counts of all classes in a draw.
      num_samples: M.
    """
    return None
