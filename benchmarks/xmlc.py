"""Benchmarks of whole training steps for extreme classification."""

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.case import Case
from largevocab import config
from largevocab.heads import Full, Sampled
from largevocab.samplers import LSHEmbedding, LSHLabel, Unigram
from largevocab.tools.reports.measure import compare
from largevocab.tools.reports.training_steps import TrainingSteps
from largevocab.training.settings import Experiment

# Documents with 76 of 135,909 features and 5.5 of 670,091 labels on average.
SHAPE = {
  "num_classes": 670_091,
  "num_features": 135_909,
  "features_per_example": 90.0,
  "features_per_label": 50,
  "labels_per_example": 5.5,
  "exponent": 0.5,
}
B, D, TABLES, CODES = 1024, 128, 50, 6
MOST = 0.05  # largest relative error of a loss to that of the full softmax


def bag(head: Any) -> Experiment:
  """A model with one hidden layer, trained with Adam."""
  parts = {
    "data": config.part("data", "zipf_labels"),
    "model": config.part("model", "bag", embed=D),
    "optimizer": config.part("optimizer", "adam"),
    "train": config.Training(batch_size=B, unroll=1, lr=1e-4, clip_norm=0.0),
  }
  return config.build(config.experiment(head=head, **parts))


def lsh(kind: type, m: int) -> Sampled:
  """A head with half of its draws from hash tables; each step rebuilds one table."""
  in_turn = {"rehash": False, "rebuild_tables": 1}
  sampler = kind(tables=TABLES, codes=CODES, slots=8, **in_turn)
  return Sampled(sampler=sampler, num_samples=m, refresh_every=0)


def heads() -> dict[str, Any]:
  """Heads compared with the full softmax, by name."""
  return {
    "LSH embedding, m=32": lsh(LSHEmbedding, 32),
    "LSH embedding, m=128": lsh(LSHEmbedding, 128),
    "LSH label, m=32": lsh(LSHLabel, 32),
    "frequency, m=4096 shared": Sampled(sampler=Unigram(), num_samples=4096),
  }


def xmlc_step() -> Iterator[Case]:
  """A training step: full softmax / other heads, with B=1024, D=128 and Adam.

  The loss of the first step must be close to that of the full softmax. Goal: LSH is 20
  times as fast.
  """
  data = config.part("data", "zipf_labels", **SHAPE, num_examples=20 * B).load()
  batch = data.training_batches(B, 1).batch(0)
  full = TrainingSteps(bag(Full()), data)
  F, P = batch.x.ids_BF.shape[1], batch.y.ids_NP.shape[1]
  V = SHAPE["num_classes"]
  for name, head in heads().items():
    below = TrainingSteps(bag(head), data)
    error = abs(below.loss / full.loss - 1)
    assert error < MOST, f"{name}: the loss is off by {error}"
    goal = {"at_least": 20} if name.startswith("LSH") else {}
    yield Case(
      f"training step, full / {name}, V={V:,}",
      {"V": V, "D": D, "N": B, "F": F, "P": P, "error": error},
      {**compare(full, below, seconds=10, min_turns=3), **goal},
    )
    del below


ROWS: dict[str, Callable[[], Iterator[Any]]] = {"xmlc_step": xmlc_step}
