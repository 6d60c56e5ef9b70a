"""Looks up an adapter's networks and optimisers by name."""

from collections.abc import Mapping
from typing import Any

from largevocab.errors import UserError, listed


def chosen(what: str, name: str, known: Mapping[str, Any]) -> Any:
  """The object with this name.

  Raises:
    UserError: the adapter has no object with this name.

  >>> chosen("optimizer", "sgd", {"sgd": 1.0})
  1.0
  >>> chosen("optimizer", "sdg", {"sgd": 1.0})
  Traceback (most recent call last):
  ...
  largevocab.errors.UserError: optimizer is 'sdg', but this adapter has only sgd
  """
  if name not in known:
    raise UserError(f"{what} is {name!r}, but this adapter has only {listed(known)}")
  return known[name]
