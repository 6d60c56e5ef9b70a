"""Times a newcomer's path, from `git clone` to a new sampler and its tests.

  python experiments/newcomer/run.py                       # some 10 minutes
  python experiments/newcomer/run.py --text FILE --keep DIR

Runs the commands of README.md and docs/adding.md one after the other in a fresh clone,
with the Python of its .venv. The caches of pip and of largevocab start empty. The first
command that fails ends the path, and then no results are written. The record of a stage
has

  seconds        duration of the stage
  total_seconds  from the start of the clone to the end of the stage
  test_ppl       exact test perplexity of the model that was trained
"""

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
from largevocab.tools import entry
from largevocab.tools.sweeps import records

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]

# The commands of README.md, except for workdirs and data.
MAIN = ("python", "-m", "largevocab.main")
EVALUATE = (*MAIN, "--mode=evaluate", "--checkpoint=best")
PREDICT = (*MAIN, "--mode=predict")

STEPS = 300
OWN_TEXT = "--workdir=runs/own_text"
OWN_SAMPLER = "runs/row_norm_trained"

IMPORT = "from largevocab.samplers.row_norm import RowNorm\n"
# docs/adding.md asks for a test case with the naive proposal distribution: this one.
LAW = """\
def row_norm_law(sampler, counts, w_VD, h_ND, y):
  weight_V = np.square(np.float64(w_VD)).sum(1) + sampler.floor
  return weight_V / weight_V.sum()


"""


@dataclass(frozen=True)
class Newcomer:
  """A newcomer, who has git, Python and a directory.

  Attributes:
    home: The directory, an absolute path. It holds the clone and all caches.
    repo: The repository to clone.
    text: The file to train on.
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
    """Runs a command, in the clone once there is one; returns stdout and stderr.

    Raises:
      UserError: The command failed. The message has the last line of its output.
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
      last = (done.stdout.strip().splitlines() or ["it printed nothing"])[-1]
      what = f"{shlex.join(command)[:200]} ended with status {done.returncode}"
      raise UserError(f"{what}: {last}")
    return done.stdout

  def environment(self) -> dict[str, str]:
    """An environment with empty caches, in which this checkout cannot be imported."""
    warm = ("JAX_COMPILATION_CACHE_DIR", "PYTHONPATH", "PYTHONHOME")
    return {
      **{key: value for key, value in os.environ.items() if key not in warm},
      "PIP_CACHE_DIR": str(self.home / "pip"),
      "LARGEVOCAB_CACHE": str(self.home / "cache"),
    }

  def ppl(self, workdir: str) -> dict[str, float]:
    """The test perplexity at the end of a run."""
    result = json.loads((self.clone / workdir / "result.json").read_text())
    return {"test_ppl": result["test_ppl"]}


class Page(NamedTuple):
  """The part of docs/adding.md on samplers: three programs and a command."""

  sampler: str
  check: str
  training: str
  command: list[str]


def read_page(path: pathlib.Path) -> Page:
  """Reads the code blocks in the first part of the page.

  Raises:
    UserError: The blocks are not those that this function was written for.
  """
  part = path.read_text().partition("\n## A head")[0]
  blocks = re.findall(r"```(python|sh)\n(.*?)```", part, re.DOTALL)
  if [language for language, _ in blocks] != [*["python"] * 3, "sh", "python"]:
    raise UserError(f"{path}: the blocks on samplers have changed; update read_page")
  sampler, _, check, command, training = (block for _, block in blocks)
  return Page(sampler, check, training, shlex.split(command.replace("\\\n", "")))


def insert(path: pathlib.Path, text: str, before: str) -> None:
  """Inserts text into a file before a string that occurs there once.

  Raises:
    UserError: The string does not occur, or occurs more than once.
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
  """Trains, then evaluates with a separate command, whose printed result counts."""
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
  """Adds the sampler, runs the page's checks and its five steps, then trains longer."""
  page = read_page(newcomer.clone / "docs" / "adding.md")
  write_sampler(newcomer.clone / "largevocab" / "samplers", page)
  # In a directory without `largevocab`, so that the installed package is imported.
  program = newcomer.clone / "runs" / "check_row_norm.py"
  names = "from largevocab.samplers.row_norm import *\n"
  program.write_text(names + page.check + page.training)
  newcomer.run("python", str(program))
  newcomer.run(*page.command)
  at_length = f"--config=configs/quickstart.py:sampled/row_norm,steps={STEPS}"
  newcomer.run(*MAIN, at_length, f"--workdir={OWN_SAMPLER}")
  return newcomer.ppl(OWN_SAMPLER)


def write_sampler(samplers: pathlib.Path, page: Page) -> None:
  """Writes the sampler's file into the package and its row into the registry."""
  (samplers / "row_norm.py").write_text(page.sampler)
  registry = samplers / "__init__.py"
  insert(registry, IMPORT, before="from largevocab.samplers.softmax import")
  insert(registry, '  "row_norm": RowNorm,\n', before='  "softmax": Softmax,\n')


def its_tests(newcomer: Newcomer) -> None:
  """Adds a case to the tests of all samplers, then runs all checks of the sampler."""
  write_case(newcomer.clone / "tests" / "samplers" / "contract_test.py")
  newcomer.run("scripts/install", "test")
  newcomer.run("scripts/check", "-k", "row_norm or RowNorm")


def write_case(tests: pathlib.Path) -> None:
  """Inserts the test case into contract_test.py."""
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
  """Runs all stages and returns a record for each."""
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
    rows.append(records.report_row(name, times, figures))
  # The machine as the fresh installation recorded it, before the clone was changed.
  meta = newcomer.clone / "runs" / "quickstart" / "sampled" / "meta.json"
  machine = records.measured_with(json.loads(meta.read_text()))
  return [{**row, **machine} for row in rows]


def main(argv: list[str] | None = None) -> int:
  parser = entry.Parser(__doc__)
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
  sys.exit(entry.run("newcomer", main))
