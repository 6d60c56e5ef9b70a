"""What a name stands for in an adapter: its networks, its optimisers."""

from collections.abc import Mapping
from typing import Any

from largevocab.errors import UserError, listed


def chosen(what: str, name: str, known: Mapping[str, Any]) -> Any:
  """The one of this name.

  Raises:
    UserError: the adapter has none of this name.

  >>> chosen("optimizer", "sgd", {"sgd": 1.0})
  1.0
  >>> chosen("optimizer", "sdg", {"sgd": 1.0})
  Traceback (most recent call last):
  ...
  largevocab.errors.UserError: optimizer is 'sdg', and this adapter has sgd
  """
  if name not in known:
    raise UserError(f"{what} is {name!r}, and this adapter has {listed(known)}")
  return known[name]
