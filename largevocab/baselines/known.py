"""The classifier that no model can beat, of data whose law is known."""

from largevocab.baselines.measure import Baseline
from largevocab.data.base import Data


def known(data: Data, split: str) -> dict[str, Baseline]:
  """The Bayes classifier of a split, by name; nothing if the law is not known.

  Only data with a method `true_law(split)` have one.

  >>> from largevocab.data import DATASETS
  >>> list(known(DATASETS["topic_labels"]().load(), "test"))
  ['Bayes classifier']
  """
  law = getattr(data, "true_law", None)
  return {"Bayes classifier": law(split)} if law else {}
