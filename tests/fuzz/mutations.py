"""Ways to damage a file."""

import codecs
import io
import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

Damage = Callable[[random.Random, bytes], bytes]

# Words that stand in place of a number.
NUMBERS = [
  b"-1",
  b"nan",
  b"inf",
  b"1e308",
  b"9" * 30,
  b"x",
  b"",
  b"0",
  b"1.5",
  b"2147483648",
]
NUMBERS += [
  "½".encode(),
  "٣".encode(),
  b"1_0",
  b"9223372036854775807",
  b"0x1f",
  b"1e400",
]


class Mutation(NamedTuple):
  """A way to damage a file.

  Attributes:
    damaged: the file's new content.
    ruins: kinds of files that can mean nothing after it, whatever the place.
    only: kinds of files that it is for; none: all.
  """

  name: str
  damaged: Damage
  ruins: frozenset[str] = frozenset()
  only: frozenset[str] = frozenset()

  def suits(self, kind: str) -> bool:
    return not self.only or kind in self.only


def truncated(rng: random.Random, content: bytes) -> bytes:
  return content[: rng.randrange(1, max(len(content), 2))]


def flipped(rng: random.Random, content: bytes, number: int = 1) -> bytes:
  changed = bytearray(content)
  for _ in range(number if content else 0):
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
  return bytes(changed)


def zeroed(rng: random.Random, content: bytes) -> bytes:
  half = len(content) // 2
  return content[:half] + bytes(len(content) - half)


def zeros_within(rng: random.Random, content: bytes) -> bytes:
  at = rng.randrange(max(len(content), 1))
  return content[:at] + bytes(16) + content[at + 16 :]


def binary_within(rng: random.Random, content: bytes) -> bytes:
  at = rng.randrange(len(content) + 1)
  return content[:at] + b"\xff\xfe\x00" + rng.randbytes(64) + content[at:]


def number_replaced(rng: random.Random, content: bytes) -> bytes:
  """Replaces a number by another, or by something that is not a number."""
  places = list(re.finditer(rb"\d+(\.\d+)?", content))
  if not places:
    return content
  place = rng.choice(places)
  return content[: place.start()] + rng.choice(NUMBERS) + content[place.end() :]


def first_number_replaced(rng: random.Random, content: bytes) -> bytes:
  """As `number_replaced`, of the first line, where headers are."""
  first, end, rest = content.partition(b"\n")
  return number_replaced(rng, first) + end + rest


def _lines(change: Callable[[random.Random, list[bytes]], None]) -> Damage:
  def damaged(rng: random.Random, content: bytes) -> bytes:
    lines = content.splitlines(keepends=True)
    if lines:
      change(rng, lines)
    return b"".join(lines)

  return damaged


def _at(rng: random.Random, lines: list[bytes]) -> int:
  return rng.randrange(len(lines))


def _swap(rng: random.Random, lines: list[bytes]) -> None:
  i, j = _at(rng, lines), _at(rng, lines)
  lines[i], lines[j] = lines[j], lines[i]


def _set(word: bytes) -> Callable[[random.Random, list[bytes]], None]:
  return lambda rng, lines: lines.insert(_at(rng, lines), word)


def _double(rng: random.Random, lines: list[bytes]) -> None:
  i = _at(rng, lines)
  lines.insert(i, lines[i])


ODD_VALUES = [
  *(
    None,
    True,
    -1,
    0,
    1.5,
    float("nan"),
    float("inf"),
    10**400,
    2**63,
    "",
    "text",
    "nan",
  ),
  *([], {}, [[]], [1, 2], {"a": 1}, [[1, 2, 3]], [[1, "a", None]], ["a"], "~nosuch"),
]


def value_replaced(rng: random.Random, content: bytes) -> bytes:
  """Changes a value anywhere within a JSON object."""
  whole = json.loads(content)
  _replace(rng, whole)
  return json.dumps(whole).encode()


def _replace(rng: random.Random, node: Any) -> None:
  """Replaces, removes or adds a value at any depth."""
  places = [(node, key) for node in _containers(node) for key in _keys(node)]
  if not places:
    return
  container, key = rng.choice(places)
  match rng.randrange(6):
    case 0:
      del container[key]
    case 1 if isinstance(container, dict):
      container["odd"] = rng.choice(ODD_VALUES)
    case _:
      container[key] = rng.choice(ODD_VALUES)


def _containers(node: Any) -> Iterator[Any]:
  if isinstance(node, dict | list):
    yield node
    for value in node.values() if isinstance(node, dict) else node:
      yield from _containers(value)


def _keys(container: Any) -> list[Any]:
  return list(container) if isinstance(container, dict) else [*range(len(container))]


def value_of_line_replaced(rng: random.Random, content: bytes) -> bytes:
  """The same, in a file of one object a line."""
  lines = content.splitlines()
  i = rng.randrange(len(lines))
  lines[i] = value_replaced(rng, lines[i])
  return b"\n".join(lines) + b"\n"


def line_replaced(rng: random.Random, content: bytes) -> bytes:
  """Replaces a line by a value that is not an object."""
  lines = content.splitlines()
  lines[rng.randrange(len(lines))] = json.dumps(rng.choice(ODD_VALUES)).encode()
  return b"\n".join(lines) + b"\n"


