"""docs/bibliography.md: every work cited by author and year has an entry."""

import ast
import pathlib
import re
import unicodedata

ROOT = pathlib.Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "bibliography.md").read_text()
NAME = r"(?:(?:[Dd]e|van) )?[A-Z]\w+"
CITATION = re.compile(
  rf"({NAME}(?:, {NAME})* and {NAME}|{NAME} et al\.|{NAME}) \(?((?:19|20)\d\d)\b"
)


def plain(text: str) -> str:
  """Text on one line, without accents, with `and` for an ampersand."""
  letters = unicodedata.normalize("NFKD", " ".join(text.split()).replace("&", "and"))
  return "".join(c for c in letters if not unicodedata.combining(c))


def citations(text: str) -> set[str]:
  found = {f"{names} {year}" for names, year in CITATION.findall(plain(text))}
  return {work.replace("De ", "de ", 1) for work in found}


def sources() -> list[str]:
  """The paragraphs of docstrings that begin with `Source:`."""
  found = []
  kinds = ast.Module | ast.ClassDef | ast.FunctionDef
  for path in sorted((ROOT / "largevocab").rglob("*.py")):
    for node in ast.walk(ast.parse(path.read_text())):
      if isinstance(node, kinds) and (text := ast.get_docstring(node)):
        found += re.findall(
          r"^Source:.*?(?=\n\s*\n|\Z)", text, re.DOTALL | re.MULTILINE
        )
  return found


def entries() -> set[str]:
  return {plain(key) for key in re.findall(r"^- \*\*(.+?)\.\*\*", PAGE, re.MULTILINE)}


def test_every_source_of_the_package_has_an_entry():
  cited = set().union(*(citations(text) for text in sources()))
  assert len(cited) > 40
  assert cited - entries() == set()


def test_every_work_cited_by_a_page_has_an_entry():
  pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
  pages += ROOT.glob("experiments/*/README.md")
  cited = set().union(*(citations(page.read_text()) for page in pages))
  several = {work for work in cited if " and " in work or " et al. " in work}
  assert several - entries() == set()


def test_preprint_numbers_match_the_entries():
  cited = set(re.findall(r"arXiv:([\d.]+\d)", " ".join(sources())))
  assert cited
  assert cited <= set(re.findall(r"arxiv\.org/abs/([\w./]+)\)", PAGE))


def test_entries_are_unique():
  titles = re.findall(r'"(.+?)"', plain(PAGE))
  assert len(titles) >= len(re.findall(r"^- ", PAGE, re.MULTILINE))
  assert len(set(titles)) == len(titles)


def test_citations_are_found():
  text = "Ji et al. 2016; Barber &\n  Botev 2016, (Chen, Grangier and Auli 2015), Madow"
  assert citations(
    f"{text} 1949; de Brébisson and Vincent 2016; Vincent et al. (2015)"
  ) == {
    *("Ji et al. 2016", "Barber and Botev 2016", "Chen, Grangier and Auli 2015"),
    *("Madow 1949", "de Brebisson and Vincent 2016", "Vincent et al. 2015"),
  }
