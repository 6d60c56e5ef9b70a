import jax
import pytest


@pytest.fixture(autouse=True)
def _strict_dtype_promotion():
  """Operations must not mix dtypes by accident."""
  with jax.numpy_dtype_promotion("strict"):
    yield
