"""Benchmarks of the exact softmax."""

import functools
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.case import Case, check_close
from largevocab.ops.softmax.full import softmax_loss
from largevocab.ops.softmax.parts import Part, parts_loss_naive
from largevocab.ops.softmax.plan import plan
from largevocab.tools.reports.measure import compare, temp_bytes


def chunked_full_softmax(V: int = 100_000) -> Iterator[Case]:
  """Loss and gradients: planned chunks / all logits at once.

  Goal: 1.2 times as fast with at most 1/8 of the temporary memory, which is the budget
  of the plan.
  """
  for N in (512, 1024):
    for D in (128, 512):
      rng = np.random.default_rng(0)
      h_ND = jnp.asarray(rng.standard_normal((N, D)), jnp.float32)
      w_VD = jnp.asarray(0.05 * rng.standard_normal((V, D)), jnp.float32)
      ids_NP = jnp.asarray(rng.integers(0, V, (N, 1)), jnp.int32)
      args = h_ND, w_VD, ids_NP, jnp.full((N, 1), 1 / N)

      gradients = lambda loss: jax.jit(jax.value_and_grad(loss, (0, 1)))
      whole = lambda h_ND, w_VD, *of: parts_loss_naive((Part(h_ND, w_VD),), *of)
      naive = gradients(whole).lower(*args).compile()
      naive_bytes = temp_bytes(naive)
      how = plan(N, V, D, naive_bytes // 8)
      chunked = gradients(functools.partial(softmax_loss, how=how))
      chunked = chunked.lower(*args).compile()
      error = check_close(chunked(*args), naive(*args), 1e-5)
      figures = compare(lambda: chunked(*args), lambda: naive(*args))  # noqa: B023
      memory_ratio = temp_bytes(chunked) / naive_bytes
      yield Case(
        f"exact softmax in chunks / all logits, V={V:,} N={N} D={D}",
        {"plan": str(how), "error": error},
        {**figures, "memory_ratio": memory_ratio, "at_most": 1 / 1.2},
      )


ROWS: dict[str, Callable[[], Iterator[Case]]] = {
  "chunked_full_softmax": chunked_full_softmax
}
