"""Settings shared by tests of losses."""

import jax
import pytest


@pytest.fixture(scope="module")
def x64():
  """Uses 64-bit types, in which formulas are compared."""
  with jax.enable_x64(True):
    yield
