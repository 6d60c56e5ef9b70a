"""Settings of a run, as frozen dataclasses whose fields are the keys of a config."""

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
    max_steps: stop after this many steps, if `epochs` do not end before; 0: no bound.
    patience: stop after this many evaluations in a row without a better state, judged
      by `eval.best` on validation data; 0: never. Evaluations in which this metric is
      not finite are left out. The best state is kept among the checkpoints.
    batch_size: B, number of parallel streams or of independent examples.
    unroll: T, time steps per update (truncated back-propagation); 1 for independent
      examples.
    accumulate: batches per step. A step uses the gradient of their mean loss, and each
      batch keeps its own negatives. A step holds the gradients of all batches in
      memory. The compiled program contains the operations once for each batch, and is
      compiled once for each combination of the batches' shapes. Samplers that count the
      classes of a batch are refused.
    lr: learning rate for the mean loss per token.
    schedule: schedule of the learning rate. 'hold': lr for `hold_epochs` epochs, and
      then multiplied by `decay` at the beginning of each further epoch. The other
      schedules go by step (`largevocab.training.schedules`). 'cosine' and 'linear' lead
      from lr to end_factor * lr after the last step, which changes if a finished run is
      trained further. 'inverse_sqrt' decays as 1 / sqrt(step).
    warmup_steps: number of first steps, in which the learning rate rises to lr.
    hold_epochs: for 'hold': epochs at the full learning rate.
    decay: for 'hold': factor per epoch after these epochs.
    end_factor: for 'cosine' and 'linear': the last learning rate is end_factor * lr.
    head_lr_factor: the head's learning rate is head_lr_factor * lr; None: 1, except for
      losses for which `largevocab.config.experiment` has a rate.
    tied: whether the network reads the class rows as its input rows, so that one table
      learns from both sides, at the head's rate. This needs data whose inputs are
      classes, a head with a row for each class, and a network with `model.embed` =
      `model.width`.
    clip_norm: bound on the gradient norm of network, inputs and head together; 0: no
      clipping. With several batches per step, it bounds their mean gradient.
    seed: seed of initialisation, dropout and negatives.
  """

  epochs: Annotated[float, Between(0, 10**9, excluding=(0,))] = 13.0
  max_steps: StepsOrNever = 0
  patience: CountOrNone = 0
  batch_size: BatchSize = 20
  unroll: Unroll = 20
  accumulate: Annotated[int, Between(1, 64)] = 1  # every batch is compiled
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
    """Number of steps in an epoch of `batches` batches.

    >>> Training(accumulate=4).steps_per_epoch(10)
    Fraction(5, 2)
    """
    return Fraction(batches, self.accumulate)

  def num_steps(self, steps_per_epoch: int | Fraction) -> int:
    """Number of steps of the whole run.

    Raises:
      UserError: the run has more steps than the limit.

    >>> Training(epochs=2).num_steps(100)
    200
    """
    steps = max(round(self.epochs * steps_per_epoch), 1)
    steps = min(steps, self.max_steps) if self.max_steps else steps
    if steps > MOST_STEPS:
      raise UserError(
        f"train.epochs is {self.epochs}: with {steps_per_epoch} steps per epoch, the "
        f"run has {steps} steps, but at most {MOST_STEPS} are allowed; lower "
        "train.epochs, or set train.max_steps"
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
    """The learning rate of a step under the schedule 'hold', without warm-up.

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
    every_epochs: epochs between evaluations on the validation data; 0: evaluate only at
      the end.
    batch_size: B in evaluation; each of the B streams starts with an empty state.
    unroll: T in evaluation.
    ranking_k: also measure 'recall@k' and 'mrr@k' for this k; 0: measure neither.
    precision_k: also measure 'p@k', 'ndcg@k' and, with class propensities, 'psp@k' for
      each of these k.
    hit_k: also measure 'hr@k' and 'ndcg@k' for each of these k.
    hide_seen: leave the classes that an example has seen out of all rankings, where the
      data has them (`Batch.seen`). A label among these classes is never found.
      --mode=predict leaves them out, too.
    best: which of the metrics '...@k' above, such as 'ndcg@10', selects the best state
      (`checkpoint`, `train.patience`), by its highest value on the validation data. '':
      the lowest 'nll', or the lowest loss on them for heads that are not normalised.
      This setting cannot change during a run. If it is set, `hide_seen` and
      `unlabelled` cannot change either, because the evaluations are compared.
    unlabelled: treatment of examples without labels in metrics '...@k'. 'skip': they
      are left out of the mean. 'count': they count as 0, as in pyxclib.
    propensity_a, propensity_b: constants of the propensities; see
      `largevocab.evaluation.retrieval`.
    word_pairs: files like those of SimLex-999 and WordSim-353, or glob patterns, for
      evaluating word rows on the validation data; see
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
        f"eval.best is {self.best!r:.99}, but the metrics '...@k' that are measured "
        f"are {names or 'none'}: choose one of these, or leave it empty for the lowest "
        "nll, or set eval.hit_k, eval.ranking_k or eval.precision_k to measure others"
      )

  def cost(self, metrics: dict[str, float]) -> float:
    """The quantity that is lowest for the best state.

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
  """When the training state is saved.

  Attributes:
    every_steps: steps between checkpoints.
    keep: number of latest checkpoints to keep; the best one on validation data is kept,
      too.
  """

  every_steps: Steps = 2000
  keep: Count = 2


@settings
class Logging:
  """How often training metrics are written.

  Attributes:
    every_steps: steps between log lines.
    monitor_every_steps: steps between diagnostics of the head's sample or statistics
      ('monitor/relvar' and others, see `Head.monitor`), which use all logits of a few
      examples. They are also computed once at the end. 0: no diagnostics.
    profile_at: step after which five steps are traced, for TensorBoard's page of
      profiles (docs/training.md); 0: no trace.
  """

  every_steps: Steps = 200
  monitor_every_steps: StepsOrNever = 5000
  profile_at: StepsOrNever = 0


@settings
class Devices:
  """How rows of classes and inputs are sharded over devices; see docs/devices.md.

  Attributes:
    blocks: number of blocks of the classes, and of the inputs; a multiple of the number
      of devices. It is part of the model: a run with another number is a different run.
      With 1, a single device trains.
    num: number of devices; 0: all that JAX finds. Several processes always use all
      devices.
  """

  blocks: Count = 1
  num: CountOrNone = 0


@dataclass(frozen=True)
class Experiment:
  """A complete run: data, network, head, and training settings.

  Attributes:
    data: a `largevocab.data.DataSet`; for text, it has `words(line) -> list[str]` and
      `added(words, word) -> str`, and optionally `opening`, see `TextCorpus`.
    model: a flax module that maps input rows and carry to h and carry.
    head: the head, which maps h to the loss.
    optimizer: the optimiser of network, inputs and (as a field of the head) the head.
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
        f"train.patience is {self.train.patience}, but eval.every_epochs is 0: nothing "
        "is evaluated before the end; set eval.every_epochs, or set train.patience to 0"
      )
    head: Any = getattr(self.head, "head", self.head)  # unwraps a `ShardedHead`
    if self.train.accumulate > 1 and getattr(self.head, "counts_batches", False):
      raise UserError(
        f"train.accumulate is {self.train.accumulate}, but head.sampler "
        f"{type(head.sampler).__name__} counts the classes of one batch per step: set "
        "train.accumulate to 1 and a larger train.batch_size, or choose another sampler"
      )
    if self.optimizer.average and not hasattr(head, "optimizer"):
      raise UserError(
        f"optimizer.average is {self.optimizer.average}, but the head "
        f"{type(head).__name__} has no optimiser that averages its rows: set it to 0, "
        "or choose another head.name"
      )
    if not self.train.tied:
      return
    if not hasattr(head, "add_row_grads"):
      raise UserError(
        f"train.tied is True, but the head {type(head).__name__} has no single table "
        "with a row for each class: set it to False, or choose another head.name "
        "(docs/training.md lists them)"
      )
    if getattr(head, "init_scale", None) == 0:
      raise UserError(
        "train.tied is True, but head.init_scale is 0: a row of zeros stands for a "
        "missing input and is never learnt; set head.init_scale above 0"
      )
    if self.model.embed != self.model.width:
      raise UserError(
        f"train.tied is True, but model.embed is {self.model.embed} and the network "
        f"ends in {self.model.width} units (model.hidden): make them equal, or set "
        "train.tied to False"
      )
