"""Synthetic item histories, made by reading the synthetic language as items.

Here I is the number of items in all histories.
"""

import numpy as np

from largevocab.data.items.next_item import Histories, NextItem, number_histories
from largevocab.data.synthetic.zipf import NumClasses, NumExamples, Zipf
from largevocab.fields import History, Seed, settings


@settings(kw_only=True)
class ZipfItems:
  """One long history per split, a text of `Zipf`: each item depends on the last.

  Attributes:
    num_classes: number of classes of the language; only classes that occur are items.
    num_items: length of the training history; validation and test have a tenth each.
    history: K, number of previous items in the input.
    seed: seed of the language, the histories and the order of training examples.
  """

  num_classes: NumClasses = 1000
  num_items: NumExamples = 100_000
  history: History = 3
  seed: Seed = 0

  def tiny(self) -> "ZipfItems":
    return ZipfItems(num_items=1000, history=self.history)

  def load(self) -> NextItem:
    """Samples the histories.

    >>> data = ZipfItems(num_classes=5, num_items=100).load()
    >>> data.train.shape, data.valid.shape
    ((99, 4), (9, 4))
    """
    text = Zipf(
      num_classes=self.num_classes, num_tokens=self.num_items, seed=self.seed
    ).load()
    parts = (text.train, text.valid, text.test)
    lengths = np.array([len(part) for part in parts])
    split_I = np.repeat(np.arange(len(parts), dtype=np.int8), lengths)
    histories = Histories(np.concatenate(parts), lengths, split_I)
    classes, splits = number_histories(histories, self.history)
    return NextItem(classes, **splits, seed=self.seed)
