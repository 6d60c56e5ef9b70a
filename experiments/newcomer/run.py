"""A newcomer's path, timed: from `git clone` to a sampler of one's own and its tests.

  python experiments/newcomer/run.py                       # some 10 minutes
  python experiments/newcomer/run.py --text FILE --keep DIR

Gives the commands that README.md and docs/adding.md name, one after the other, in a
fresh clone, with the Python of its .venv and with empty caches, pip's and ours. The
first that fails ends it, and no results are written. A stage's record has

  seconds        how long it took
  total_seconds  from the start of the clone to the end of the stage
  test_ppl       exact, of the model that was trained
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pydoc_data.topics import topics
from typing import NamedTuple

from largevocab.errors import UserError
from largevocab.tools.sweeps import records

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]

# Of README.md, but for workdirs and data.
MAIN = ("python", "-m", "largevocab.main")
EVALUATE = (*MAIN, "--mode=evaluate", "--checkpoint=best")
PREDICT = (*MAIN, "--mode=predict")

STEPS = 300
OWN_TEXT = "--workdir=runs/own_text"
OWN_SAMPLER = "runs/row_norm_trained"

IMPORT = "from largevocab.samplers.row_norm import RowNorm\n"
# docs/adding.md asks for a case with the naive law; this is the newcomer's.
LAW = """\
def row_norm_law(sampler, counts, w_VD, h_ND, y):
  weight_V = np.square(np.float64(w_VD)).sum(1) + sampler.floor
  return weight_V / weight_V.sum()


"""


@dataclass(frozen=True)
class Newcomer:
  """One who has git, Python, and a directory.

  Attributes:
    home: the directory, absolute; the clone and all caches are in it.
    repo: what is cloned.
    text: a file to train on.
  """

  home: pathlib.Path
  repo: str
  text: pathlib.Path

  @property
  def clone(self) -> pathlib.Path:
    return self.home / "largevocab"

  @property
  def python(self) -> str:
    return str(self.clone / ".venv" / "bin" / "python")

  def run(self, *command: str) -> str:
    """What a command says, stderr too; in the clone once there is one.

    Raises:
      UserError: it failed; the last line that it said.
    """
    print(f"  {shlex.join(command)[:200]}", flush=True)
    done = subprocess.run(
      [self.python if word == "python" else word for word in command],
      cwd=self.clone if self.clone.exists() else self.home,
      env=self.environment(),
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
      errors="replace",
      check=False,
    )
    if done.returncode:
      print(done.stdout, file=sys.stderr)
      last = (done.stdout.strip().splitlines() or ["it says nothing"])[-1]
      what = f"{shlex.join(command)[:200]} ended with status {done.returncode}"
      raise UserError(f"{what}: {last}")
    return done.stdout

  def environment(self) -> dict[str, str]:
    """Nothing is warm, and nothing of the checkout that this runs from is found."""
    warm = ("JAX_COMPILATION_CACHE_DIR", "PYTHONPATH", "PYTHONHOME")
    return {
      **{key: value for key, value in os.environ.items() if key not in warm},
      "PIP_CACHE_DIR": str(self.home / "pip"),
      "LARGEVOCAB_CACHE": str(self.home / "cache"),
    }

  def ppl(self, workdir: str) -> dict[str, float]:
    """What a run ended with."""
    result = json.loads((self.clone / workdir / "result.json").read_text())
    return {"test_ppl": result["test_ppl"]}


class Page(NamedTuple):
  """What docs/adding.md says of samplers: three programs and a command."""

  sampler: str
  check: str
  training: str
  command: list[str]


def read_page(path: pathlib.Path) -> Page:
  """The blocks of the page's first part.

  Raises:
    UserError: there are others than when this was written.
  """
  part = path.read_text().partition("\n## A head")[0]
  blocks = re.findall(r"```(python|sh)\n(.*?)```", part, re.DOTALL)
  if [language for language, _ in blocks] != [*["python"] * 3, "sh", "python"]:
    raise UserError(f"{path}: the blocks on samplers are others; mend read_page")
  sampler, _, check, command, training = (block for _, block in blocks)
  return Page(sampler, check, training, shlex.split(command.replace("\\\n", "")))


def insert(path: pathlib.Path, text: str, before: str) -> None:
  """Puts text into a file, before what it holds once.

  Raises:
    UserError: it does not hold that, or more than once.
  """
  old = path.read_text()
  if old.count(before) != 1:
    raise UserError(f"{path}: {before!r} occurs {old.count(before)} times, not once")
  path.write_text(old.replace(before, text + before))


def clone(newcomer: Newcomer) -> None:
  newcomer.run("git", "clone", newcomer.repo, str(newcomer.clone))


def installation(newcomer: Newcomer) -> None:
  newcomer.run("scripts/install")


def quickstart(newcomer: Newcomer) -> dict[str, float]:
  newcomer.run("scripts/quickstart")
  return newcomer.ppl("runs/quickstart/sampled")


def own_text(newcomer: Newcomer) -> dict[str, float]:
  """Trains, and then evaluates by a command of its own: what that prints counts."""
  data = f"--config.data.train={newcomer.text}"
  length = f"--config.train.max_steps={STEPS}"
  newcomer.run(*MAIN, "--config=configs/text.py", OWN_TEXT, data, length)
  said = newcomer.run(*EVALUATE, OWN_TEXT)
  if not (found := re.search(r'"test_ppl": ([\d.]+)', said)):
    raise UserError(f"--mode=evaluate prints no test_ppl: {said[-200:]}")
  return {"test_ppl": float(found[1])}


def next_words(newcomer: Newcomer) -> None:
  newcomer.run(*PREDICT, OWN_TEXT, "--text=the price of")


def own_sampler(newcomer: Newcomer) -> dict[str, float]:
  """The file, the row, the page's checks; its five steps, and then some hundred."""
  page = read_page(newcomer.clone / "docs" / "adding.md")
  write_sampler(newcomer.clone / "largevocab" / "samplers", page)
  program = newcomer.clone / "runs" / "check_row_norm.py"  # beside no `largevocab`
  names = "from largevocab.samplers.row_norm import *\n"
  program.write_text(names + page.check + page.training)
  newcomer.run("python", str(program))
  newcomer.run(*page.command)
  at_length = f"--config=configs/quickstart.py:sampled/row_norm,steps={STEPS}"
  newcomer.run(*MAIN, at_length, f"--workdir={OWN_SAMPLER}")
  return newcomer.ppl(OWN_SAMPLER)


