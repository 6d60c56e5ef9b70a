"""Count-based baselines that a network has to beat.

- `ByCounts` uses class frequencies: the unigram model of a text, item popularity, or
  label frequency.
- `AfterLast` uses pair counts: the bigram model of a text, or the first-order Markov
  chain of items.
- `counted` fits the baselines that apply to some data, on its training split.
- `known` gives the Bayes classifier of data whose distribution is known, which bounds
  what a network can reach.
- `measure` evaluates a baseline as `largevocab.evaluation.evaluate` evaluates a
  network.
"""

from largevocab.baselines.after_last import AfterLast
from largevocab.baselines.by_counts import ByCounts
from largevocab.baselines.counting import NAMES, counted
from largevocab.baselines.known import known
from largevocab.baselines.measure import Baseline, measure

__all__ = [
  "NAMES",
  "AfterLast",
  "Baseline",
  "ByCounts",
  "counted",
  "known",
  "measure",
]
