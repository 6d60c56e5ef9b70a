"""Which errors a user can fix, and which are bugs."""

import jax
import numpy as np
import pytest

from largevocab.errors import message_of


def raised(make):
  with pytest.raises(Exception) as caught:  # noqa: PT011 - any
    make()
  return caught.value


@pytest.mark.parametrize(
  "make",
  [
    lambda: np.zeros((2**40, 2**30)),
    lambda: np.zeros((2**62, 2**62)),
    lambda: np.zeros(2**70),
    lambda: np.zeros(2**60),
    lambda: jax.numpy.zeros(2**45).block_until_ready(),
  ],
)
def test_too_large_arrays_are_reported_as_out_of_memory(make):
  message = message_of(raised(make), "lower x")
  assert message is not None
  assert message.startswith("out of memory; lower x")
  assert "()" not in message


@pytest.mark.parametrize(
  "make",
  [
    lambda: np.int32(3_000_000_000),
    lambda: np.asarray([2**40]).astype(object) + np.int8(300),
    lambda: 2.0**5000,
    lambda: (_ for _ in ()).throw(RuntimeError("integer overflow")),
  ],
)
def test_other_overflows_are_not_user_errors(make):
  assert message_of(raised(make)) is None