def write_sampler(samplers: pathlib.Path, page: Page) -> None:
  """Puts the file into the package, and the row into its registry."""
  (samplers / "row_norm.py").write_text(page.sampler)
  registry = samplers / "__init__.py"
  insert(registry, IMPORT, before="from largevocab.samplers.softmax import")
  insert(registry, '  "row_norm": RowNorm,\n', before='  "softmax": Softmax,\n')


def its_tests(newcomer: Newcomer) -> None:
  """A case for the tests of all samplers; then all checks of it."""
  write_case(newcomer.clone / "tests" / "samplers" / "contract_test.py")
  newcomer.run("scripts/install", "test")
  newcomer.run("scripts/check", "-k", "row_norm or RowNorm")


def write_case(tests: pathlib.Path) -> None:
  """Puts the case into contract_test.py."""
  insert(tests, IMPORT, before="from largevocab.samplers.static import StaticLaw")
  insert(tests, LAW, before="CASES = {\n")
  insert(tests, '  "row_norm": (RowNorm(), row_norm_law),\n', before='  "softmax": (')


STAGES = (
  clone,
  installation,
  quickstart,
  own_text,
  next_words,
  own_sampler,
  its_tests,
)


def walk(newcomer: Newcomer) -> list[records.Record]:
  """All stages; a record for each."""
  began = time.monotonic()
  rows = []
  for stage in STAGES:
    name = stage.__name__.replace("_", " ")
    print(name, flush=True)
    stage_began = time.monotonic()
    figures = stage(newcomer) or {}
    now = time.monotonic()
    times = {"seconds": now - stage_began, "total_seconds": now - began}
    times = {key: round(value, 1) for key, value in times.items()}
    print(f"  {times['seconds']} s, {times['total_seconds']} s in all", flush=True)
    common = {"run": name, "name": name, "config": "", "overrides": {}}
    rows.append({**common, **times, **figures})
  # As the fresh installation saw it, before the clone was changed.
  meta = newcomer.clone / "runs" / "quickstart" / "sampled" / "meta.json"
  machine = records.measured_with(json.loads(meta.read_text()))
  return [{**row, **machine} for row in rows]


def main(argv: list[str] | None = None) -> int:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument("--repo", default=str(ROOT), help="a URL, or an absolute path")
  parser.add_argument("--text", type=pathlib.Path, help="else Python's own manual")
  parser.add_argument("--keep", type=pathlib.Path, help="a new directory, to be kept")
  parser.add_argument("--output", type=pathlib.Path, default=HERE / "results.jsonl")
  args = parser.parse_args(argv)
  if args.text and not args.text.is_file():
    raise UserError(f"--text: there is no file {args.text}")
  with tempfile.TemporaryDirectory(prefix="newcomer-") as temporary:
    home = (args.keep or pathlib.Path(temporary)).resolve()
    home.mkdir(parents=True, exist_ok=True)
    text = args.text
    if not text:
      text = home / "manual.txt"
      text.write_text("\n".join(topics.values()))
    records.merge(args.output, walk(Newcomer(home, args.repo, text.resolve())))
  return 0


if __name__ == "__main__":
  try:
    sys.exit(main())
  except UserError as error:
    sys.exit(f"newcomer: {error}")
