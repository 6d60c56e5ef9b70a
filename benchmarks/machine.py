"""How many operations a device does in the time of a byte to or from memory."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp

from benchmarks.case import Case
from largevocab.tools.reports.measure import Stepper, compare


def operations_per_byte(n: int = 640) -> Iterator[Case]:
  """Adding to an array in place / a product of float32 with as many operations as the
  other has bytes, 2 n³: the ratio is operations a byte."""
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
