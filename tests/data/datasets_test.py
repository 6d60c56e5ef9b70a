"""What holds for every data set of the registry."""

import dataclasses

import pytest

from largevocab.data import DATASETS


@pytest.mark.parametrize("name", DATASETS)
def test_settings_are_plain_values_with_defaults(name):
  for field in dataclasses.fields(DATASETS[name]):
    assert type(field.default) in (str, int, float, bool, tuple), field.name
    assert field.name != "name"  # a config keeps the data set's own name there


@pytest.mark.parametrize("name", DATASETS)
def test_settings_are_hashable_and_frozen(name):
  dataset = DATASETS[name]()
  assert hash(dataset) == hash(DATASETS[name]())
  with pytest.raises(dataclasses.FrozenInstanceError):
    setattr(dataset, dataclasses.fields(dataset)[0].name, 3)


def test_registry_is_complete():
  assert set(DATASETS) == {
    "ptb", "text8", "europarl", "lm1b", "text", "stdlib", "zipf", "tfds",
    "diginetica", "video_games", "zipf_items", "softmax_regression",
    "xmlc", "tfds_xmlc", "gowalla", "zipf_labels", "stdlib_calls",
  }  # fmt: skip
