"""Parses arguments that describe parts of an experiment: NAME:FIELD=VALUE:..."""

import dataclasses
from typing import Any

from largevocab import config
from largevocab.errors import UserError, nearest
from largevocab.heads import Full, Linear, Sampled


def with_field(text: str, part: Any, key: str, value: str) -> Any:
  """The part with one field replaced by a value, cast to the type of the field.

  Raises:
    UserError: the field is unknown or the value is ill-typed; the message names the
      argument `text`.

  >>> from largevocab.samplers import PPS
  >>> with_field("pps:power=0.5", PPS(), "power", "0.5").power
  0.5
  """
  kind = type(getattr(part, key, None))
  if kind not in (int, float, str, bool):
    known = [field.name for field in dataclasses.fields(part)]
    raise UserError(f"{text}: {key!r} is not a field{nearest(key, known)}")
  try:
    cast = {"true": True, "false": False}[value] if kind is bool else kind(value)
  except (KeyError, ValueError):
    raise UserError(
      f"{text}: {key} is {value!r}, but must be of type {kind.__name__}"
    ) from None
  return dataclasses.replace(part, **{key: cast})


def sampled_head(text: str, like: Full | Sampled) -> Sampled:
  """The head described by SAMPLER:FIELD=VALUE:... or LOSS/SAMPLER:....

  Fields may belong to the sampler or to the head. `bias`, `absolute` and `dtype` are
  those of the head `like`.

  Raises:
    UserError: a loss, sampler or field is unknown, or a value is ill-typed.

  >>> head = sampled_head("pps:power=0.5:num_samples=64", Sampled())
  >>> head.sampler.power, head.num_samples
  (0.5, 64)
  >>> sampled_head("nce/unigram", Sampled()).loss.normalizer
  'one'
  """
  path, *settings = text.split(":")
  chosen = config.head(path if "/" in path else f"sampled/{path}")
  if not isinstance(chosen, Sampled):
    raise UserError(f"{text}: head {path!r} draws no negatives; give a sampler")
  if not isinstance(chosen.logits, Linear):
    raise UserError(f"{text}: heads here have products as logits; leave out '/cosine'")
  sampler: Any = chosen.sampler
  if hasattr(sampler, "absolute"):
    sampler = dataclasses.replace(sampler, absolute=like.absolute)
  of_run = {"bias": like.bias, "absolute": like.absolute, "dtype": like.dtype}
  head = Sampled(loss=chosen.loss, sampler=sampler, **of_run)
  known = [field.name for each in (sampler, head) for field in dataclasses.fields(each)]
  for setting in settings:
    key, _, value = setting.partition("=")
    if key not in known:
      raise UserError(f"{text}: {key!r} is not a field{nearest(key, known)}")
    if hasattr(sampler, key):
      sampler = with_field(text, sampler, key, value)
      head = dataclasses.replace(head, sampler=sampler)
    else:
      head = with_field(text, head, key, value)
  return head
