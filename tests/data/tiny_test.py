"""Every data set has a small synthetic counterpart."""

import jax
import numpy as np
import pytest

from largevocab.data import DATASETS


@pytest.mark.parametrize("name", DATASETS)
def test_tiny_data_loads_without_files_and_has_batches(name, tmp_path, monkeypatch):
  monkeypatch.setenv("LARGEVOCAB_CACHE", str(tmp_path))
  tiny = DATASETS[name]().tiny()
  assert tiny.tiny() == tiny
  data = tiny.load()
  assert data.counts.num_classes == len(data.vocabulary.counts_V) <= 1000
  unroll = 5 if name in ("ptb", "zipf") else 1
  batch = data.training_batches(4, unroll).batch(0)
  assert len(batch.y.ids_NP) == 4 * unroll
  assert len(data.evaluation_batches("valid", 4, unroll)) > 0
  assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", DATASETS)
def test_processes_read_parts_of_the_same_batches(name):
  data = DATASETS[name]().tiny().load()
  unroll = 5 if name in ("ptb", "zipf") else 1
  parts = [slice(0, 2), slice(2, 3), slice(3, 4)]

  def joined(leaf, *of_parts):
    if np.ndim(leaf):
      np.testing.assert_array_equal(np.concatenate(of_parts), leaf)
    else:
      assert {leaf, *of_parts} == {leaf}

  training = data.training_batches(4, unroll)
  for step in (0, 1, training.steps_per_epoch):
    jax.tree.map(
      joined, training.batch(step), *(training.batch(step, r) for r in parts)
    )
  held_out = data.evaluation_batches("valid", 4, unroll)
  for batches in zip(held_out, *map(held_out.read, parts), strict=True):
    jax.tree.map(joined, *batches)
  first = [next(held_out.one_of_each_shape(rows)) for rows in parts]
  jax.tree.map(joined, next(held_out.one_of_each_shape()), *first)
