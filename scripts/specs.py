"""Parts of an experiment as an argument describes them: NAME:FIELD=VALUE:..."""

import dataclasses
from typing import Any

from largevocab.config import nearest
from largevocab.errors import UserError


def with_field(text: str, part: Any, key: str, value: str) -> Any:
  """The part with a field set to a value, cast to the type that the field has.

  Raises:
    UserError: names `text`, the argument that asks for it.

  >>> from largevocab.samplers import PPS
  >>> with_field("pps:power=0.5", PPS(), "power", "0.5").power
  0.5
  """
  kind = type(getattr(part, key, None))
  if kind not in (int, float, str, bool):
    known = [field.name for field in dataclasses.fields(part)]
    raise UserError(f"{text}: {key!r} is no field{nearest(key, known)}")
  try:
    cast = {"true": True, "false": False}[value] if kind is bool else kind(value)
  except (KeyError, ValueError):
    raise UserError(
      f"{text}: {key} is {value!r}; it must be of type {kind.__name__}"
    ) from None
  return dataclasses.replace(part, **{key: cast})
