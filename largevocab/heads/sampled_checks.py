"""Checks for settings of the head `Sampled` that conflict."""

from typing import Any

from largevocab.errors import UserError
from largevocab.samplers.base import (
  counts_rows,
  follows_labels,
  follows_logits,
  follows_products,
  is_choice,
  parts_of,
)


def check_settings(head: Any) -> None:
  """Checks the loss, sampler and exact sets of a `Sampled` head against each other.

  Raises:
    UserError: two of them conflict.
  """
  if follows_logits(head.sampler) and head.sampler.absolute != head.absolute:
    what, which = ("o", "|o|") if head.absolute else ("|o|", "o")
    raise UserError(
      f"head.absolute is {head.absolute}, but head.sampler.absolute is not: a sampler "
      f"that follows {what} misses likely classes or draws unlikely ones if the model "
      f"has {which} as logits; set head.absolute to the sampler's value, or "
      "head.sampler.absolute to the head's value to do so anyway"
    )
  follows_o = [
    part
    for part in parts_of(head.sampler)
    if follows_products(part) and not hasattr(part, "absolute")
  ]
  if head.absolute and follows_o:
    raise UserError(
      f"head.absolute is True, but {_name(follows_o[0])} follows o and has no setting "
      "to follow |o|, so it would miss likely classes: set head.absolute to False, or "
      "choose another sampler"
    )
  if head.loss.weighs and not getattr(head.sampler, "weighable", True):
    raise UserError(
      f"the proposal distribution of {_name(head.sampler)} is unknown (`weighable` is "
      "False), but the loss of this head weights draws by it: set "
      "head.loss.corrected to False (loss 'softmax'; 'ranking' and "
      "'negative_sampling' do not need weights), or choose another sampler; for LSH "
      "samplers it is known with head.sampler.draw='independent'"
    )
  if head.loss.needs_sets and not getattr(head.sampler, "distinct", False):
    raise UserError(
      f"{_name(head.sampler)} may draw a class twice, but the loss {_name(head.loss)} "
      "needs distinct classes: choose the sampler 'bernoulli', 'pps' or 'ivf'"
    )
  if head.loss.needs_noise and follows_labels(head.sampler):
    raise UserError(
      "a draw of head.sampler depends on the true classes, but the loss of this head "
      "compares true classes with noise, which must not depend on them: choose a "
      "sampler by counts, such as 'unigram', or one that follows the input"
    )
  if head.loss.needs_noise and is_choice(head.sampler):
    raise UserError(
      f"{_name(head.sampler)} chooses classes instead of drawing them, but the loss "
      "of this head compares true classes with noise that could have been drawn "
      "instead: choose a sampler that draws, such as 'unigram', or the loss 'softmax'"
    )
  if head.loss.keeps_hits and counts_rows(head.sampler):
    raise UserError(
      "head.sampler draws the true classes of the batch, but the loss of this head "
      "keeps accidental hits, so each example would always draw its own true class: "
      "choose another sampler, or the loss 'softmax'"
    )
  if head.exact_batch and counts_rows(head.sampler):
    raise UserError(
      "head.exact_batch sums the classes of the batch with weight 1, but head.sampler "
      "draws these same classes, so none would have the logQ correction: set "
      "head.exact_batch to False, or choose another sampler"
    )
  if not head.loss.likelihood and (
    head.exact_batch or head.exact_frequent or head.exact_ids
  ):
    raise UserError(
      "head.exact_batch, head.exact_frequent and head.exact_ids make a likelihood "
      "exact, but the loss of this head is not a likelihood: leave them unset, or "
      "choose the loss 'softmax'"
    )


def _name(part: Any) -> str:
  return type(part).__name__
