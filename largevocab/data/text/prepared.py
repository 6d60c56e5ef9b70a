"""Text prepared by tensorflow-datasets."""

from collections.abc import Iterator

from largevocab.data.encoded import SPLITS
from largevocab.data.text.plain import PlainText
from largevocab.data.text.text_corpus import Text
from largevocab.data.tfds_records import files_of, open_builder, records
from largevocab.errors import UserError
from largevocab.fields import settings


@settings(kw_only=True)
class Tfds(PlainText):
  """A text feature of a data set prepared as array_record; TensorFlow is not needed.

  `largevocab.data.text.tfds_text` has builders for Penn Treebank and for text files.

  Attributes:
    dataset: its name, for example `lm1b` or `para_crawl/enfr`.
    data_dir: where it was prepared; empty: ~/tensorflow_datasets.
    feature: the text feature; within a translation for example `translation/fr`.
    train, valid, test: its splits, such as `train[:10%]`; valid or test empty: cut off
      the end of the training text.
  """

  dataset: str = ""
  data_dir: str = ""
  feature: str = "text"
  train: str = "train"
  valid: str = ""
  test: str = ""

  def texts(self):
    builder = open_builder(self.dataset, self.data_dir)
    texts: dict[str, Text | float] = {
      "valid": float(self.valid_share),
      "test": float(self.test_share),
    }
    for split in SPLITS:
      name = getattr(self, split)
      if name:
        files = files_of(builder, name, f"data.{split}")
        lines = self._lines(builder, name)
        texts[split] = Text(self.words_of(lines), files, f"{name}/{self.feature}")
    return texts

  def _lines(self, builder, split: str) -> Iterator[str]:
    for record in records(builder, split, self.data_dir):
      # Not splitlines, which also splits at other characters than line ends.
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
