"""Runs of one seed are paired: they differ only in the method."""

import functools

import jax
import numpy as np
import pytest

from largevocab import config as c
from largevocab.training.state import init_state
from tests.long import others_long

HEADS = (
  *("full", "sampled/uniform", "sampled/pps", "sampled/bigram", "sampled/block"),
  *("sampled/quadratic_prior", "nce/unigram", "blackout/unigram", "ranking/uniform"),
  "negative_sampling/unigram",
)


@functools.cache
def start(head, seed):
  """Network, inputs, rows of classes and some batches of a run."""
  settings = c.experiment(
    data=c.part("data", "zipf", num_tokens=200),
    model=c.part("model", "lstm", embed=6, hidden=8, layers=1),
    head=c.head(head, num_samples=5, init_scale=0.1),
    optimizer=c.part("optimizer", "sgd"),
    train=c.Training(batch_size=4, unroll=3, seed=seed),
  )
  exp = c.build(settings)
  data = exp.data.load()
  state = init_state(exp, data)
  ids_R = np.arange(data.counts.num_classes)
  batches = data.training_batches(4, 3)
  first = [batches.batch(step) for step in (0, 1, batches.steps_per_epoch)]
  return {
    "network": jax.tree.leaves(state.params),
    "inputs": [state.inputs.w_VD],
    "classes": [exp.head.class_rows(state.head, ids_R)[:, : exp.model.width]],
    "batches": jax.tree.leaves(first),
  }


def agree(some, others):
  """Which parts of two runs are equal."""
  return {
    part
    for part in some
    if all(np.array_equal(a, b) for a, b in zip(some[part], others[part], strict=True))
  }


@pytest.mark.parametrize("head", others_long(HEADS[1:], HEADS[2:7:2]))
def test_runs_of_one_seed_start_alike_and_read_the_same_batches(head):
  for seed in (0, 3):
    some = start(head, seed)
    assert agree(some, start("full", seed)) == set(some)


@pytest.mark.parametrize("head", HEADS)
def test_runs_of_different_seeds_differ(head):
  assert agree(start(head, 0), start(head, 1)) == {"batches"}
