"""Command lines of main and of every script, with odd words in them."""

import dataclasses
import os
import pathlib
import random
import shutil
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.fuzz import formats, oracle
from tests.fuzz.case import HERE, ROOT, Case, Done
from tests.fuzz.materials import CONFIG, Materials

RUN = f"--workdir={HERE}/run"
ODD = [
  "",
  " ",
  "nosuch",
  "~nosuch/x",
  "[",
  "[x]",
  "a\\b",
  "\\",
  "a\nb",
  "ä😀",
  "/dev/null",
  "x" * 300,
]
ODD += ["..", "\udcff", "-", "--", "*", "%s", "{}", "a,b", "a:b:c", "a=b", "None"]
BAD_NUMBERS = ["nan", "x", "", "-1", "1e3x", "inf", "(1,)"]
ODD_NUMBERS = ["0", str(10**12), str(2**31), str(2**63), str(10**25), "1", "3"]


class Command(NamedTuple):
  """A command that works, option by option.

  Attributes:
    options: text and value of each; a text without value is a word of its own.
    numbers: the options that take a number that is not below zero.
    prepare: makes its files.
  """

  script: str
  options: list[tuple[str, str]]
  numbers: tuple[str, ...] = ()
  prepare: Callable[[pathlib.Path], None] = formats.TABLE.write

  def argv(self, changed: dict[int, str]) -> list[str]:
    """The arguments, with other values."""
    values = [changed.get(i, value) for i, (_, value) in enumerate(self.options)]
    pairs = zip(self.options, values, strict=True)
    return [f"{text}={value}" if text else value for (text, _), value in pairs]


def commands(materials: Materials) -> list[Command]:
  """Of each script that has a main; those that measure this machine for minutes only
  with what they refuse."""
  counts = formats.COUNTS.write

  def copied(here: pathlib.Path) -> None:
    shutil.copytree(materials.workdir, here / "run")

  def with_pairs(here: pathlib.Path) -> None:
    copied(here)
    (here / "pairs.csv").write_text("a,b,score\nw2,w3,1\nw4,w5,2\nw6,w7,3\n")

  def text(here: pathlib.Path) -> None:
    formats.PLAIN.write(here)

  def page(here: pathlib.Path) -> None:
    formats.TABLE.write(here)
    (here / "page.md").write_text(
      "A page.\n\n<!-- results:nosuch -->\n<!-- /results:nosuch -->\n"
    )

  of_run = [("--workdir", f"{HERE}/run"), ("--positions", "8")]
  return [
    Command(
      "scripts/tabulate.py", [("", f"{HERE}/results.jsonl"), ("--metrics", "test_ppl")]
    ),
    Command(
      "scripts/tabulate.py", [("", f"{HERE}/page.md"), ("", "--check")], prepare=page
    ),
    Command("scripts/tabulate.py", [("", f"{HERE}/run")], prepare=copied),
    Command(
      "scripts/plot.py", [("", f"{HERE}/sweep.py"), ("--output", f"{HERE}/figures")]
    ),
    Command(
      "scripts/run_sweep.py",
      [
        ("", f"{HERE}/sweep.py"),
        ("", "--dry_run"),
        ("--root", f"{HERE}/runs"),
        ("--jobs", "1"),
        ("--index", "0"),
        ("--set", f"data.path={HERE}"),
      ],
      ("--jobs", "--index"),
    ),
    Command(
      "scripts/advise.py",
      [
        ("--counts", f"{HERE}/counts.npy"),
        ("--dim", "8"),
        ("--batch", "8"),
        ("--num_samples", "4"),
        ("--heads", "full"),
        ("--budget_ms", "10"),
        ("--budget_mib", "100"),
        ("--output", f"{HERE}/o.jsonl"),
      ],
      ("--dim", "--batch", "--num_samples", "--budget_ms", "--budget_mib"),
      counts,
    ),
    Command(
      "scripts/advise.py",
      [
        ("--workdir", f"{HERE}/run"),
        ("--heads", "sampled/pps"),
        ("--batch", "8"),
        ("--num_samples", "4"),
      ],
      ("--batch", "--num_samples"),
      copied,
    ),
    Command(
      "largevocab/tools/clusters_report.py",
      [
        ("--counts", f"{HERE}/counts.npy"),
        ("--dim", "8"),
        ("--batch", "16"),
        ("--cost_model", "cpu-float32-2026-11"),
        ("--measure", "0"),
      ],
      ("--dim", "--batch", "--measure"),
      counts,
    ),
    Command(
      "largevocab/tools/brown_clusters.py",
      [
        ("--config", f"{ROOT}/configs/text.py"),
        ("--config.data.train", f"{HERE}/a.txt"),
        ("--out", f"{HERE}/c.npy"),
        ("--num_clusters", "4"),
        ("--slack", "1.5"),
      ],
      ("--num_clusters", "--slack"),
      text,
    ),
    Command(
      "largevocab/tools/fit_cost_model.py",
      [("--points", "5"), ("--dim", "8"), ("--dtype", "float32")],
      ("--points", "--dim"),
    ),
    Command(
      "benchmarks/goals.py",
      [("--check", f"{HERE}/page.md"), ("--experiments", HERE)],
      prepare=page,
    ),
    Command(
      "benchmarks/bench.py", [("--only", "nosuch"), ("--output", f"{HERE}/o.jsonl")]
    ),
    Command(
      "largevocab/tools/sampler_report.py",
      [
        *of_run,
        ("--samplers", "pps"),
        ("--num_samples", "4"),
        ("--chunk", "8"),
        ("--checkpoint", "latest"),
      ],
      ("--positions", "--num_samples", "--chunk"),
      copied,
    ),
    Command(
      "largevocab/tools/relvar_report.py",
      [*of_run, ("", "pps:num_samples=4"), ("--draws", "2")],
      ("--positions", "--draws"),
      copied,
    ),
    Command(
      "largevocab/tools/similarity_report.py",
      [
        ("", f"a={HERE}/run"),
        ("--pairs", f"{HERE}/pairs.csv"),
        ("--resamples", "2"),
        ("--checkpoint", "latest"),
      ],
      ("--resamples",),
      with_pairs,
    ),
    Command(
      "largevocab/tools/negatives_report.py",
      [*of_run, ("", "pps:num_samples=4"), ("--draws", "2")],
      ("--positions", "--draws"),
      copied,
    ),
  ]


