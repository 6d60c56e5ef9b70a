"""Measures how many operations a device does while it reads or writes a byte."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp

from benchmarks.case import Case
from largevocab.tools.reports.measure import Stepper, compare


def operations_per_byte(n: int = 640) -> Iterator[Case]:
  """Adding to an array in place / a float32 product, which gives operations per byte.

  The product has as many operations as the addition has bytes, 2 n³.
  """
  a_nn, b_nn = jax.random.normal(jax.random.key(0), (2, n, n))
  x = jnp.zeros(n**3 // 4)  # each number is read and written
  add = Stepper(lambda x: (x + 1, ()), x)
  product = jax.jit(jnp.matmul)
  yield Case(
    f"a byte from or to memory / an operation of a product, {n} x {n}",
    {"D": n},
    compare(add, lambda: product(a_nn, b_nn)),
  )


ROWS: dict[str, Callable[[], Iterator[Case]]] = {
  "operations_per_byte": operations_per_byte
}
