"""Chooses chunks of an exact softmax that fit a budget of temporary memory."""

from typing import NamedTuple

import jax

from largevocab.ops.softmax.chunks import even_chunks

METHODS = ("auto", "reference", "tiles", "examples", "classes")
_MIB = 2**20
# Default budget. On a GPU or TPU, each chunk costs the latency of its kernel launches.
_BUDGET_MIB = {"cpu": 64}
_BUDGET_MIB_ELSEWHERE = 1024
# For the logits of a chunk and the gradient of its rows, which are read several times.
_CACHE_BYTES = 8 * _MIB
# On a GPU a chunk costs some 80 us besides its products, probably for launches: a fit
# to four rows of experiments/gpu_speed. So the budget is the only bound there.
_FILLS_BUDGET = ("gpu",)
# Each step of a loop has launch overheads. This is the maximum number of steps of a
# loop over classes, or over chunks of few examples.
MAX_STEPS = 128
# Each chunk of examples reads the table twice, and reads and writes its gradient. With
# fewer examples this takes longer than recomputing the logits.
_MIN_EXAMPLES = {"cpu": 64}
_MIN_EXAMPLES_ELSEWHERE = 1024


class Plan(NamedTuple):
  """Method and chunks of an exact softmax.

  Attributes:
    method: 'reference' (all logits at once), 'examples' or 'classes' (chunks of them),
      or 'tiles' (chunks of examples, each in chunks of classes).
    examples: number of examples per chunk.
    classes: number of classes per chunk.
    num_chunks: number of chunks.
    temp_bytes: estimated temporary memory of loss and gradient, in bytes.
  """

  method: str
  examples: int
  classes: int
  num_chunks: int
  temp_bytes: int

  def __str__(self) -> str:
    """A one-line description.

    >>> print(plan(1024, 100_000, 128, 64 * 2**20))
    exact softmax by tiles: 128 x 7144 logits at a time, 112 times; about 63.8 MiB of
    temporary memory
    """
    times = "once" if self.num_chunks == 1 else f"{self.num_chunks} times"
    return (
      f"exact softmax by {self.method}: {self.examples} x {self.classes} logits at a "
      f"time, {times}; about {self.temp_bytes / _MIB:.1f} MiB of temporary memory"
    )


def budget_bytes(mib: float) -> int:
  """Bytes of a budget in MiB; 0 is the default: 64 MiB on a CPU, 1 GiB elsewhere.

  >>> budget_bytes(2)
  2097152
  """
  default = _BUDGET_MIB.get(jax.default_backend(), _BUDGET_MIB_ELSEWHERE)
  return int((mib or default) * _MIB)


def plan(
  N: int,
  V: int,
  D: int,
  budget_bytes: int,
  *,
  method: str = "auto",
  compute_bytes: int | None = None,
) -> Plan:
  """Chooses chunks by their temporary memory.

  'tiles' and 'examples' keep the logits of some examples for the backward pass and take
  3 matrix products; 'examples' also needs a temporary of the table's size. 'classes'
  keeps no logits and takes 4 products.

  Args:
    N: number of examples.
    V: number of classes.
    D: width of a class row.
    budget_bytes: temporary memory for loss and gradient. It is exceeded (see
      `temp_bytes`) if it would require more than 128 chunks of classes, or more than
      128 chunks of too few examples.
    method: one of METHODS; 'auto' is 'tiles' if the budget allows enough examples per
      chunk, else 'classes'.
    compute_bytes: bytes of an operand of the products, if not those of a logit, 4.

  >>> plan(512, 1000, 64, 2**23).method, plan(512, 10**6, 64, 2**23).method
  ('tiles', 'classes')
  """
  float_bytes = 4  # of a logit
  compute_bytes = compute_bytes or float_bytes
  # Operands of a narrower type are copies.
  copy_bytes = compute_bytes if compute_bytes != float_bytes else 0
  both_bytes = float_bytes + copy_bytes
  # Kept for each example: h, its gradient, labels, sums.
  examples_bytes = N * (2 * D + 16) * float_bytes + N * D * copy_bytes
  table_bytes = V * D * float_bytes
  table_copy_bytes = V * D * copy_bytes
  logits_bytes = V * float_bytes

  # Rows of a tile and their gradient.
  rows_bytes = D * both_bytes
  backend = jax.default_backend()
  min_examples = min(N, _MIN_EXAMPLES.get(backend, _MIN_EXAMPLES_ELSEWHERE))
  fills_budget = backend in _FILLS_BUDGET
  cache_bytes = budget_bytes if fills_budget else _CACHE_BYTES
  fewest_examples = min(min_examples, -(-N // MAX_STEPS))
  fewest_classes = -(-V // MAX_STEPS)

  def cached_classes(examples: int, class_bytes: int, room: int) -> int:
    at_most = cache_bytes // ((examples + D) * float_bytes)
    at_most = max(at_most, -(-V * -(-N // examples) // MAX_STEPS))
    return even_chunks(V, max(min(at_most, room // class_bytes), fewest_classes)).size

  def made(method: str, examples: int, classes: int, temp_bytes: int) -> Plan:
    num = -(-N // examples) * -(-V // classes)
    return Plan(method, examples, classes, num, temp_bytes)

  if method == "reference":
    temp_bytes = 2 * N * logits_bytes + N * D * copy_bytes + table_copy_bytes
    return made(method, N, V, temp_bytes)

  room = budget_bytes - examples_bytes
  if method == "examples":
    room -= table_copy_bytes
    at_most = min((room - table_bytes) // logits_bytes, room // (2 * logits_bytes))
    examples = even_chunks(N, max(at_most, fewest_examples)).size
    chunk_bytes = examples * logits_bytes
    temp_bytes = budget_bytes - room + chunk_bytes + max(chunk_bytes, table_bytes)
    return made(method, examples, V, temp_bytes)

  if method in ("auto", "tiles"):
    # The last chunk of classes may overlap the previous one almost completely.
    tile_bytes = 2 * float_bytes + both_bytes
    kept_room = room - max(min(cache_bytes, room // 8), fewest_classes * rows_bytes)
    at_most = kept_room // (logits_bytes + fewest_classes * tile_bytes)
    if at_most >= min_examples or method == "tiles":
      examples = even_chunks(N, max(at_most, fewest_examples)).size
      class_bytes = examples * tile_bytes + rows_bytes
      kept_bytes = examples * logits_bytes
      classes = cached_classes(examples, class_bytes, room - kept_bytes)
      temp_bytes = examples_bytes + kept_bytes + classes * class_bytes
      return made("tiles", examples, classes, temp_bytes)

  # A GPU's compiler holds up to a third array, as programs compiled for an H100 state.
  logit_bytes = both_bytes + float_bytes * (2 if fills_budget else 1)
  class_bytes = N * logit_bytes + rows_bytes
  classes = cached_classes(N, class_bytes, room)
  temp_bytes = examples_bytes + classes * class_bytes
  return made("classes", N, classes, temp_bytes)
