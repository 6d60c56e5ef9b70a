"""Reads text that tensorflow-datasets has prepared."""

from collections.abc import Iterator

from largevocab.data.text.plain import PlainText, Source
from largevocab.data.tfds_records import files_of, open_builder, records
from largevocab.errors import UserError
from largevocab.fields import settings

_VERSION = 1  # version of `_lines_of`; changing it rebuilds these corpora


@settings(kw_only=True)
class Tfds(PlainText):
  """A text feature of a data set prepared as array_record; TensorFlow is not needed.

  `largevocab.data.text.tfds_text` has builders for Penn Treebank and for text files.

  Attributes:
    dataset: name of the data set, for example `lm1b` or `para_crawl/enfr`.
    data_dir: where the data set was prepared; empty: ~/tensorflow_datasets.
    feature: the text feature; within a translation, for example, `translation/fr`.
    train, valid, test: splits of the data set, such as `train[:10%]`.
  """

  dataset: str = ""
  data_dir: str = ""
  feature: str = "text"
  train: str = "train"

  def source(self, split: str, place: str) -> Source:
    builder = open_builder(self.dataset, self.data_dir)
    files = files_of(builder, place, f"data.{split}")
    version = f"{place}/{self.feature}/{_VERSION}"
    return Source(self._lines(builder, place), files, version)

  def _lines(self, builder, split: str) -> Iterator[str]:
    for record in records(builder, split, self.data_dir):
      yield from self._lines_of(record)

  def _lines_of(self, record) -> list[str]:
    # Not splitlines, which also splits at characters other than line ends. As in a
    # file, a line end at the end of a record ends a line.
    return self._text(record).removesuffix("\n").split("\n")

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
      raise UserError(
        f"data.feature: {self.feature} of {self.dataset} is not text: choose "
        "one that is"
      )
    return value.decode() if isinstance(value, bytes) else value
