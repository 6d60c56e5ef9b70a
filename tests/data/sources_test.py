"""The table of public data sets."""

import pathlib
import re

import pytest

from largevocab import command_line, config
from largevocab.data import sources

ROOT = pathlib.Path(sources.__file__).parents[2]


@pytest.mark.parametrize("name", sources.SOURCES)
def test_rows_of_the_table_are_complete(name, monkeypatch):
  row = sources.SOURCES[name]
  assert row.licence
  assert row.files
  for file in row.files:
    assert bool(file.url) != bool(row.by_hand)
    assert not file.url or re.match(r"https?://\S+$", file.url)
    assert re.fullmatch(r"|[0-9a-f]{64}", file.sha256)
    assert bool(file.size) == bool(file.sha256) == bool(file.size and row.stated_by)
    assert "/" not in file.name
  monkeypatch.chdir(ROOT)
  first, *flags = row.flags.format(dir="DIR").split()
  settings = command_line.load(first.removeprefix("--config="))
  command_line.override(settings, ["main", *flags], known=[])
  config.build(settings)


def test_tensorflow_datasets_has_the_same_checksums():
  """For every file with a checksum there."""
  tfds = pytest.importorskip("tensorflow_datasets")
  theirs = {}
  for table in pathlib.Path(tfds.__file__).parent.glob("datasets/*/checksums.tsv"):
    for line in table.read_text().splitlines():
      if len(words := line.split("\t")) > 2:
        theirs[words[0].partition("://")[2]] = (int(words[1]), words[2])
  shared = [
    (file, theirs[address])
    for row in sources.SOURCES.values()
    for file in row.files
    if file.url and (address := file.url.partition("://")[2]) in theirs
  ]
  assert shared
  assert [(file.size, file.sha256) for file, _ in shared] == [own for _, own in shared]
