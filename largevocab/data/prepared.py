"""Text prepared by tensorflow-datasets."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from largevocab.data.encoded import SPLITS
from largevocab.data.plain_text import PlainText
from largevocab.data.text_corpus import Text
from largevocab.errors import UserError

_RECORDS = 1024  # read at a time


@dataclass(frozen=True, kw_only=True)
class Tfds(PlainText):
  """A text feature of a data set prepared as array_record; TensorFlow is not needed.

  `largevocab.data.tfds_text` has builders for Penn Treebank and for text files.

  Attributes:
    dataset: its name, as in `lm1b` or `para_crawl/enfr`.
    data_dir: where it was prepared; empty: ~/tensorflow_datasets.
    feature: the text; one within a translation is named `translation/fr`.
    train, valid, test: its splits, as in `train[:10%]`; valid or test empty: cut off
      the end of the training text.
  """

  dataset: str = ""
  data_dir: str = ""
  feature: str = "text"
  train: str = "train"
  valid: str = ""
  test: str = ""

  def texts(self):
    builder = self._builder()
    texts: dict[str, Text | float] = {
      "valid": float(self.valid_share),
      "test": float(self.test_share),
    }
    for split in SPLITS:
      name = getattr(self, split)
      if name:
        try:
          files = [Path(path) for path in builder.info.splits[name].filepaths]
        except (KeyError, ValueError) as error:
          raise UserError(
            f"data.{split}: {self.dataset} has no split {name}, only "
            f"{', '.join(builder.info.splits)}: choose one of these"
          ) from error
        lines = self._lines(builder, name)
        texts[split] = Text(self.words_of(lines), files, f"{name}/{self.feature}")
    return texts

  def _builder(self):
    try:
      import tensorflow_datasets as tfds
    except ImportError as error:
      raise UserError(
        f"tensorflow-datasets is not installed ({error}): pip install "
        "tensorflow-datasets array_record"
      ) from error
    try:
      builder = tfds.builder(self.dataset, data_dir=self.data_dir or None)
    except (tfds.core.DatasetNotFoundError, ValueError) as error:
      raise self._not_prepared() from error
    if not builder.info.splits:
      raise self._not_prepared()
    return builder

  def _not_prepared(self) -> UserError:
    return UserError(
      f"data.dataset: {self.dataset!r} is not prepared in "
      f"{self.data_dir or '~/tensorflow_datasets'}: prepare it there with "
      'file_format="array_record", or set dataset and data_dir'
    )

  def _lines(self, builder, split: str) -> Iterator[str]:
    try:
      source = builder.as_data_source(split)
    except NotImplementedError as error:  # tfrecord: only TensorFlow reads it
      raise self._not_prepared() from error
    for start in range(0, len(source), _RECORDS):
      numbers = range(start, min(start + _RECORDS, len(source)))
      for record in source.__getitems__(numbers):
        # Not splitlines: that also parts at marks which are no line ends in a file.
        yield from self._text(record).split("\n")

  def _text(self, record) -> str:
    value = record
    for key in self.feature.split("/"):
      if not isinstance(value, dict) or key not in value:
        raise UserError(
          f"data.feature: {self.dataset} has no {self.feature}, only "
          f"{', '.join(record)}: choose one of these"
        )
      value = value[key]
    if not isinstance(value, bytes | str):
      raise UserError(f"data.feature: {self.feature} of {self.dataset} is not text")
    return value.decode() if isinstance(value, bytes) else value
