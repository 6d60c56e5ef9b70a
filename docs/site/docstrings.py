"""An extension of Griffe: docstrings of this package as Markdown.

In docstrings a prompt marks an example, indentation a formula, and a word at the
beginning of a paragraph its source or its cost. Markdown has fences and emphasis for
these. Names that a package re-exports are shown once, where they are defined.
"""

import re
from typing import Any

import griffe

SECTION = re.compile(r"(?:Args|Attributes|Returns|Yields|Raises):$")
NOTE = re.compile(r"(Source|Cost|Deviations?|Memory|State): (.*)")


def as_markdown(text: str) -> str:
  """Text with fences around examples and formulas.

  Blocks of a section such as `Args:` stay as they are.
  """
  lines, found, at = text.splitlines(), [], 0

  def take(belongs) -> list[str]:
    nonlocal at
    begin = at
    while at < len(lines) and belongs(lines[at]):
      at += 1
    return lines[begin:at]

  while at < len(lines):
    line = lines[at]
    after_blank = not found or not found[-1].strip()
    if SECTION.match(line):
      at += 1
      found += [line, *take(lambda each: not each or each.startswith(" "))]
    elif line.startswith(">>>"):
      found += ["", "```pycon", *take(lambda each: bool(each.strip())), "```", ""]
    elif note := NOTE.match(line):
      at += 1
      rest = take(lambda each: each.startswith(" "))
      found += ["", f"**{note[1]}:** {note[2]}", *map(str.strip, rest), ""]
    elif line.startswith("  ") and after_blank:
      block = take(lambda each: not each or each.startswith(" "))
      while not block[-1].strip():
        block.pop()
      found += ["```text", *block, "```", ""]
    else:
      found.append(line)
      at += 1
  return "\n".join(found)


class DocstringBlocks(griffe.Extension):
  """Rewrites the docstrings of all that is loaded."""

  def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
    if obj.docstring:
      obj.docstring.value = as_markdown(obj.docstring.value)

  def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
    modules = [pkg]
    while modules:
      module = modules.pop()
      for name, member in list(module.members.items()):
        if member.is_alias:
          module.del_member(name)
        elif member.is_module:
          modules.append(member)  # pyrefly: ignore
