"""The source of Python's standard library, a corpus that needs no download."""

import hashlib
import os
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from largevocab.data.encoded import SPLITS
from largevocab.data.text.text_corpus import Text, TextCorpus
from largevocab.data.text.vocabulary import EOS
from largevocab.fields import CountOrNone, settings

# An identifier or word, a run of digits, or one mark of punctuation.
_TOKEN = re.compile(r"[^\W\d]\w*|\d+|[^\w\s]")

_NOT_LIBRARY = {"site-packages", "dist-packages", "__pycache__"}
# Excluded, since many installations lack them.
_TESTS = {"test", "tests", "idle_test"}


@settings(kw_only=True)
class Stdlib(TextCorpus):
  """Source text of the running Python's standard library, without its tests.

  Identifiers, runs of digits and single marks of punctuation are the words. Each line
  ends with `<eos>`. On CPython 3.11, the corpus has 2.9 M tokens of 52,000 distinct
  words. V is 33,000, the number of words that occur at least twice in the training
  split. The other words become `<unk>`, which is 6 % of the words in held-out files.
  Other versions of Python differ, so compare results within one version only. Of every
  20 files, by a hash of their paths, about one is for validation and one for test.
  """

  min_count: CountOrNone = 2

  def texts(self):
    files = {split: [] for split in SPLITS}
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(source_files(root)):
      files[split_of(path.relative_to(root).as_posix())].append(path)
    return {split: Text(self._words_of(paths), paths) for split, paths in files.items()}

  def split(self, line: str) -> list[str]:
    """The words of a line of source, without `<eos>`.

    >>> Stdlib().words("x1 = f(20)")
    ['x1', '=', 'f', '(', '20', ')']
    """
    return _TOKEN.findall(line)

  def _words_of(self, paths: list[Path]) -> Iterator[list[str]]:
    for path in paths:
      for line in source_of(path).splitlines():
        yield [*self.words(line), EOS]


def source_files(directory: Path) -> Iterator[Path]:
  """All readable Python files in a directory, except tests."""
  for path, directories, names in os.walk(directory):
    directories[:] = sorted(set(directories) - _NOT_LIBRARY - _TESTS)
    files = (Path(path, name) for name in names if name.endswith(".py"))
    yield from (file for file in files if os.access(file, os.R_OK))


def split_of(name: str) -> str:
  """The split of a file, by its name: of 20, about one for validation, one for test.

  >>> split_of("ast.py"), split_of("glob.py")
  ('train', 'train')
  """
  bucket = hashlib.blake2b(name.encode(), digest_size=8).digest()[0] % 20
  return {0: "valid", 1: "test"}.get(bucket, "train")


def source_of(path: Path) -> str:
  """The text of a file; empty if it cannot be read."""
  try:
    return path.read_text(encoding="utf-8")
  except (OSError, UnicodeDecodeError):
    return ""  # a user cannot fix the installation
