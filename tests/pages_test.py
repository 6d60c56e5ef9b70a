"""Pages with results: tables are made from them, prose has no figure of its own.

A table changes with every run that is added, so prose below it says in words what it
shows. What may have digits there is what a run was given, and where something stands.
The same holds of what a page says under "Measured".
"""

import pathlib
import re

import pytest

from largevocab.tools import tabulate

ROOT = pathlib.Path(__file__).parents[1]
TABLE = re.compile(
  r"<!-- (results:\S+|goals)(?: rows=\S+)?(?: to=\"[^\"]+\")?(?: metrics=\S+)? -->"
  r".*?<!-- /\1 -->",
  re.DOTALL,
)
BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
CODE_AND_LINKS = re.compile(r"`[^`]*`|\]\([^)]*\)|P@1|chi2")
MEASURED = re.compile(r"^## Measured\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
README = ROOT / "README.md"
PAGES = [
  *sorted(ROOT.glob("docs/**/*.md")),
  *sorted(ROOT.glob("experiments/*/README.md")),
]
WITH_TABLES = [page for page in PAGES if TABLE.search(page.read_text())]
NUMBERS = r"[\d,]*\d(?:(?:,| to| and| or)+ [\d,]*\d)*"
GIVEN = re.compile(
  rf"\b\w+ = {NUMBERS}"  # m = 10, K = 20 and 100
  rf"|\b(?:[Ff]igure|[Tt]able|[Ss]ection|[Ee]quation|[Tt]heorem)s? {NUMBERS}"
  rf"|\b{NUMBERS} (?:\w+ )?(?:steps|epochs|words|classes|draws|negatives|examples)\b"
  r"|\b[A-Z]\w+(?: et al\.)? (?:19|20)\d\d\b"  # whose paper
)
# Digits of a name, such as P@1, chi2, 5-gram, text8 or Amazon-670K, are no number.
NUMBER = re.compile(r"(?<![\w@])(?<!\w-)[-+]?\d[\d.,/]*(?!-\w)(?: ?%)?")
name_of = lambda page: str(page.relative_to(ROOT))


def figures(text: str) -> list[str]:
  """Numbers of a text that are neither a setting nor a reference."""
  return NUMBER.findall(GIVEN.sub(" ", text))


def below_tables(text: str) -> str:
  """What stands below the first table of results, without tables, code and links."""
  return prose(TABLE.sub("", text[TABLE.search(text).end() :]))


def prose(text: str) -> str:
  return " ".join(CODE_AND_LINKS.sub(" ", BLOCK.sub(" ", text)).split())


@pytest.mark.parametrize("page", [README, *PAGES], ids=name_of)
def test_tables_are_those_of_the_committed_results(page):
  assert tabulate.main(["--check", str(page)]) == 0


@pytest.mark.parametrize("page", WITH_TABLES, ids=name_of)
def test_prose_below_a_table_has_no_figure_of_its_own(page):
  assert not figures(below_tables(page.read_text()))


def test_what_methods_say_was_measured_has_no_figure():
  sections = [
    section
    for page in ROOT.glob("docs/methods/*.md")
    for section in MEASURED.findall(page.read_text())
  ]
  assert len(sections) == len(list(ROOT.glob("docs/methods/*.md")))
  assert [figures(prose(section)) for section in sections] == [[]] * len(sections)


def test_figures_are_found():
  for setting in (
    *("`pps` with 2,048 negatives", "32 shared negatives", "one seed, first 600 steps"),
    *("figures 2 to 4", "with m = 10, 20 and 40", "Grave et al. 2017", "P@1 of text8"),
  ):
    assert not figures(f"Here, {setting}, all is well.")
  for figure in (
    *("is at 380", "1.3 % above", "5 % behind", "3 times as fast", "1/333 of it"),
    *("a bias of -13.6", "takes 9 s", "in 2017", "with 512 at 321"),
  ):
    assert figures(f"Here m = 10 {figure}, all in all."), figure


def test_prose_is_what_stands_below():
  table = "<!-- results:a -->\n| 1.5 |\n<!-- /results:a -->\n"
  some = table.replace("results:a -->", "results:a rows=1|2 -->", 1)
  page = f"Of 7.5.\n{table}Then 1.2, `3.4`,\n```\n5.6\n```\n[9](a7.8.md).\n{some}"
  assert below_tables(page) == "Then 1.2, , ["[:-1] + "[9 ."
