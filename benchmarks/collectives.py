"""Counts what a device of a mesh sends, from the text of a compiled program.

Devices are assumed to send along rings, as libraries do for large arrays. For a result
of R bytes in groups of g devices, each device sends:

| collective | bytes |
| --- | --- |
| all-gather, all-to-all | R (g - 1) / g |
| reduce-scatter | R (g - 1), since R is the size of the slice |
| all-reduce | 2 R (g - 1) / g |
| collective-permute | R |

A collective in a loop counts as often as the loop runs. XLA on TPU splits a collective
that overlaps with other work into several parts with the same `chain_id`; they count
once.
"""

import collections
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

COST = {
  "all-gather": lambda g: (g - 1) / g,
  "all-to-all": lambda g: (g - 1) / g,
  "reduce-scatter": lambda g: g - 1,
  "all-reduce": lambda g: 2 * (g - 1) / g,
  "collective-permute": lambda g: 1,
}
# Collectives that cannot be counted: a program that has one is an error.
_OTHERS = ("ragged-all-to-all", "collective-broadcast", "send", "recv")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{\s*$")
_INSTRUCTION = re.compile(r"^\s+(ROOT )?%?[\w.\-]+ = (\(.*?\)|\S+) ([\w\-]+)\(")
_ARRAY = re.compile(r"\b([a-z]+\d+|pred)\[([\d,]*)\]")
_CALLED = re.compile(
  r"(?:calls|condition|body|to_apply|\w+_computations?)=(\{[^}]*\}|%?[\w.\-]+)"
)
_TURNS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')
_CHAIN = re.compile(r'chain_id="(\d+)"')
# XLA's name on TPU for a reduce-scatter that it writes as an all-reduce and a slice.
_FUSED = "all-reduce-scatter"


def sent_bytes(text: str, num_devices: int) -> dict[str, float]:
  """Bytes that a device sends in each kind of collective.

  Args:
    text: text of the compiled program (`as_text`).
    num_devices: number of devices of the mesh.

  Raises:
    ValueError: the text has a collective of another kind, or one in a loop of unknown
      length.

  >>> text = '''
  ... ENTRY %main (x: f32[2,3]) -> f32[8,3] {
  ...   ROOT %y = f32[8,3] all-gather(%x), replica_groups={{0,1,2,3}}, dimensions={0}
  ... }'''
  >>> sent_bytes(text, 4)
  {'all-gather': 72.0}
  """
  bodies, entry = _computations(text)
  sent, chains = collections.Counter(), set()
  for part in _walk(bodies, entry, num_devices):
    if part.chain in chains:
      continue
    if part.chain is None and part.times is None:
      raise ValueError(f"a loop of unknown length has a collective: {part.kind}")
    times = part.times if part.chain is None else 1
    chains |= {part.chain} - {None}
    sent[part.kind] += COST[part.kind](part.group) * part.size * times
  return dict(sent)


class _Collective(NamedTuple):
  """One collective of a program.

  The fields are its kind, the bytes of its result, the number of devices that exchange
  data, how often it runs (None: unknown), and its chain (None: it is not split).
  """

  kind: str
  size: float
  group: int
  times: int | None
  chain: str | None


def _computations(text: str) -> tuple[dict[str, list[str]], str]:
  """The lines of each computation, and the name of the first to run."""
  bodies: dict[str, list[str]] = {}
  entry, lines = "", []
  for line in text.splitlines():
    if begins := _COMPUTATION.match(line):
      lines = bodies.setdefault(begins[2], [])
      entry = begins[2] if begins[1] else entry
    elif line.startswith(" "):
      lines.append(line)
  return bodies, entry


def _walk(
  bodies: dict[str, list[str]], name: str, num_devices: int, times: int | None = 1
) -> Iterator[_Collective]:
  """The collectives of a computation and of the computations that it calls."""
  fused = _FUSED in name
  for line in bodies[name]:
    found = _INSTRUCTION.match(line)
    if not found:
      continue
    result, operation = found[2], found[3]
    kind = operation.removesuffix("-start")
    if kind in _OTHERS:
      raise ValueError(f"bytes of {kind} are not counted")
    if kind in COST:
      group, size = _group(line, num_devices), _size(result, operation, line)
      if fused and kind == "all-reduce":
        kind, size = "reduce-scatter", _size(_root(bodies[name]), "", "")
      chain = _CHAIN.search(line)
      yield _Collective(kind, size, group, times, chain[1] if chain else None)
      continue
    if operation == "while":
      turns = _TURNS.search(line)
      inside = int(turns[1]) * times if turns and times else None
    else:
      inside = times
    for called in _CALLED.findall(line):
      for other in re.findall(r"[\w.\-]+", called):
        if other in bodies:
          yield from _walk(bodies, other, num_devices, inside)


def _root(lines: list[str]) -> str:
  return next(m[2] for m in map(_INSTRUCTION.match, lines) if m and m[1])


def _size(result: str, operation: str, line: str) -> float:
  """Bytes of a result; for a started collective, without the operands beside it."""
  sizes = [
    math.prod(map(int, filter(None, shape.split(",")))) * _width(dtype)
    for dtype, shape in _ARRAY.findall(result)
  ]
  group = _group(line, 1)
  share = {
    "all-gather-start": group / (group + 1),
    "reduce-scatter-start": 1 / (group + 1),
    "all-to-all-start": 1 / 2,
  }
  if operation == "collective-permute-start":
    return max(sizes)
  return sum(sizes) * share.get(operation, 1)


def _width(dtype: str) -> int:
  bits = re.search(r"\d+", dtype)
  return max(1, int(bits[0]) // 8) if bits else 1


def _group(line: str, num_devices: int) -> int:
  """The number of devices that exchange data with each other."""
  if listed := re.search(r"replica_groups=\{\{([\d,]+)\}", line):
    return len(listed[1].split(","))
  if of_shape := re.search(r"replica_groups=\[\d+,(\d+)\]", line):
    return int(of_shape[1])
  return num_devices
