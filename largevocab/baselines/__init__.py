"""Trivial models, of counts alone: what a network has to beat before it says anything.

`ByCounts` knows how often each class occurs: the unigram model of a text, popularity
of items, label frequency. `AfterLast` knows what follows what: the bigram model of a
text, the first-order Markov chain of items. `counted` gives those that there are for
some data, counted on its training split; `measure` evaluates one as
`largevocab.evaluation.evaluate` does a network.
"""

from largevocab.baselines.after_last import AfterLast
from largevocab.baselines.by_counts import ByCounts
from largevocab.baselines.counting import counted
from largevocab.baselines.measure import Baseline, measure

__all__ = ["AfterLast", "Baseline", "ByCounts", "counted", "measure"]
