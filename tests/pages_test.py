"""Pages with results: tables are generated, and prose has no measured numbers.

A table changes with every run that is added, so the prose below it describes it in
words. Digits are allowed there only in settings of runs and in references. The same
holds for sections "Measured".
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
# Digits in a name, such as P@1, chi2, 5-gram, text8 or Amazon-670K, do not count.
NUMBER = re.compile(r"(?<![\w@])(?<!\w-)[-+]?\d[\d.,/]*(?!-\w)(?: ?%)?")
name_of = lambda page: str(page.relative_to(ROOT))


def figures(text: str) -> list[str]:
  """The numbers in a text that are neither settings nor references."""
  return NUMBER.findall(GIVEN.sub(" ", text))


def below_tables(text: str) -> str:
  """The prose below the first table of results, without tables, code and links."""
  return prose(TABLE.sub("", text[TABLE.search(text).end() :]))


def prose(text: str) -> str:
  return " ".join(CODE_AND_LINKS.sub(" ", BLOCK.sub(" ", text)).split())


@pytest.mark.parametrize("page", [README, *PAGES], ids=name_of)
def test_tables_match_the_committed_results(page):
  assert tabulate.main(["--check", str(page)]) == 0


@pytest.mark.parametrize("page", WITH_TABLES, ids=name_of)
def test_prose_below_tables_has_no_measured_numbers(page):
  assert not figures(below_tables(page.read_text()))


def test_measured_sections_of_methods_have_no_numbers():
  sections = [
    section
    for page in ROOT.glob("docs/methods/*.md")
    for section in MEASURED.findall(page.read_text())
  ]
  assert len(sections) == len(list(ROOT.glob("docs/methods/*.md")))
  assert [figures(prose(section)) for section in sections] == [[]] * len(sections)


def test_measured_numbers_are_detected():
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


def test_prose_excludes_tables_code_and_links():
  table = "<!-- results:a -->\n| 1.5 |\n<!-- /results:a -->\n"
  some = table.replace("results:a -->", "results:a rows=1|2 -->", 1)
  page = f"Of 7.5.\n{table}Then 1.2, `3.4`,\n```\n5.6\n```\n[9](a7.8.md).\n{some}"
  assert below_tables(page) == "Then 1.2, , [9 ."
