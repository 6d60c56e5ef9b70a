"""Finds out why a loss is not finite, as far as its batches tell."""

from collections.abc import Sequence

import jax
import numpy as np

from largevocab.data.batches import Batch
from largevocab.training.settings import Training


def likely_cause(
  step: int,
  batches: Sequence[Batch],
  num_classes: int,
  train: Training,
  split: str = "train",
) -> str:
  """The likely cause of a loss that is not finite, and a remedy.

  Args:
    step: the step at which this was found, counted from 0.
    batches: the batches of that step.
    num_classes: number of classes of the data.
    train: the settings of the training.
    split: the split whose loss is not finite; if it is not 'train', this was found
      after the step.
  """
  for y in (batch.y for batch in batches):
    counted = np.asarray(y.ids_NP)[np.asarray(y.w_NP) > 0]
    if wrong := counted[(counted < 0) | (counted >= num_classes)].tolist():
      return (
        f"its labels include the id {wrong[0]}, but there are {num_classes} classes: "
        "correct the data"
      )
  leaves = jax.tree.leaves([(batch.x, batch.y.w_NP) for batch in batches])
  if not all(np.all(np.isfinite(leaf)) for leaf in leaves):
    return "its features or weights are not finite: correct the data"
  if not step and split == "train":
    return (
      "a learning rate cannot be the cause before the first update: check the settings "
      "of initial values (init_scale, forget_bias) and those of the head"
    )
  clip = "lower train.clip_norm" if train.clip_norm else "set train.clip_norm above 0"
  sound = "its data are valid" if split == "train" else f"check the {split} data"
  return (
    f"{sound}; most often a learning rate is too high: lower train.lr or "
    f"train.head_lr_factor, or {clip}"
  )
