"""Lists the keys of a config, with their values and meanings.

  python -m largevocab.tools.keys --config=configs/text.py
  python -m largevocab.tools.keys --config=configs/ptb.py:sampled/pps head. lr

With words, lists only the keys whose names contain one of them. All keys can be set on
the command line of `largevocab.main`, except the names of parts, which are chosen after
the colon of --config. The texts come from the docstrings of the parts.
"""

import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from largevocab import command_line, config
from largevocab.errors import UserError, listed
from largevocab.fields import OneOf, declared
from largevocab.tools import entry

_ATTRIBUTES = re.compile(r"^Attributes[^:\n]*:\n((?:  .*\n?|\n)*)", re.MULTILINE)


class Key(NamedTuple):
  """A key of a config: its path, its value, and its meaning from a docstring."""

  path: str
  value: Any
  meaning: str


def attributes(cls: type) -> dict[str, str]:
  """The texts of a class and its bases about their attributes.

  >>> from largevocab.samplers import PPS
  >>> [*attributes(PPS)]
  ['power', 'smoothing']
  """
  texts = {}
  for base in reversed(cls.__mro__):
    for block in _ATTRIBUTES.findall(inspect.cleandoc(vars(base).get("__doc__") or "")):
      for each in re.split(r"\n(?=  \S)", block.rstrip()):
        names, _, text = each.strip().partition(":")
        texts |= dict.fromkeys(re.split(r",\s*", names), " ".join(text.split()))
  return texts


def keys_of(settings: ConfigDict) -> Iterator[Key]:
  """All keys of a config, in the order of the fields of its parts."""
  for kind, block in settings.items():
    yield from _keys_of_part(f"config.{kind}", block, config.REGISTRIES.get(kind))


def _keys_of_part(
  path: str, block: ConfigDict, registry: config.Registry | None
) -> Iterator[Key]:
  if registry is None:
    cls = config.SETTINGS[path.removeprefix("config.")]
  else:
    cls = registry[block.name]
    yield Key(f"{path}.name", block.name, f"One of {listed(registry)}.")
  meanings = attributes(cls)
  for name, what in declared(cls).items():
    value = block.get(name)
    if isinstance(value, ConfigDict):
      yield from _keys_of_part(f"{path}.{name}", value, config.choices(cls, name))
    elif name in block:
      rules = [rule for rule in what.rules if isinstance(rule, OneOf)]
      one_of = [f"One of {', '.join(map(repr, rule.values))}." for rule in rules]
      yield Key(
        f"{path}.{name}", value, " ".join([meanings.get(name, ""), *one_of]).strip()
      )


def main(argv: list[str] | None = None) -> int:
  parser = entry.Parser(__doc__)
  parser.add_argument("--config", required=True, metavar="FILE[:ARG]")
  parser.add_argument("words", nargs="*", help="parts of names of keys")
  args, flags = parser.parse_known_args(argv)
  settings = command_line.load(args.config)
  command_line.override(settings, ["keys", *flags], known=["config"])
  config.build(settings)
  found = [
    key
    for key in keys_of(settings)
    if not args.words or any(word in key.path for word in args.words)
  ]
  if not found:
    raise UserError(
      f"no key of --config={args.config} contains {listed(args.words)}: "
      "give other words"
    )
  for key in found:
    print(f"{key.path} = {key.value!r}")
    print(textwrap.indent(textwrap.fill(key.meaning, 84), "    "))
  return 0


def cli() -> int:
  return entry.run("keys", main)


if __name__ == "__main__":
  sys.exit(cli())
