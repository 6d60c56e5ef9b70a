"""What defines a run: frozen dataclasses; their fields are the keys of a config."""

import math
from dataclasses import dataclass, field
from typing import Any

from largevocab.errors import UserError
from largevocab.heads.base import Head
from largevocab.rows import RowOptimizer


@dataclass(frozen=True)
class Training:
  """Length, learning rate and batches of training.

  The learning rate is lr for `hold_epochs` epochs and is then multiplied by `decay` at
  the beginning of each further epoch.

  Attributes:
    epochs: passes over the training data.
    max_steps: stop after so many steps; 0: after `epochs`.
    batch_size: B, parallel streams, or examples that stand alone.
    unroll: T, time steps per update (truncated back-propagation); 1 where examples
      stand alone.
    lr: learning rate for the mean loss per token.
    hold_epochs: epochs at the full learning rate.
    decay: factor per epoch after that.
    head_lr_factor: the head learns at head_lr_factor * lr.
    clip_norm: bound on the norm of the gradient of network, inputs and head together;
      0: none.
    seed: of initialisation, dropout and negatives.
  """

  epochs: float = 13.0
  max_steps: int = 0
  batch_size: int = 20
  unroll: int = 20
  lr: float = 1.0
  hold_epochs: float = 4.0
  decay: float = 1.0
  head_lr_factor: float = 1.0
  clip_norm: float = 5.0
  seed: int = 0

  def __post_init__(self):
    for name in ("batch_size", "unroll", "lr", "epochs", "decay", "head_lr_factor"):
      if not 0 < getattr(self, name) < math.inf:
        raise UserError(
          f"train.{name} is {getattr(self, name)}; it must be positive and finite"
        )
    for name in ("max_steps", "clip_norm", "hold_epochs", "seed"):
      if not 0 <= getattr(self, name) < math.inf:
        raise UserError(
          f"train.{name} is {getattr(self, name)}; it must not be negative or infinite"
        )

  def num_steps(self, steps_per_epoch: int) -> int:
    """Steps of the whole run.

    >>> Training(epochs=2).num_steps(100)
    200
    """
    steps = max(round(self.epochs * steps_per_epoch), 1)
    return min(steps, self.max_steps) if self.max_steps else steps

  def learning_rate(self, step: int, steps_per_epoch: int) -> float:
    """The learning rate of a step.

    >>> t = Training(lr=1.0, hold_epochs=4, decay=0.5)
    >>> [t.learning_rate(epoch * 10, 10) for epoch in (0, 3, 4, 6)]
    [1.0, 1.0, 0.5, 0.125]
    """
    epoch = step // steps_per_epoch
    return self.lr * self.decay ** max(epoch + 1 - self.hold_epochs, 0.0)


@dataclass(frozen=True)
class Evaluating:
  """When and how the exact loss on held-out data is measured.

  Attributes:
    every_epochs: epochs between evaluations on the validation data; 0: at the end only.
    batch_size: B of evaluation; each of the B streams begins with an empty state.
    unroll: T of evaluation.
    ranking_k: measure 'recall@k' and 'mrr@k' for this k as well; 0: do not.
    precision_k: measure 'p@k', 'ndcg@k' and, with the propensities of the classes,
      'psp@k' for each of these k as well.
    propensity_a, propensity_b: the constants of propensities, see
      `largevocab.retrieval`.
    word_pairs: files like those of SimLex-999 and WordSim-353, or glob patterns, by
      which the rows of words are measured with the validation data, see
      `largevocab.similarity`.
  """

  every_epochs: float = 1.0
  batch_size: int = 20
  unroll: int = 20
  ranking_k: int = 0
  precision_k: tuple[int, ...] = ()
  propensity_a: float = 0.55
  propensity_b: float = 1.5
  word_pairs: tuple[str, ...] = ()

  def __post_init__(self):
    if self.ranking_k < 0:
      raise UserError(f"eval.ranking_k is {self.ranking_k}; it must not be negative")
    if not all(isinstance(k, int) and k > 0 for k in self.precision_k):
      raise UserError(
        f"eval.precision_k is {self.precision_k}; give positive numbers, as in (1, 3)"
      )
    if not (self.propensity_a >= 0 and self.propensity_b > 0):
      raise UserError(
        f"eval.propensity_a is {self.propensity_a}, eval.propensity_b "
        f"{self.propensity_b}; the one must not be negative, the other positive"
      )
    if not all(isinstance(path, str) and path for path in self.word_pairs):
      raise UserError(
        f"eval.word_pairs is {self.word_pairs}; give files, as in ('SimLex-999.txt',)"
      )
    if min(self.batch_size, self.unroll) <= 0 or not 0 <= self.every_epochs < math.inf:
      raise UserError(
        f"eval.batch_size = {self.batch_size} and eval.unroll = {self.unroll} must be "
        f"positive, eval.every_epochs = {self.every_epochs} not negative"
      )

  @property
  def top(self) -> int:
    """How many of the best classes are looked at.

    >>> Evaluating(ranking_k=2, precision_k=(1, 5)).top
    5
    """
    return max(self.ranking_k, *self.precision_k, 0)

  def every_steps(self, steps_per_epoch: int) -> int:
    """Steps between evaluations; 0: none before the end.

    >>> Evaluating(every_epochs=0.5).every_steps(100)
    50
    """
    if not self.every_epochs:
      return 0
    return max(round(self.every_epochs * steps_per_epoch), 1)


@dataclass(frozen=True)
class Checkpointing:
  """When state is saved.

  Attributes:
    every_steps: steps between checkpoints.
    keep: how many of the latest to keep; the best on validation data is kept as well.
  """

  every_steps: int = 2000
  keep: int = 2

  def __post_init__(self):
    if self.every_steps <= 0 or self.keep <= 0:
      raise UserError(
        f"checkpoint.every_steps = {self.every_steps} and checkpoint.keep = "
        f"{self.keep} must be positive"
      )


@dataclass(frozen=True)
class Logging:
  """How often training metrics are written.

  Attributes:
    every_steps: steps between lines.
    monitor_every_steps: steps between measurements of how good the sample of a head
      is, or how true its statistics ('monitor/relvar' and others, see `Head.monitor`),
      which take all logits of a few examples, and one at the end; 0: none.
  """

  every_steps: int = 200
  monitor_every_steps: int = 5000

  def __post_init__(self):
    if self.every_steps <= 0 or self.monitor_every_steps < 0:
      raise UserError(
        f"log.every_steps is {self.every_steps}, log.monitor_every_steps "
        f"{self.monitor_every_steps}; the one must be positive, the other not negative"
      )


@dataclass(frozen=True)
class Experiment:
  """All of a run: data, network, head, and how they are trained.

  Attributes:
    data: has `load() -> Data` and, of text, `words(line) -> list[str]`.
    model: a flax module, input rows and carry -> h and carry.
    head: from h to the loss.
    optimizer: of network, inputs and (as its own field) the head.
  """

  data: Any
  model: Any
  head: Head
  optimizer: RowOptimizer
  train: Training = field(default_factory=Training)
  eval: Evaluating = field(default_factory=Evaluating)
  checkpoint: Checkpointing = field(default_factory=Checkpointing)
  log: Logging = field(default_factory=Logging)
