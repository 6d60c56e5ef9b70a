"""Settings of a run: frozen dataclasses; their fields are the keys of a config."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Any

from largevocab.errors import UserError
from largevocab.fields import (
  MOST_STEPS,
  BatchSize,
  Between,
  Count,
  CountOrNone,
  Distinct,
  FileName,
  OneOf,
  Positive,
  Seed,
  Share,
  Steps,
  StepsOrNever,
  Unroll,
  settings,
)
from largevocab.heads.base import Head
from largevocab.rows import RowOptimizer
from largevocab.training import schedules

_Epochs = Annotated[float, Between(0, 10**9)]


@settings
class Training:
  """Length, learning rate and batches of training.

  Attributes:
    epochs: passes over the training data.
    max_steps: stop after this many steps; 0: after `epochs`.
    patience: stop after so many evaluations in a row without a better state, by
      `eval.best` on validation data; 0: never. Where that is not finite it is left out.
      The best state is kept among the checkpoints.
    batch_size: B, parallel streams, or independent examples.
    unroll: T, time steps per update (truncated back-propagation); 1 for independent
      examples.
    accumulate: batches per step, which has the gradient of their mean loss. Each keeps
      its own negatives. A step takes the memory of the gradients of all, and compiles
      as many times the operations, once for each combination of the batches' shapes.
      Samplers that count the classes of a batch are refused.
    lr: learning rate for the mean loss per token.
    schedule: of the learning rate. 'hold': lr for `hold_epochs` epochs, and then
      multiplied by `decay` at the beginning of each further epoch. The others are by
      step (`largevocab.training.schedules`): 'cosine' and 'linear' from lr to
      end_factor * lr after the last step, which is another one if a finished run is
      trained further; 'inverse_sqrt' as 1 / sqrt(step).
    warmup_steps: the first steps, in which the learning rate rises to lr.
    hold_epochs: of 'hold': epochs at the full learning rate.
    decay: of 'hold': factor per epoch after that.
    end_factor: of 'cosine' and 'linear'.
    head_lr_factor: the head's learning rate is head_lr_factor * lr; None: 1, but for
      the losses that `largevocab.config.experiment` has a rate for.
    tied: the rows that the network reads are those of the classes, one table that
      learns from both sides at the head's rate; of data whose inputs are classes, heads
      with a row for each class, and networks with `model.embed` = `model.width`.
    clip_norm: bound on the gradient norm of network, inputs and head together; 0: no
      clipping. With several batches per step it is of their mean gradient.
    seed: of initialisation, dropout and negatives.
  """

  epochs: Annotated[float, Between(0, 10**9, excluding=(0,))] = 13.0
  max_steps: StepsOrNever = 0
  patience: CountOrNone = 0
  batch_size: BatchSize = 20
  unroll: Unroll = 20
  accumulate: Annotated[int, Between(1, 64)] = 1  # each is compiled
  lr: Positive = 1.0
  schedule: Annotated[str, OneOf("hold", *schedules.SCHEDULES)] = "hold"
  warmup_steps: StepsOrNever = 0
  hold_epochs: _Epochs = 4.0
  decay: Annotated[float, Between(0, 10, excluding=(0,))] = 1.0
  end_factor: Share = 0.0
  head_lr_factor: Annotated[float | None, Between(0, 10**6, excluding=(0,))] = None
  tied: bool = False
  clip_norm: Annotated[float, Between(0, 10**9)] = 5.0
  seed: Seed = 0

  def steps_per_epoch(self, batches: int) -> Fraction:
    """Steps of an epoch of so many batches.

    >>> Training(accumulate=4).steps_per_epoch(10)
    Fraction(5, 2)
    """
    return Fraction(batches, self.accumulate)

  def num_steps(self, steps_per_epoch: int | Fraction) -> int:
    """Steps of the whole run.

    Raises:
      UserError: there are more than the limit.

    >>> Training(epochs=2).num_steps(100)
    200
    """
    steps = max(round(self.epochs * steps_per_epoch), 1)
    steps = min(steps, self.max_steps) if self.max_steps else steps
    if steps > MOST_STEPS:
      raise UserError(
        f"train.epochs is {self.epochs}: of {steps_per_epoch} steps each these are "
        f"{steps}, and a run can have {MOST_STEPS}; lower it, or set train.max_steps"
      )
    return steps

  def rates(self, steps_per_epoch: int | Fraction) -> Callable[[int], float]:
    """The learning rate as a function of the step.

    >>> rate = Training(schedule="linear", warmup_steps=1, max_steps=5).rates(100)
    >>> [rate(step) for step in range(5)]
    [0.5, 1.0, 0.75, 0.5, 0.25]
    """
    lr, warmup = self.lr, self.warmup_steps
    if self.schedule == "hold":
      rise = schedules.by_step(schedules.warmed_up(lambda _: 1.0, 1.0, warmup))
      held = lambda step: self.learning_rate(step, steps_per_epoch)
      return (lambda step: rise(step) * held(step)) if warmup else held
    steps = max(self.num_steps(steps_per_epoch) - warmup, 1)
    after = schedules.SCHEDULES[self.schedule](lr, steps, self.end_factor, warmup)
    return schedules.by_step(schedules.warmed_up(after, lr, warmup))

  def learning_rate(self, step: int, steps_per_epoch: int | Fraction) -> float:
    """The learning rate of a step by the schedule 'hold', without warm-up.

    >>> t = Training(lr=1.0, hold_epochs=4, decay=0.5)
    >>> [t.learning_rate(epoch * 10, 10) for epoch in (0, 3, 4, 6)]
    [1.0, 1.0, 0.5, 0.125]
    """
    since = Fraction(step) / steps_per_epoch - Fraction(str(self.hold_epochs))
    try:
      return self.lr * self.decay ** max(math.floor(since) + 1, 0)
    except OverflowError:  # a decay above 1
      return math.inf


@settings
class Evaluating:
  """When and how exact metrics on held-out data are measured.

  Attributes:
    every_epochs: epochs between evaluations on the validation data; 0: at the end only.
    batch_size: B of evaluation; each of the B streams starts with an empty state.
    unroll: T of evaluation.
    ranking_k: also measure 'recall@k' and 'mrr@k' for this k; 0: do not.
    precision_k: also measure 'p@k', 'ndcg@k' and, with class propensities, 'psp@k' for
      each of these k.
    hit_k: also measure 'hr@k' and 'ndcg@k' for each of these k.
    hide_seen: leave out of all rankings what an example has seen, where the data says
      so (`Batch.seen`): a label among it is never found. So does --mode=predict.
    best: of the metrics '...@k' above, that whose highest value on the validation data
      makes a state the best one (`checkpoint`, `train.patience`), as 'ndcg@10'; '': the
      lowest 'nll', or training loss of heads that are not normalised. A run
      keeps it, and if it is set also `hide_seen` and `unlabelled`: its evaluations are
      compared.
    unlabelled: treatment of examples without labels in metrics '...@k': 'skip': left
      out of the mean; 'count': as 0, as in pyxclib.
    propensity_a, propensity_b: constants of the propensities, see
      `largevocab.evaluation.retrieval`.
    word_pairs: files like those of SimLex-999 and WordSim-353, or glob patterns, for
      evaluating word rows on the validation data, see
      `largevocab.evaluation.similarity`.
  """

  every_epochs: _Epochs = 1.0
  batch_size: BatchSize = 20
  unroll: Unroll = 20
  ranking_k: CountOrNone = 0
  precision_k: Annotated[tuple[Count, ...], Distinct()] = ()
  hit_k: Annotated[tuple[Count, ...], Distinct()] = ()
  hide_seen: bool = True
  best: str = ""
  unlabelled: Annotated[str, OneOf("skip", "count")] = "skip"
  propensity_a: Annotated[float, Between(0, 10)] = 0.55
  propensity_b: Annotated[float, Between(0, 1000, excluding=(0,))] = 1.5
  word_pairs: tuple[FileName, ...] = ()

  def __post_init__(self):
    ranked = {
      ("hr", "ndcg"): self.hit_k,
      ("p", "ndcg"): self.precision_k,
      ("recall", "mrr"): (self.ranking_k,) if self.ranking_k else (),
    }
    names = [f"{name}@{k}" for pair, ks in ranked.items() for k in ks for name in pair]
    if self.best and self.best not in names:
      raise UserError(
        f"eval.best is {self.best!r:.99}, and of the metrics '...@k' that it can be "
        f"{names or 'none'} are measured: choose one, or leave it empty for the lowest "
        "nll, or set eval.hit_k, eval.ranking_k or eval.precision_k to measure others"
      )

  def cost(self, metrics: dict[str, float]) -> float:
    """What the best state has the least of.

    >>> Evaluating(hit_k=(10,), best="hr@10").cost({"nll": 7.0, "hr@10": 0.25})
    -0.25
    >>> Evaluating().cost({"nll": 7.0})
    7.0
    """
    if self.best:
      return -metrics[self.best]
    return metrics.get("nll", metrics.get("loss", math.nan))

  @property
  def top(self) -> int:
    """Number of best classes that the metrics need.

    >>> Evaluating(ranking_k=2, precision_k=(1, 5)).top
    5
    """
    return max(self.ranking_k, *self.precision_k, *self.hit_k, 0)

  def every_steps(self, steps_per_epoch: int | Fraction) -> int:
    """Steps between evaluations; 0: none before the end.

    >>> Evaluating(every_epochs=0.5).every_steps(100)
    50
    """
    if not self.every_epochs:
      return 0
    return max(round(self.every_epochs * steps_per_epoch), 1)


@settings
class Checkpointing:
  """When state is saved.

  Attributes:
    every_steps: steps between checkpoints.
    keep: number of latest checkpoints; the best on validation data is kept as well.
  """

  every_steps: Steps = 2000
  keep: Count = 2


@settings
class Logging:
  """How often training metrics are written.

  Attributes:
    every_steps: steps between lines.
    monitor_every_steps: steps between diagnostics of the head's sample or statistics
      ('monitor/relvar' and others, see `Head.monitor`), which use all logits of a few
      examples, and once at the end; 0: none.
    profile_at: step after which five are traced, for TensorBoard's page of profiles
      (docs/training.md); 0: none.
  """

  every_steps: Steps = 200
  monitor_every_steps: StepsOrNever = 5000
  profile_at: StepsOrNever = 0


@settings
class Devices:
  """How rows of classes and inputs are sharded over devices, see docs/devices.md.

  Attributes:
    blocks: of the classes, and of the inputs: a multiple of the number of devices. Part
      of the model: with others it is another run. 1: one device trains.
    num: of devices; 0: all that JAX finds. With several processes always all.
  """

  blocks: Count = 1
  num: CountOrNone = 0


@dataclass(frozen=True)
class Experiment:
  """A complete run: data, network, head, and training settings.

  Attributes:
    data: a `largevocab.data.DataSet`; for text, it has `words(line) -> list[str]` and
      `added(words, word) -> str`, and perhaps `opening`, see `TextCorpus`.
    model: a flax module from input rows and carry to h and carry.
    head: from h to the loss.
    optimizer: of network, inputs and (as a field of the head) the head.
  """

  data: Any
  model: Any
  head: Head
  optimizer: RowOptimizer
  train: Training = field(default_factory=Training)
  eval: Evaluating = field(default_factory=Evaluating)
  checkpoint: Checkpointing = field(default_factory=Checkpointing)
  log: Logging = field(default_factory=Logging)
  mesh: Devices = field(default_factory=Devices)

  def __post_init__(self):
    if self.train.patience and not self.eval.every_epochs:
      raise UserError(
        f"train.patience is {self.train.patience} and eval.every_epochs is 0: nothing "
        "is evaluated before the end; set eval.every_epochs, or train.patience to 0"
      )
    head: Any = getattr(self.head, "head", self.head)  # of several devices
    if self.train.accumulate > 1 and getattr(self.head, "counts_batches", False):
      raise UserError(
        f"train.accumulate is {self.train.accumulate}, and head.sampler "
        f"{type(head.sampler).__name__} counts the classes of one batch a step: set "
        "train.accumulate to 1 and a larger train.batch_size, or choose another sampler"
      )
    if self.optimizer.average and not hasattr(head, "optimizer"):
      raise UserError(
        f"optimizer.average is {self.optimizer.average}, and the head "
        f"{type(head).__name__} has no optimiser that averages its rows: set it to 0, "
        "or choose another head.name"
      )
    if not self.train.tied:
      return
    if not hasattr(head, "add_row_grads"):
      raise UserError(
        f"train.tied is True, and the head {type(head).__name__} has no single table "
        "with a row for each class: set it to False, or choose another head.name "
        "(docs/training.md lists them)"
      )
    if getattr(head, "init_scale", None) == 0:
      raise UserError(
        "train.tied is True, and head.init_scale is 0: a row of zeros stands for an "
        "input that is missing, and is never learnt; set head.init_scale above 0"
      )
    if self.model.embed != self.model.width:
      raise UserError(
        f"train.tied is True, model.embed is {self.model.embed}, and the network ends "
        f"in {self.model.width} units (model.hidden): make them equal, or set "
        "train.tied to False"
      )
