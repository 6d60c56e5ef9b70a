"""Amazon Video Games: items that customers reviewed.

Here H is the number of users and I the number of their items.
"""

from array import array
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from largevocab.data.encoded import SPLITS
from largevocab.data.files import find_file
from largevocab.data.items.item_histories import ItemHistories, item_ids
from largevocab.data.items.next_item import Histories
from largevocab.data.lines import read_lines
from largevocab.errors import UserError
from largevocab.fields import settings


@settings(kw_only=True)
class VideoGames(ItemHistories):
  """Lines with a user and an item, both integers, in order of time for each user.

  A user's last item is the next item of a test example, and the last but one is that of
  a validation example. All earlier items except the first are next items of training
  examples. Users with fewer than 3 items are for training only. The usual file,
  SASRec's `Video.txt`, has 31,013 users and 23,715 items.

  Attributes:
    interactions: the name of the file, without .gz or .xz.

  Source: Kang and McAuley 2018, Self-attentive sequential recommendation.
  """

  interactions: str = "sasrec_Video.txt"

  def files(self) -> Sequence[Path]:
    return [find_file(self.path, self.interactions, "data.path")]

  def options(self) -> Sequence[float]:
    return []

  def read(self, files: Sequence[Path]) -> Histories:
    of_user: defaultdict[int, array] = defaultdict(lambda: array("q"))
    (path,) = files
    for line_number, line in enumerate(read_lines(path), 1):
      words = line.split()
      if not words:
        continue
      if len(words) != 2:
        raise UserError(
          f"{path}, line {line_number}: {len(words)} words; give a user and an item"
        )
      user, item = item_ids(words, path, line_number)
      of_user[user].append(item)
    items, lengths = array("q"), array("q")
    for history in of_user.values():
      items.extend(history)
      lengths.append(len(history))
    lengths_H = np.asarray(lengths)
    split_I = np.full(len(items), SPLITS.index("train"), np.int8)
    last_H = np.cumsum(lengths_H)[lengths_H >= 3] - 1
    split_I[last_H] = SPLITS.index("test")
    split_I[last_H - 1] = SPLITS.index("valid")
    return Histories(np.asarray(items), lengths_H, split_I)
