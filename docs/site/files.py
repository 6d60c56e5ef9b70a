"""A hook of MkDocs: the site has the folders of the repository.

Pages link to each other by paths that also work in a checkout, such as
`../experiments/bench/README.md`. So that these paths hold in the site, it has README.md
at its root, docs, examples and experiments below it, and every other file that a page
links to.
"""

import pathlib
import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [
  *("README.md", "CONTRIBUTING.md", "CHANGELOG.md"),
  *("docs/**/*.md", "examples/README.md", "experiments/*/README.md"),
]
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def linked(page: pathlib.Path) -> set[pathlib.Path]:
  """The files of the repository that a page leads to or shows."""
  targets = {(page.parent / t).resolve() for t in LINK.findall(page.read_text())}
  return {t for t in targets if t.is_file() and t.is_relative_to(ROOT)}


def on_files(files: Files, config: MkDocsConfig) -> Files:
  pages = {path for pattern in PAGES for path in ROOT.glob(pattern)}
  everything = pages.union(*map(linked, pages))
  of_theme = [file for file in files if file.src_dir != config.docs_dir]
  return Files(
    [
      *of_theme,
      *(
        File.generated(config, str(path.relative_to(ROOT)), abs_src_path=str(path))
        for path in sorted(everything)
      ),
    ]
  )
