"""Reads array_record data sets of tensorflow-datasets, without TensorFlow."""

from collections.abc import Iterator
from pathlib import Path

from largevocab.errors import UserError
from largevocab.paths import user_path

_RECORDS = 1024  # number of records read at a time


def open_builder(dataset: str, data_dir: str):
  """Opens the builder of a prepared data set.

  Args:
    dataset: name of the data set, for example `lm1b` or `para_crawl/enfr`.
    data_dir: where the data set was prepared; empty: ~/tensorflow_datasets.

  Raises:
    UserError: the name is empty, the data set does not exist, or tensorflow-datasets is
      not installed.
  """
  directory = str(user_path(data_dir, "data.data_dir")) if data_dir else None
  if not dataset:
    raise UserError(
      "data.dataset is empty: set it to the name of a prepared data set, such as lm1b"
    )
  try:
    import tensorflow_datasets as tfds
  except ImportError as error:
    raise UserError(
      f"tensorflow-datasets is not installed ({error}): pip install "
      "tensorflow-datasets array_record"
    ) from error
  try:
    builder = tfds.builder(dataset, data_dir=directory)
  except (tfds.core.DatasetNotFoundError, ValueError) as error:
    raise _not_prepared(dataset, data_dir) from error
  if not builder.info.splits:
    raise _not_prepared(dataset, data_dir)
  return builder


def files_of(builder, split: str, setting: str) -> list[Path]:
  """The files of a split, such as `train[:10%]`, given by `setting`.

  Raises:
    UserError: there is no such split.
  """
  try:
    return [Path(path) for path in builder.info.splits[split].filepaths]
  except (KeyError, ValueError) as error:
    raise UserError(
      f"{setting}: {builder.info.full_name} has no split {split}, only "
      f"{', '.join(builder.info.splits)}: choose one of these"
    ) from error


def records(builder, split: str, data_dir: str) -> Iterator[dict]:
  """The records of a split, in order.

  Raises:
    UserError: the records are in a format that needs TensorFlow.
  """
  try:
    source = builder.as_data_source(split)
  except NotImplementedError as error:  # tfrecord: only TensorFlow reads it
    raise _not_prepared(builder.info.full_name, data_dir) from error
  for start in range(0, len(source), _RECORDS):
    numbers = range(start, min(start + _RECORDS, len(source)))
    yield from source.__getitems__(numbers)


def _not_prepared(dataset: str, data_dir: str) -> UserError:
  return UserError(
    f"data.dataset: {dataset!r} is not prepared in "
    f"{data_dir or '~/tensorflow_datasets'}: prepare it there with "
    'file_format="array_record", or set dataset and data_dir'
  )
