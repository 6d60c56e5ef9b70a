"""Sets of the Extreme Classification Repository from tensorflow-datasets."""

import json
import sys

import numpy as np
import pytest

from largevocab.data import DATASETS
from largevocab.errors import UserError

tfds = pytest.importorskip("tensorflow_datasets")
pytest.importorskip("array_record")

from largevocab.data.labels import tfds_xmlc, xmlc_prepared  # noqa: E402
from largevocab.data.text.tfds_text import TextLines  # noqa: E402

BUILDERS = ("Amazon670k", "Wiki325k", "Odp105k", "Delicious200k", "Eurlex4k")


def write(directory, number):
  """Writes files, with other content for each number."""
  rng = np.random.default_rng(number)
  for split, size in (("train", 40), ("test", 10)):
    lines = []
    for i in range(size):
      labels = ",".join(map(str, sorted(rng.permutation(6)[: i % 3]))) if i % 5 else ""
      features = [f"{f}:{rng.uniform():.3f}" for f in rng.permutation(9)[: i % 4]]
      lines.append(" ".join([labels, *features]) + "\n")
    text = f"{size} {9 + number} {6 + number}\n" + "".join(lines)
    (directory / f"{split}.txt").write_text(text)


def prepare(builder_class, directory, manual_dir):
  builder = builder_class(data_dir=directory, file_format="array_record")
  config = tfds.download.DownloadConfig(manual_dir=manual_dir)
  builder.download_and_prepare(download_config=config)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
  directory = tmp_path_factory.mktemp("data")
  for number, name in enumerate(BUILDERS):
    manual_dir = directory / "manual" / name
    manual_dir.mkdir(parents=True)
    write(manual_dir, number)
    prepare(getattr(tfds_xmlc, name), directory, manual_dir)
  return directory


def load(data_dir, tmp_path, **settings):
  return DATASETS["tfds_xmlc"](
    data_dir=str(data_dir), cache_dir=str(tmp_path), **settings
  ).load()


def check_equal(one, other):
  assert one.vocabulary.words == other.vocabulary.words
  assert one.num_inputs == other.num_inputs
  np.testing.assert_array_equal(one.counts.unigram_V, other.counts.unigram_V)
  for split in ("train", "valid", "test"):
    for a, b in zip(getattr(one, split), getattr(other, split), strict=True):
      np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", BUILDERS)
def test_prepared_set_equals_its_files(data_dir, tmp_path, name):
  settings = {"valid_share": 0.2, "cache_dir": str(tmp_path)}
  files = DATASETS["xmlc"](path=str(data_dir / "manual" / name), **settings).load()
  prepared = load(data_dir, tmp_path, dataset=name.lower(), valid_share=0.2)
  check_equal(prepared, files)
  assert prepared.num_inputs == 9 + BUILDERS.index(name)
  assert "tensorflow" not in sys.modules


def test_split_slices_and_count_limits_apply_to_prepared_sets(data_dir, tmp_path):
  half = load(
    data_dir, tmp_path, dataset="eurlex4k", train="train[:50%]", valid_share=0.2
  )
  assert half.train.number + half.valid.number == 20
  thinned = load(
    data_dir, tmp_path, dataset="eurlex4k", valid_share=0.2, min_count=2, max_count=3
  )
  assert thinned.counts.unigram_V.max() == 3


@pytest.mark.parametrize(("name", "field"), [("labels", 1), ("indices", 0)])
def test_ids_out_of_the_range_in_the_metadata_are_named(tmp_path, name, field):
  """The metadata and the records of the set do not match."""
  (tmp_path / "manual").mkdir()
  write(tmp_path / "manual", 0)
  prepare(tfds_xmlc.Eurlex4k, tmp_path, tmp_path / "manual")
  (path,) = tmp_path.rglob("metadata.json")
  key = (tfds_xmlc.NUM_FEATURES, tfds_xmlc.NUM_LABELS)[field]
  path.write_text(json.dumps(json.loads(path.read_text()) | {key: 3}))
  with pytest.raises(UserError, match=f"train, record .* in {name} is not from 0 to 2"):
    load(tmp_path, tmp_path, dataset="eurlex4k")


@pytest.mark.parametrize(
  ("record", "message"),
  [
    ({"values": [1.0, np.nan]}, "the value of index 5 is not a finite number"),
    ({"values": [1.0, 1e39]}, "the value of index 5 is not a finite number"),
    ({"values": [1.0]}, "2 indices, but 1 values"),
    ({"labels": [4, 4]}, "4 is repeated in labels"),
    ({"indices": [5, 5]}, "5 is repeated in indices"),
  ],
)
def test_invalid_record_is_named(data_dir, tmp_path, monkeypatch, record, message):
  good = {"indices": [3, 5], "values": [1.0, 2.0], "labels": [4]}
  records = lambda *_: [good, good | record]
  monkeypatch.setattr(xmlc_prepared, "records", records)
  with pytest.raises(UserError, match=f"train, record 1: {message}: prepare the set"):
    load(data_dir, tmp_path, dataset="eurlex4k")


def test_invalid_file_is_named_during_preparation(tmp_path):
  write(tmp_path, 0)
  (tmp_path / "test.txt").write_text("1 9 6\n6 1:1\n")
  with pytest.raises(UserError, match=r"test\.txt, line 2: label 6 is not below 6"):
    prepare(tfds_xmlc.Eurlex4k, tmp_path / "data", tmp_path)
  (tmp_path / "test.txt").write_text("1 9 7\n6 1:1\n")
  with pytest.raises(UserError, match=r"test\.txt, line 1: 9 features and 7 labels"):
    prepare(tfds_xmlc.Eurlex4k, tmp_path / "data", tmp_path)
  (tmp_path / "test.txt").unlink()
  with pytest.raises(UserError, match=r"manual_dir: no test\.txt"):
    prepare(tfds_xmlc.Eurlex4k, tmp_path / "data", tmp_path)


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"dataset": "nowhere_at_all"}, "'nowhere_at_all' is not prepared in"),
    ({"dataset": ""}, "data.dataset is empty: set it"),
    ({"test": "exam"}, "data.test: eurlex4k/1.0.0 has no split exam, only train, test"),
    ({"valid_share": 1.0}, "^XmlcTfds.valid_share is 1.0; it must"),
  ],
)
def test_invalid_settings_are_reported_in_one_line(
  data_dir, tmp_path, settings, message
):
  with pytest.raises(UserError, match=message) as error:
    load(data_dir, tmp_path, **{"dataset": "eurlex4k", **settings})
  assert "\n" not in str(error.value)


def test_prepared_text_is_refused_as_labelled_documents(tmp_path):
  for split in ("train", "valid", "test"):
    (tmp_path / f"{split}.txt").write_text("a b\n")
  prepare(TextLines, tmp_path, tmp_path)
  with pytest.raises(
    UserError,
    match=r"text_lines has no indices, values, labels, metadata num_features, metadata "
    r"num_labels: prepare it with a builder of largevocab\.data\.labels\.tfds_xmlc$",
  ):
    load(tmp_path, tmp_path, dataset="text_lines")
