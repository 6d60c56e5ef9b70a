"""Properties of every data set of the registry."""

import dataclasses

import pytest

from largevocab.data import DATASETS, Europarl, Text8, TextFiles
from largevocab.errors import UserError


@pytest.mark.parametrize("name", DATASETS)
def test_settings_are_plain_values_with_defaults(name):
  for field in dataclasses.fields(DATASETS[name]):
    assert type(field.default) in (str, int, float, bool, tuple), field.name
    assert field.name != "name"  # reserved in configs for the name of the data set


@pytest.mark.parametrize("name", DATASETS)
def test_settings_are_hashable_and_frozen(name):
  dataset = DATASETS[name]()
  assert hash(dataset) == hash(DATASETS[name]())
  with pytest.raises(dataclasses.FrozenInstanceError):
    setattr(dataset, dataclasses.fields(dataset)[0].name, 3)


PLACES = {"path", "sources", "data_dir", "cache_dir"}
TEXT_FILES = {TextFiles, Text8, Europarl}
NAMED = [
  (name, field.name)
  for name, dataset in DATASETS.items()
  for field in dataclasses.fields(dataset)
  if field.name in PLACES or (dataset in TEXT_FILES and field.name == "train")
]


@pytest.mark.parametrize(("name", "place"), NAMED)
def test_path_in_an_unknown_home_directory_is_reported(
  name, place, monkeypatch, tmp_path
):
  if place == "data_dir":
    pytest.importorskip("tensorflow_datasets")
  monkeypatch.setenv("LARGEVOCAB_CACHE", str(tmp_path))
  dataset = DATASETS[name](**{place: "~nosuch/a"})
  with pytest.raises(UserError) as error:
    dataset.load()
  assert "'~nosuch' has no home directory" in str(error.value)
  assert str(error.value).startswith(f"data.{place} is '~nosuch/a")


def test_registry_is_complete():
  assert set(DATASETS) == {
    "ptb", "text8", "europarl", "lm1b", "text", "stdlib", "zipf", "tfds",
    "diginetica", "video_games", "zipf_items", "softmax_regression", "interactions",
    "zipf_sequences",
    "xmlc", "tfds_xmlc", "gowalla", "zipf_labels", "topic_labels", "stdlib_calls",
  }  # fmt: skip
