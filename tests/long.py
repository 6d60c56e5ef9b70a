"""Parametrised tests of which only some cases run by default."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def others_long(cases: Iterable[Any], first: Collection[Any]) -> list[Any]:
  """All cases; those that are not among `first` are marked `long`.

  A tuple is a case of several arguments.
  """

  def marked(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=() if case in first else pytest.mark.long)

  return [marked(case) for case in cases]
