"""The Bayes classifier, which no model can beat, of data with a known distribution."""

from largevocab.baselines.measure import Baseline
from largevocab.data.base import Data


def known(data: Data, split: str) -> dict[str, Baseline]:
  """The Bayes classifier of a split, by name; empty if the distribution is not known.

  Only data with a method `true_law(split)` have a known distribution.

  >>> from largevocab.data import DATASETS
  >>> list(known(DATASETS["topic_labels"]().load(), "test"))
  ['Bayes classifier']
  """
  law = getattr(data, "true_law", None)
  return {"Bayes classifier": law(split)} if law else {}
