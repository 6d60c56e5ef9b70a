"""How to cut an exact softmax into chunks that fit a budget of temporary memory."""

from typing import NamedTuple

from largevocab.ops.class_chunks import even_chunks

METHODS = ("auto", "reference", "examples", "classes")

_MIB = 2**20
# Fewer examples a chunk make the gradient of the table, which each chunk adds to as a
# whole, dearer than the logits.
_MIN_EXAMPLES = 128
# Logits of one chunk of classes. They are passed over several times: past the cache
# they are bound by memory.
_CACHE_BYTES = 8 * _MIB
# But each step of a loop costs some launches.
_MAX_CHUNKS = 128


class Plan(NamedTuple):
  """A way to compute an exact softmax.

  Attributes:
    method: 'reference' (all logits at once), 'examples' or 'classes' (chunks of).
    size: examples or classes a chunk.
    num_chunks: number of chunks.
    temp_bytes: estimated temporary memory of loss and gradient, in bytes.
  """

  method: str
  size: int
  num_chunks: int
  temp_bytes: int

  def __str__(self) -> str:
    """One line to print.

    >>> str(plan(1024, 100_000, 128, 64 * 2**20))
    'exact softmax in 49 chunks of 2041 classes, 18.9 MiB of temporary memory'
    """
    what = "examples" if self.method != "classes" else "classes"
    chunks = "chunk" if self.num_chunks == 1 else "chunks"
    return (
      f"exact softmax in {self.num_chunks} {chunks} of {self.size} {what}, "
      f"{self.temp_bytes / _MIB:.1f} MiB of temporary memory"
    )


def plan(
  N: int,
  V: int,
  D: int,
  budget_bytes: int,
  *,
  method: str = "auto",
  float_bytes: int = 4,
  compute_bytes: int | None = None,
) -> Plan:
  """Chooses chunks of examples (3 matrix products) or of classes (4 products).

  Chunks of examples need a temporary of the table's size besides their logits, chunks
  of classes only the logits of a few classes.

  Args:
    N: number of examples.
    V: number of classes.
    D: width of a class row.
    budget_bytes: temporary memory that loss and gradient may take. A budget too small
      for even one example or one class a chunk is exceeded.
    method: 'auto', or 'reference' | 'examples' | 'classes' to choose only the size.
    float_bytes: bytes of a logit.
    compute_bytes: bytes of an operand of the products, if not `float_bytes`.

  >>> plan(512, 1000, 64, 2**22).method, plan(512, 10**6, 64, 2**22).method
  ('examples', 'classes')
  """
  compute_bytes = compute_bytes or float_bytes
  # An operand of fewer bits is a copy.
  copy_bytes = compute_bytes if compute_bytes != float_bytes else 0
  if method == "reference":
    return Plan(method, N, 1, 2 * N * V * float_bytes + (N + V) * D * copy_bytes)

  # The logits of a chunk, and their gradient or the gradient of the table.
  logits = V * float_bytes
  examples = N * (2 * D + 8) * float_bytes
  copies = (N + V) * D * copy_bytes
  table = V * D * float_bytes
  room = budget_bytes - examples - copies
  at_most = min((room - table) // logits, room // (2 * logits))
  if method == "examples" or (method == "auto" and at_most >= min(N, _MIN_EXAMPLES)):
    num, size = even_chunks(N, at_most)
    temp_bytes = examples + copies + size * logits + max(size * logits, table)
    return Plan("examples", size, num, temp_bytes)

  # The logits of a chunk and their gradient, its rows and their gradient.
  per_class = N * (2 * float_bytes + copy_bytes) + D * (2 * float_bytes + copy_bytes)
  fixed = N * D * (2 * float_bytes + copy_bytes)
  at_most = max(_CACHE_BYTES // (N * float_bytes), -(-V // _MAX_CHUNKS))
  num, size = even_chunks(V, min(at_most, (budget_bytes - fixed) // per_class))
  return Plan("classes", size, num, fixed + size * per_class)
