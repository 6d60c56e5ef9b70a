"""Builders of text for tensorflow-datasets, which never import TensorFlow.

Data prepared with `file_format="array_record"` keeps the order of the document:

  builder = PennTreebank(data_dir=..., file_format="array_record")
  builder.download_and_prepare(
    download_config=tfds.download.DownloadConfig(manual_dir="directory of ptb.*.txt")
  )
"""

import tensorflow_datasets as tfds
from etils import epath

from largevocab.data.encoded import SPLITS
from largevocab.data.files import find_file
from largevocab.data.lines import read_lines


class TextLines(tfds.core.GeneratorBasedBuilder):
  """Lines of {train,valid,test}.txt, each plain, .gz or .xz, in manual_dir."""

  VERSION = tfds.core.Version("1.0.0")
  MANUAL_DOWNLOAD_INSTRUCTIONS = "Put {train,valid,test}.txt[.gz|.xz] in manual_dir."
  PREFIX = ""
  # Otherwise TFDS 4.9 finds it through importlib_resources, which it does not install.
  code_path = epath.Path(__file__)

  def _info(self):
    return tfds.core.DatasetInfo(
      builder=self,
      description=type(self).__doc__,
      features=tfds.features.FeaturesDict({"text": tfds.features.Text()}),
      disable_shuffling=True,
    )

  def _split_generators(self, dl_manager):
    directory = str(dl_manager.manual_dir)
    return {
      split: self._generate_examples(
        find_file(directory, f"{self.PREFIX}{split}.txt", "manual_dir")
      )
      for split in SPLITS
    }

  def _generate_examples(self, path):
    for number, line in enumerate(read_lines(path)):
      yield number, {"text": line.strip()}


class PennTreebank(TextLines):
  """Lines of ptb.{train,valid,test}.txt, each plain, .gz or .xz, in manual_dir."""

  MANUAL_DOWNLOAD_INSTRUCTIONS = (
    "Put ptb.{train,valid,test}.txt[.gz|.xz] (Mikolov's preprocessing) in manual_dir."
  )
  PREFIX = "ptb."
