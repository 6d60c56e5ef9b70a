"""Adapters for tests, which count classes in NumPy, and a task for them."""

import dataclasses

import numpy as np

from largevocab.bench.adapter import Device
from largevocab.bench.tasks import TASKS
from largevocab.errors import Diverged

TINY = dataclasses.replace(TASKS["tiny"], is_entered=True)
METHOD = "tests.bench.counting:Counting"
CODE = "--code=https://example.org/counting/v1"


class Counting:
  """Predicts classes by their counts in the batches so far, whatever the input."""

  packages = ("numpy",)

  def __init__(self, given, prior=1.0):
    self.count_V = np.full(given.data.counts.num_classes, float(prior))
    self.rates = []

  def train(self, steps):
    for batch, lr in steps:
      np.add.at(self.count_V, batch.y.ids_NP[batch.y.w_NP > 0], 1)
      self.rates.append(lr)

  def evaluate(self, batches, k):
    best = np.argsort(-self.count_V, kind="stable")[:k]
    for batch in batches:
      ids_N = batch.y.ids_NP[:, 0]
      if k:
        yield np.broadcast_to(best, (len(ids_N), k))
      else:
        yield -np.log(self.count_V[ids_N] / self.count_V.sum())

  def device(self):
    return None


class Refused(Counting):
  """An adapter whose fault is reported before it trains."""

  def train(self, steps):
    raise AssertionError("is refused before it trains")


class StopsEarly(Counting):
  def train(self, steps):
    next(iter(steps))


class GivesScores(Refused):
  def evaluate(self, batches, k):
    return (np.zeros((len(batch.y.ids_NP), 3)) for batch in batches)


class GivesTooFew(Counting):
  def evaluate(self, batches, k):
    yield from list(super().evaluate(batches, k))[:-1]


class GivesTooMany(Refused):
  def evaluate(self, batches, k):
    given = list(super().evaluate(batches, k))
    yield from [*given, given[-1]]


class HasNoVersion(Refused):
  packages = ("tests.bench.counting",)


class ForgetsTheMinus(Refused):
  def evaluate(self, batches, k):
    return (-nll_N for nll_N in super(Refused, self).evaluate(batches, k))


class HasAStringForPackages(Refused):
  packages = "numpy2"


class HasNoPackages(Refused):
  packages = ()


class HasAPairForADevice(Refused):
  def device(self):
    return "GPU", 7.0


class HasAnInfinityForMemory(Refused):
  def device(self):
    return Device("GPU", np.inf)


class HasNoNameForADevice(Refused):
  def device(self):
    return Device("", 7.0)


class ForgetsToNormalise(Refused):
  def evaluate(self, batches, k):
    return (0.5 * nll_N for nll_N in super(Refused, self).evaluate(batches, k))


class ChangesWeights(Counting):
  """Drops the examples whose class it has seen least, from the metric, too."""

  def evaluate(self, batches, k):
    for batch in batches:
      (nll_N,) = super().evaluate([batch], k)
      batch.y.w_NP[nll_N > np.median(nll_N)] = 0.0
      yield nll_N


class HasAnError(Counting):
  def __init__(self, given):
    len(3)


class OnAnAccelerator(Counting):
  def device(self):
    return Device("GPU", 7.0)


class Diverges(Counting):
  value = np.nan

  def evaluate(self, batches, k):
    return (np.full(len(batch.y.ids_NP), self.value) for batch in batches)


class GivesInfinity(Diverges):
  value = np.inf


class SaysThatItDiverged(Counting):
  def train(self, steps):
    super().train(steps)
    raise Diverged("the loss is not finite", 3)
