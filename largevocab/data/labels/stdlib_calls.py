"""Functions of Python's standard library, labelled with the names that they call."""

import ast
import math
import re
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from largevocab.data.encoded import SPLITS
from largevocab.data.labels.document_set import DocumentSet
from largevocab.data.labels.documents import Documents, from_rows
from largevocab.data.labels.label_sets import LabelSet, thin_labels
from largevocab.data.text.stdlib import source_files, source_of, split_of
from largevocab.errors import UserError
from largevocab.fields import settings
from largevocab.paths import user_path

_MIN_COUNT = 2  # minimum number of training documents with a word, or a label
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
# CamelCase and ABCWords are split before a capital that is followed by small letters.
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+")


class Function(NamedTuple):
  """A function of a source file.

  Attributes:
    words: count of each word in the function.
    calls: the names that the function calls.
  """

  words: Counter[str]
  calls: set[str]


@settings(kw_only=True)
class StdlibCalls(DocumentSet):
  """Predicts which names a function calls, in the running Python's standard library.

  Every `def` is a document, including methods and functions within a function. Its
  labels are the names that it calls: `name` of `name(...)` and of `x.name(...)`. Its
  features are the words of all other identifiers and of its strings, including the
  docstring. Words are the lower-cased parts of `snake_case` and `CamelCase`, and have
  the value 1 + log(count). An identifier that the function calls is left out
  everywhere, because otherwise the labels would be in the input. (Words that it shares
  with other identifiers stay.) Words and labels are kept if at least two training
  documents have them. Documents are then kept if they have labels. Splits are by file,
  as in `Stdlib`.

  On CPython 3.11, there are 12,000 training functions with on average 3.2 of 3,900
  labels and 19 of 7,200 words. Other versions of Python differ, so compare results
  within one version only.

  Attributes:
    sources: a directory of other Python sources; empty: the standard library, without
      its tests.
  """

  sources: str = ""

  def files(self) -> Sequence[Path]:
    files = sorted(source_files(self._root()))
    if not files:
      raise UserError(
        f"data.sources: no .py file in {self.sources}: set it to another directory"
      )
    return files

  def options(self) -> Sequence[float | str]:
    # The split of a file depends on its name.
    return [path.relative_to(self._root()).as_posix() for path in self.files()]

  def read(self, files: Sequence[Path]) -> LabelSet:
    functions: dict[str, list[Function]] = {split: [] for split in SPLITS}
    for path in tqdm(files, desc="files", disable=None):
      split = split_of(path.relative_to(self._root()).as_posix())
      functions[split].extend(functions_of(source_of(path)))
    seen = Counter(word for function in functions["train"] for word in function.words)
    words = sorted(word for word, count in seen.items() if count >= _MIN_COUNT)
    number = {word: i for i, word in enumerate(words)}
    names = sorted({n for part in functions.values() for f in part for n in f.calls})
    label = {name: i for i, name in enumerate(names)}
    splits = {s: _documents(part, number, label) for s, part in functions.items()}
    return thin_labels(LabelSet(splits, len(words), names), _MIN_COUNT, 0)

  def _root(self) -> Path:
    if not self.sources:
      return Path(sysconfig.get_paths()["stdlib"])
    root = user_path(self.sources, "data.sources").resolve()
    if root == Path(root.anchor):
      raise UserError(
        f"data.sources is {self.sources}, the root of the file system: set it to a "
        "directory of Python sources"
      )
    return root


def functions_of(source: str) -> Iterator[Function]:
  """The functions in a source text; none if it is not valid Python.

  >>> function, = functions_of("def read_all(path): return open(path).read('by open')")
  >>> sorted(function.words), sorted(function.calls)
  (['all', 'by', 'path', 'read'], ['open', 'read'])
  """
  try:
    with warnings.catch_warnings(action="ignore"):
      tree = ast.parse(source)
  except (SyntaxError, ValueError, RecursionError):
    return
  for node in ast.walk(tree):
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
      yield _function(node)


def words_of(identifier: str) -> list[str]:
  """The words of an identifier, lower-cased.

  >>> words_of("parse_HTTPHeader2"), words_of("__init__"), words_of("x_1")
  (['parse', 'http', 'header'], ['init'], ['x'])
  """
  return [word.lower() for word in _WORD.findall(identifier)]


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Function:
  parts = list(ast.walk(node))
  calls = {name for part in parts if (name := _called(part))}
  identifiers = (name for part in parts for name in _identifiers(part))
  words = (w for name in identifiers if name not in calls for w in words_of(name))
  return Function(Counter(words), calls)


def _called(node: ast.AST) -> str:
  if isinstance(node, ast.Call):
    if isinstance(node.func, ast.Name):
      return node.func.id
    if isinstance(node.func, ast.Attribute):
      return node.func.attr
  return ""


def _identifiers(node: ast.AST) -> list[str]:
  """The identifiers of a node itself; for a string, its words."""
  match node:
    case ast.Name(id=name) | ast.Attribute(attr=name):
      return [name]
    case ast.arg(arg=name) | ast.keyword(arg=str(name)):
      return [name]
    case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
      return [name]
    case ast.Constant(value=str(text)):
      return _IDENTIFIER.findall(text)
  return []


def _documents(
  functions: list[Function], number: dict[str, int], label: dict[str, int]
) -> Documents:
  known = [sorted(number.keys() & function.words) for function in functions]
  return from_rows(
    [[number[w] for w in words] for words in known],
    [
      [1 + math.log(function.words[w]) for w in words]
      for function, words in zip(functions, known, strict=True)
    ],
    [sorted(label[name] for name in function.calls) for function in functions],
  )
