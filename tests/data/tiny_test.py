"""Every data set has a small synthetic one of its kind."""

import pytest

from largevocab.data import DATASETS


@pytest.mark.parametrize("name", DATASETS)
def test_it_loads_at_once_and_has_batches(name, tmp_path, monkeypatch):
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