def header_replaced(rng: random.Random, content: bytes) -> bytes:
  """Changes the header of a .npy, keeping its length."""
  changes = [
    *((b"'<i4'", b"'<f4'"), (b"'<i8'", b"'<f8'"), (b"'<i8'", b"'|O8'")),
    *((b"'<i4'", b"'|S4'"), (b"'<i8'", b"'<M8'"), (b"False", b"1,   "), (b"(", b"-")),
    *((b"0,)", b"9,)"), (b"shape", b"shope"), (b",)", b"e9")),
  ]
  possible = [change for change in changes if change[0] in content[:128]]
  old, new = rng.choice(possible)
  return content[:128].replace(old, new) + content[128:]


def other_array(rng: random.Random, content: bytes) -> bytes:
  """Another valid .npy, with other values, shape or dtype."""
  ids = np.load(io.BytesIO(content))
  others = [
    *(-1 - ids, ids * 10**6, ids * 0, ids[:0], ids[None], ids[0], ids[:1]),
    *(ids.astype(np.float64), ids + 0.5, ids * np.nan, ids.astype(str), ids > 3),
    *(ids.astype(np.uint64) + 2**63, ids.astype(np.complex64), np.append(ids, ids)),
    np.full(len(ids), np.inf),
  ]
  file = io.BytesIO()
  np.save(file, others[rng.randrange(len(others))])
  return file.getvalue()


_TEXTS = frozenset({"text", "numbers", "xmlc", "pairs"})
_CODE = frozenset({"json", "python"})
_EVERY = _TEXTS | _CODE | {"packed", "npy", "records"}
_RECORDS = frozenset({"records"})
_COUNTED = frozenset({"xmlc"})  # the first line says how many there are

MUTATIONS = [
  Mutation("empty", lambda rng, content: b"", _EVERY),
  Mutation("truncated", truncated, frozenset({"packed", "npy"})),
  Mutation("one bit flipped", flipped),
  Mutation("twenty bits flipped", lambda rng, content: flipped(rng, content, 20)),
  Mutation("second half zero", zeroed, _EVERY - {"npy"}),
  Mutation("zeros within", zeros_within, _EVERY - {"npy", "packed"}),
  Mutation("binary within", binary_within, _EVERY - {"npy", "packed"}),
  Mutation("all binary", lambda rng, content: b"\xff" + rng.randbytes(500), _EVERY),
  Mutation(
    "UTF-16", lambda rng, content: content.decode("latin-1").encode("utf-16"), _EVERY
  ),
  Mutation("a magic lost", lambda rng, content: b"\0\0\0\0" + content[4:], _EVERY),
  Mutation("no line ends", lambda rng, content: content.replace(b"\n", b" "), _COUNTED),
  Mutation("no last line end", lambda rng, content: content.rstrip(b"\n")),
  Mutation("CRLF", lambda rng, content: content.replace(b"\n", b"\r\n")),
  Mutation(
    "a BOM",
    lambda rng, content: codecs.BOM_UTF8 + content,
    frozenset({"packed", "npy"}),
  ),
  Mutation("lines swapped", _lines(_swap)),
  Mutation("a line twice", _lines(_double), _COUNTED),
  Mutation(
    "a line less", _lines(lambda rng, lines: lines.pop(_at(rng, lines))), _COUNTED
  ),
  Mutation(
    "a long line", _lines(_set(b"a" * 10**6 + b"\n")), frozenset({"numbers", "xmlc"})
  ),
  Mutation(
    "an odd line",
    _lines(_set(b", :: -\t[{\n")),
    frozenset({"numbers", "xmlc", "pairs"}),
  ),
  Mutation("a number replaced", number_replaced),
  Mutation("a number of the first line replaced", first_number_replaced),
  Mutation("all twice", lambda rng, content: content + content, frozenset({"xmlc"})),
  Mutation(
    "a word of a megabyte",
    lambda rng, content: content + b"b" * 2**20,
    frozenset({"numbers", "xmlc"}),
  ),
  Mutation("blanks alone", lambda rng, content: b" \t\n" * 50, _EVERY),
  Mutation("a value replaced", value_replaced, only=frozenset({"json"})),
  Mutation("a value replaced again", value_replaced, only=frozenset({"json"})),
  Mutation("a value of a line replaced", value_of_line_replaced, only=_RECORDS),
  Mutation("a value of a line replaced again", value_of_line_replaced, only=_RECORDS),
  Mutation("a line of another kind", line_replaced, only=_RECORDS),
  Mutation(
    "deep nesting",
    lambda rng, content: b"[" * 10**5,
    _CODE | _RECORDS,
    _CODE | _RECORDS,
  ),
  Mutation("another header", header_replaced, only=frozenset({"npy"})),
  Mutation("another array", other_array, only=frozenset({"npy"})),
]


def choice(rng: random.Random, kind: str) -> Mutation:
  """A mutation for a file of a kind; those for this kind only come half of the time."""
  own = [each for each in MUTATIONS if kind in each.only]
  if own and rng.random() < 0.5:
    return rng.choice(own)
  return rng.choice([each for each in MUTATIONS if not each.only])
