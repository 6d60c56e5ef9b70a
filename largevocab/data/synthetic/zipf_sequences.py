"""Synthetic sequences of items, made by cutting the synthetic language into users."""

from dataclasses import replace
from typing import Annotated

import numpy as np

from largevocab.data.items.interaction_lines import ByUser
from largevocab.data.items.sequences import ItemSequences, number_sequences
from largevocab.data.synthetic.zipf import NumClasses, Zipf
from largevocab.fields import Between, Seed, settings

_LENGTHS = (3, 20)  # number of items of a user, drawn uniformly


@settings(kw_only=True)
class ZipfSequences:
  """Users of 3 to 20 items from a text of `Zipf`: each item depends on the last.

  Attributes:
    num_classes: number of classes of the language; only classes that occur are items.
    num_users: H, number of users.
    one_label, packed: see `largevocab.data.items.interactions.Interactions`.
    seed: seed of the language, the users and the order of training examples.
  """

  num_classes: NumClasses = 1000
  num_users: Annotated[int, Between(1, 2**22)] = 2000
  one_label: bool = False
  packed: bool = False
  seed: Seed = 0

  def tiny(self) -> "ZipfSequences":
    return ZipfSequences(num_users=60, one_label=self.one_label, packed=self.packed)

  def load(self) -> ItemSequences:
    """Samples the sequences.

    >>> ZipfSequences(num_classes=5, num_users=10).load().summary
    '10 users, 5 items, 92 interactions'
    """
    rng = np.random.default_rng(self.seed)
    least, most = _LENGTHS
    lengths_H = rng.integers(least, most + 1, self.num_users)
    num = int(lengths_H.sum())
    # Twice as long as is needed. Keep this length: another one would give another text.
    text = Zipf(num_classes=self.num_classes, num_tokens=2 * num, seed=self.seed).load()
    classes, item_I = np.unique(np.asarray(text.train)[:num], return_inverse=True)
    users = [f"u{number}" for number in range(self.num_users)]
    user_I = np.repeat(np.arange(self.num_users), lengths_H)
    data = number_sequences(
      ByUser(users, [str(item) for item in classes], user_I, item_I)
    )
    return replace(data, one_label=self.one_label, packed=self.packed, seed=self.seed)
