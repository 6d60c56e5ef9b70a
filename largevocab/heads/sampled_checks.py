"""Settings of the head `Sampled` that do not go together."""

from typing import Any

from largevocab.errors import UserError
from largevocab.samplers.base import (
  counts_rows,
  follows_labels,
  follows_logits,
  is_choice,
)


def check_settings(head: Any) -> None:
  """Of its loss, sampler and exact sets.

  Raises:
    UserError: two of them conflict.
  """
  if follows_logits(head.sampler) and head.sampler.absolute != head.absolute:
    what, which = ("o", "|o|") if head.absolute else ("|o|", "o")
    raise UserError(
      f"head.absolute is {head.absolute} and head.sampler.absolute is not: a sampler "
      f"that follows {what} hardly draws what a model with {which} as logits finds "
      "likely, but the least likely classes; set head.absolute like the sampler's, "
      "or the sampler's like the head's to have it all the same"
    )
  if head.loss.weighs and not getattr(head.sampler, "weighable", True):
    raise UserError(
      f"no proposal distribution is known of the draws of {_name(head.sampler)} "
      "(`weighable` is False), and the loss of this head weighs by it: set "
      "head.loss.corrected to False (of the loss 'softmax'; 'ranking' and "
      "'negative_sampling' do not weigh), or choose another sampler; that of the LSH "
      "samplers is known with head.sampler.draw='independent'"
    )
  if head.loss.needs_sets and not getattr(head.sampler, "distinct", False):
    raise UserError(
      f"{_name(head.sampler)} may draw a class twice, and the loss {_name(head.loss)} "
      "needs distinct classes: choose the sampler 'bernoulli', 'pps' or 'ivf'"
    )
  if head.loss.needs_noise and follows_labels(head.sampler):
    raise UserError(
      "a draw of head.sampler depends on the true classes, and the loss of this head "
      "compares these with noise that must not: choose a sampler by counts, such as "
      "'unigram', or one that follows the input"
    )
  if head.loss.needs_noise and is_choice(head.sampler):
    raise UserError(
      f"{_name(head.sampler)} chooses classes and draws none, and the loss of this "
      "head compares the true classes with noise that could have been them: choose a "
      "sampler that draws, such as 'unigram', or the loss 'softmax'"
    )
  if head.loss.keeps_hits and counts_rows(head.sampler):
    raise UserError(
      "head.sampler draws the true classes of the batch, and the loss of this head "
      "keeps accidental hits, so that each example would always have its own: choose "
      "another sampler, or the loss 'softmax'"
    )
  if head.exact_batch and counts_rows(head.sampler):
    raise UserError(
      "head.exact_batch sums the classes of the batch with weight 1, and these are "
      "what head.sampler draws, so that none would have the logQ correction: set "
      "head.exact_batch to False, or choose another sampler"
    )
  if not head.loss.likelihood and (
    head.exact_batch or head.exact_frequent or head.exact_ids
  ):
    raise UserError(
      "head.exact_batch, head.exact_frequent and head.exact_ids make a likelihood "
      "exact, and the loss of this head is not a likelihood: leave them unset, or "
      "choose the loss 'softmax'"
    )


def _name(part: Any) -> str:
  return type(part).__name__
