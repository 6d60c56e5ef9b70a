"""A digest of the class ids and features of a data set.

Other code can compute this digest to check that it reads the same numbers in the same
order:

  sha256 of "classes V\\n", and for each array of train, valid and test, in this order,
  of "SPLIT.NAME DTYPE SHAPE\\n" and its bytes, in C order, little-endian

with DTYPE as NumPy writes it and SHAPE as in 3x4. A text has one array per split,
`ids`, which holds its tokens. Item histories have `ids`, with rows of the previous
items and the next item. Documents have the arrays of
`largevocab.data.labels.documents.Documents`, in the order given there.
"""

import hashlib
from collections.abc import Iterator

import numpy as np

from largevocab.data.base import Data
from largevocab.data.encoded import SPLITS
from largevocab.errors import UserError

_ROWS = 1 << 20  # number of rows read at a time


def digest(data: Data) -> str:
  """The digest of a data set, as 'sha256:' and hexadecimal digits.

  Cost: reads all arrays once, a part at a time.

  >>> from largevocab.data.synthetic.zipf import Zipf
  >>> digest(Zipf(num_tokens=50, num_classes=9).load()) == digest(
  ...   Zipf(num_tokens=50, num_classes=9, seed=1).load()
  ... )
  False
  """
  found = hashlib.sha256(f"classes {data.counts.num_classes}\n".encode())
  for name, array in _arrays(data):
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    shape = "x".join(map(str, array.shape))
    found.update(f"{name} {array.dtype.str} {shape}\n".encode())
    for start in range(0, len(array), _ROWS):
      found.update(np.ascontiguousarray(array[start : start + _ROWS]).tobytes())
  return f"sha256:{found.hexdigest()}"


def _arrays(data: Data) -> Iterator[tuple[str, np.ndarray]]:
  for split in SPLITS:
    part = getattr(data, split, None)
    if isinstance(part, np.ndarray):
      yield f"{split}.ids", part
    elif hasattr(part, "_asdict"):
      for name, array in part._asdict().items():
        yield f"{split}.{name}", array
    else:
      raise UserError(
        f"{type(data).__name__} has no arrays of ids for the split {split}: a task "
        "needs texts, item histories or documents"
      )
