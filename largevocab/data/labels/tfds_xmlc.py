"""Builders of the Extreme Classification Repository's sets for tensorflow-datasets.

TensorFlow is never imported. The user provides the files. Prepare them as array_record:

  builder = Amazon670k(data_dir=..., file_format="array_record")
  builder.download_and_prepare(
    download_config=tfds.download.DownloadConfig(manual_dir="directory of train.txt")
  )
"""

import numpy as np
import tensorflow_datasets as tfds
from etils import epath

from largevocab.data.files import find_file
from largevocab.data.labels.xmlc_format import read_train_and_test

# Keys in the metadata of a prepared set.
NUM_FEATURES, NUM_LABELS = "num_features", "num_labels"


class XmlcBuilder(tfds.core.GeneratorBasedBuilder):
  """Documents of train.txt and test.txt, each plain, .gz or .xz, in manual_dir.

  `largevocab.data.labels.xmlc_format` describes the format. The numbers of features and
  labels are in the metadata.
  """

  VERSION = tfds.core.Version("1.0.0")
  MANUAL_DOWNLOAD_INSTRUCTIONS = (
    "Put {train,test}.txt[.gz|.xz], in the Extreme Classification Repository's format,"
    " in manual_dir."
  )
  # Otherwise TFDS 4.9 finds it through importlib_resources, which it does not install.
  code_path = epath.Path(__file__)

  def _info(self):
    return tfds.core.DatasetInfo(
      builder=self,
      description=type(self).__doc__,
      features=tfds.features.FeaturesDict(
        {
          "labels": tfds.features.Tensor(shape=(None,), dtype=np.int32),
          "indices": tfds.features.Tensor(shape=(None,), dtype=np.int32),
          "values": tfds.features.Tensor(shape=(None,), dtype=np.float32),
        }
      ),
      metadata=tfds.core.MetadataDict(),
      disable_shuffling=True,
    )

  def _split_generators(self, dl_manager):
    directory = str(dl_manager.manual_dir)
    paths = {
      s: find_file(directory, f"{s}.txt", "manual_dir") for s in ("train", "test")
    }
    files = read_train_and_test(*paths.values())
    self.info.metadata[NUM_FEATURES] = files[0].num_features
    self.info.metadata[NUM_LABELS] = files[0].num_labels
    return {
      split: self._generate_examples(file.documents)
      for split, file in zip(paths, files, strict=True)
    }

  def _generate_examples(self, documents):
    for i in range(documents.number):
      features = slice(*documents.feature_ptr[i : i + 2])
      labels = slice(*documents.label_ptr[i : i + 2])
      yield (
        i,
        {
          "labels": documents.label_ids[labels],
          "indices": documents.feature_ids[features],
          "values": documents.values[features],
        },
      )


class Amazon670k(XmlcBuilder):
  """Amazon-670K: 490,449 and 153,025 products, 135,909 features, 670,091 labels."""


class Wiki325k(XmlcBuilder):
  """WikiLSHTC-325K: 1,778,351 and 587,084 articles of Wikipedia.

  The articles have 1,617,899 features and 325,056 labels.
  """


class Odp105k(XmlcBuilder):
  """ODP-105K: 1,084,320 and 493,014 web pages, with one label each.

  The pages have 422,713 features and 105,033 labels.
  """


class Delicious200k(XmlcBuilder):
  """Delicious-200K: 196,606 and 100,095 pages, 782,585 features, 205,443 labels."""


class Eurlex4k(XmlcBuilder):
  """EURLex-4K: 15,539 and 3,809 laws of the EU, 5,000 features, 3,993 labels."""