def cases(seed: int, number: int, materials: Materials) -> Iterator[Case]:
  """Those of main and those of scripts in turn."""
  rng = random.Random(f"{seed}/arguments")
  of_main, of_scripts = list(_of_main(materials)), commands(materials)
  rng.shuffle(of_main)
  for i in range(number):
    id = f"arguments-{i}"
    if i % 2 and i // 2 < len(of_main):
      yield dataclasses.replace(of_main[i // 2], id=id)
    else:
      yield _of_script(id, rng, of_scripts[i // 2 % len(of_scripts)])


def _of_script(id: str, rng: random.Random, command: Command) -> Case:
  """A script's command with one value changed, or a word added."""
  i = rng.randrange(len(command.options))
  option = command.options[i][0]
  if option in command.numbers:
    bad = rng.random() < 0.5
    value = rng.choice(BAD_NUMBERS if bad else ODD_NUMBERS)
  else:
    bad, value = False, rng.choice(ODD)
  argv = command.argv({i: value})
  if rng.random() < 0.1:
    argv.insert(
      rng.randrange(len(argv) + 1), rng.choice([*ODD, "--nosuch=3", "--help"])
    )
    bad = False
  name = pathlib.Path(command.script).name
  return Case(
    id,
    f"{name}: {option}={value[:40]!r}",
    argv,
    script=command.script,
    prepare=command.prepare,
    must_fail=bad,
    names=(option.lstrip("-"),),
  )


def _of_main(materials: Materials) -> Iterator[Case]:
  """A command of main with odd values of its flags, or odd words."""

  def copied(here: pathlib.Path) -> None:
    shutil.copytree(materials.workdir, here / "run")

  def odd_files(here: pathlib.Path) -> None:
    os.mkfifo(here / "fifo.py")
    (here / "directory.py").mkdir()
    (here / "utf16.py").write_text("def get_config(arg): pass\n", encoding="utf-16")
    (here / "exits.py").write_text("import sys\nsys.exit(0)\n")
    (here / "exits_later.py").write_text(
      "def get_config(arg):\n  raise SystemExit(0)\n"
    )
    (here / "interrupts.py").write_text("raise KeyboardInterrupt\n")
    (here / "recurses.py").write_text("def get_config(a): return get_config(a)\n")
    (here / "large.py").write_text("get_config = 'x' * 10**13\n")
    (here / "exits_1.py").write_text("import os\nraise SystemExit('a text')\n")
    (here / "other.py").write_text(
      "from ml_collections import ConfigDict\n"
      "def get_config(arg): return ConfigDict({'data': 3, 'train': None})\n"
    )
    (here / "file").write_text("a file")

  def main(about: str, argv: list[str], **fields) -> Case:
    return Case("arguments-0", f"main: {about}", argv, **fields)

  for value in ODD:
    workdir = value if value.startswith(("~", "/")) or not value else f"{HERE}/{value}"
    yield main(
      f"--workdir={value[:40]!r}",
      [CONFIG, f"--workdir={workdir}"],
      then=[f"--workdir={workdir}", "--mode=evaluate"],
      check=_evaluated_inside,
    )
    yield main(
      f"--mode={value[:40]!r}",
      [CONFIG, RUN, f"--mode={value}"],
      must_fail=True,
      names=("mode",),
    )
    yield main(
      f"--checkpoint={value[:40]!r}",
      [RUN, f"--checkpoint={value}", "--mode=evaluate"],
      prepare=copied,
      must_fail=True,
      names=("checkpoint",),
    )
    yield main(
      f"--config={value[:40]!r}",
      [f"--config={value}", RUN],
      must_fail=True,
      names=("config",),
    )
    yield main(
      f"--config=...:{value[:40]!r}",
      [f"--config={ROOT}/configs/text.py:{value},runlocal", RUN],
      check=oracle.trained,
    )
    yield main(f"a word {value[:40]!r}", [CONFIG, RUN, value], check=oracle.trained)
    yield main(
      f"--text={value[:40]!r}",
      [RUN, "--mode=predict", f"--text={value}"],
      prepare=copied,
    )
    yield main(
      f"cache {value[:40]!r}",
      formats.PLAIN.argv(),
      prepare=formats.PLAIN.write,
      env={"LARGEVOCAB_CACHE": value},
      check=oracle.trained,
    )
  for value in [*BAD_NUMBERS, *ODD_NUMBERS]:
    bad = value in [*BAD_NUMBERS, "0", str(10**12), str(10**25)]
    yield main(
      f"--top_k={value}",
      [RUN, "--mode=predict", "--text=w1", f"--top_k={value}"],
      prepare=copied,
      must_fail=bad,
      names=("top_k",),
    )
  for name in (
    "fifo",
    "directory",
    "utf16",
    "exits",
    "exits_later",
    "interrupts",
    "recurses",
    "large",
    "exits_1",
    "other",
  ):
    yield main(
      f"--config={name}.py",
      [f"--config={HERE}/{name}.py", RUN],
      prepare=odd_files,
      must_fail=True,
    )
  yield main("--config=DIR", [f"--config={ROOT}/configs", RUN], must_fail=True)
  yield main(
    "--workdir=FILE",
    [CONFIG, f"--workdir={HERE}/file"],
    prepare=odd_files,
    must_fail=True,
  )
  yield main(
    "--workdir=FILE/x",
    [CONFIG, f"--workdir={HERE}/file/x"],
    prepare=odd_files,
    must_fail=True,
  )
  for word in (
    "--config.=3",
    "--config.train=3",
    "--config.train.lr",
    "--noconfig.head.bias=3",
    "--config..lr=3",
    "--config.train.lr.x=3",
    "--config.head.name=full",
    "--config.train.lr=1=2",
    "--noconfig.train.lr",
    "--config.train.seed",
    "--nosuch",
    "--nosuch=3",
    "--config.nosuch=3",
    "-3",
    "--config.head.bias=",
    "--noworkdir",
    "--workdir",
    "--mode",
  ):
    yield main(f"a word {word}", [CONFIG, RUN, word], must_fail=True)
  predict = [RUN, "--mode=predict", "--top_k=2"]
  for about, stdin in (
    ("closed", None),
    ("empty", b""),
    ("not UTF-8", b"w1 w2\n\xff\xfe w3\n"),
    ("UTF-16", "w1 w2\n".encode("utf-16")),
    ("NUL", b"w1\0w2\n"),
    ("blanks", b" \n\t\n"),
    ("a long line", b"w1 " * 3000),
    ("a long word", b"w" * 2**22),
    ("words of others", "ä😀 w1\n".encode()),
  ):
    yield main(
      f"stdin {about}", predict, prepare=copied, stdin=stdin, must_fail=stdin is None
    )
    yield main(
      f"stdin {about}, stdout ASCII",
      predict,
      prepare=copied,
      stdin=stdin,
      encoding="ascii",
    )


def _evaluated_inside(here: pathlib.Path, done: Done) -> str:
  """That metrics are finite, and the run lies in one directory."""
  made = {path.name for path in here.iterdir()}
  if len(made) > 1:
    return f"more than one file or directory: {sorted(made)}"
  return oracle.evaluated(here, done)
