"""Settings shared by tests of losses."""

import jax
import pytest


@pytest.fixture(scope="module")
def x64():
  """Types are wide, as formulas are when they are compared."""
  with jax.enable_x64(True):
    yield
