"""Ways to damage a file."""

import codecs
import random
import re
from collections.abc import Callable
from typing import NamedTuple

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
  """

  name: str
  damaged: Damage
  ruins: frozenset[str] = frozenset()


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
  """A number has another in its place, or what is none."""
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


_TEXTS = frozenset({"text", "numbers", "xmlc", "pairs"})
_EVERY = _TEXTS | {"packed", "npy"}
_COUNTED = frozenset({"xmlc"})  # the first line says how many there are

MUTATIONS = [
  Mutation("empty", lambda rng, content: b"", _EVERY),
  Mutation("truncated", truncated, frozenset({"packed", "npy"})),
  Mutation("one bit flipped", flipped),
  Mutation("twenty bits flipped", lambda rng, content: flipped(rng, content, 20)),
  Mutation("second half zero", zeroed, _TEXTS | {"packed"}),
  Mutation("zeros within", zeros_within, _TEXTS),
  Mutation("binary within", binary_within, _TEXTS),
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
]
