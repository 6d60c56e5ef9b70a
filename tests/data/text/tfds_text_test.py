import shutil
import sys

import numpy as np
import pytest

from largevocab.data import DATASETS
from largevocab.errors import UserError

tfds = pytest.importorskip("tensorflow_datasets")
pytest.importorskip("array_record")

from largevocab.data.text.tfds_text import PennTreebank, TextLines  # noqa: E402


def prepare(builder_class, directory, manual_dir):
  builder = builder_class(data_dir=directory, file_format="array_record")
  config = tfds.download.DownloadConfig(manual_dir=manual_dir)
  builder.download_and_prepare(download_config=config)
  return builder


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
  manual_dir = tmp_path_factory.mktemp("manual")
  for split, size in (("train", 300), ("valid", 20), ("test", 30)):
    lines = "".join(f" a{n % 5} b{n % 7} {split} \n" for n in range(size))
    (manual_dir / f"ptb.{split}.txt").write_text(lines)
    (manual_dir / f"{split}.txt").write_text(lines)
  directory = tmp_path_factory.mktemp("data")
  prepare(PennTreebank, directory, manual_dir)
  prepare(TextLines, directory, manual_dir)
  return directory, manual_dir


def dataset(data_dir, tmp_path, **settings):
  return DATASETS["tfds"](
    data_dir=str(data_dir[0]), cache_dir=str(tmp_path), **settings
  )


def test_prepared_treebank_equals_its_files(data_dir, tmp_path):
  prepared = dataset(
    data_dir, tmp_path, dataset="penn_treebank", valid="valid", test="test"
  ).load()
  files = DATASETS["ptb"](path=str(data_dir[1]), cache_dir=str(tmp_path)).load()
  assert prepared.vocabulary.words == files.vocabulary.words
  for split in ("train", "valid", "test"):
    np.testing.assert_array_equal(getattr(prepared, split), getattr(files, split))
  assert "tensorflow" not in sys.modules


def test_records_are_read_like_files():
  """A final line end ends the last line and does not begin another."""
  lines_of = lambda text: DATASETS["tfds"]()._lines_of({"text": text.encode()})
  assert lines_of("a b\n") == lines_of("a b") == ["a b"]
  assert lines_of("a\n\nb\n\n") == ["a", "", "b", ""]
  assert lines_of("a\u2028b") == ["a\u2028b"]


def test_splits_can_be_slices_and_shares(data_dir, tmp_path):
  corpus = dataset(
    data_dir, tmp_path, dataset="text_lines", train="train[:50%]", test="test"
  ).load()
  assert len(corpus.train) + len(corpus.valid) == 150 * 4
  assert len(corpus.test) == 30 * 4
  assert corpus.vocabulary.decode(corpus.train[:4]) == ["a0", "b0", "train", "<eos>"]


def test_format_that_needs_tensorflow_is_refused(data_dir, tmp_path):
  copy = tmp_path / "copy"
  shutil.copytree(data_dir[0] / "text_lines", copy / "text_lines")
  info = next(copy.rglob("dataset_info.json"))
  info.write_text(info.read_text().replace("array_record", "tfrecord"))
  for file in copy.rglob("*.array_record-*"):
    file.rename(file.with_name(file.name.replace("array_record", "tfrecord")))
  with pytest.raises(UserError, match='with file_format="array_record"'):
    dataset([copy], tmp_path, dataset="text_lines").load()


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"dataset": "nowhere_at_all"}, "'nowhere_at_all' is not prepared in"),
    ({"dataset": "lm1b"}, "'lm1b' is not prepared in .*array_record"),
    ({"dataset": ""}, r"data\.dataset is empty: set it to the name"),
    ({"train": "exam"}, "no split exam, only train, valid, test"),
    ({"feature": "words"}, "has no words, only text"),
  ],
)
def test_invalid_settings_are_reported_in_one_line(
  data_dir, tmp_path, settings, message
):
  with pytest.raises(UserError, match=message) as error:
    dataset(data_dir, tmp_path, **{"dataset": "text_lines", **settings}).load()
  assert "\n" not in str(error.value)
