"""A small part of the fuzz, with a fixed seed, and a test that it finds faults.

At full size: python -m tests.fuzz --cases 4000 --seed 0 --jobs 2
"""

import json
import pathlib
from collections import Counter

import pytest

from largevocab import config
from largevocab.data import DATASETS
from tests.fuzz import formats, kinds, oracle
from tests.fuzz.__main__ import told
from tests.fuzz.case import HERE, Case, Done
from tests.fuzz.keys import CONFIGS, keys_of, local, values_of
from tests.fuzz.oracle import Verdict
from tests.fuzz.pool import Worker
from tests.fuzz.runner import run_all, run_one

SEED = 0
# Of each kind: cases that must fail, which take milliseconds, and others, most of which
# train, or restore what was trained.
NUMBERS = {
  "keys": (40, 1),
  "files": (50, 3),
  "workdirs": (0, 6),
  "checkpoints": (0, 6),
  "caches": (0, 4),
  "arguments": (20, 4),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
  """The results of NUMBERS cases."""
  left = {
    (kind, i == 0): n for kind, both in NUMBERS.items() for i, n in enumerate(both)
  }

  def choose(case: Case) -> bool:
    left[case.kind, case.must_fail] -= 1
    return left[case.kind, case.must_fail] >= 0

  many = {kind: 4 * sum(both) for kind, both in NUMBERS.items()}
  return list(run_all(SEED, many, tmp_path_factory.mktemp("fuzz"), choose=choose))


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.long
def test_every_program_ends_as_expected(kind, results):
  own = [result for result in results if result.case.kind == kind]
  assert len(own) == sum(NUMBERS[kind])
  faults = [told(result) for result in own if result.verdict.is_fault]
  assert not faults, "\n".join([f"{len(faults)} faults", *faults])


@pytest.mark.long
def test_cases_fail_and_succeed(results):
  counts = Counter(result.verdict.outcome for result in results)
  assert counts["refused"] > 100
  assert counts["succeeded"] > 10


def test_all_kinds_are_tried():
  assert NUMBERS.keys() == kinds.SHARES.keys()
  assert sum(kinds.numbers(4000, list(kinds.SHARES)).values()) == 4000


@pytest.mark.long
def test_all_parts_are_tried():
  """All entries of each registry, and data sets that are read from files."""
  runs = {local(i) for i in range(len(CONFIGS) * len(config.head_paths()))}
  tried = {key.part for run in [*runs, *formats.DATA] for key in keys_of(run)}
  fieldless = {"sgd", "taylor", "blackout", "upper_bound", "importance"}
  parts = {name for registry in config.REGISTRIES.values() for name in registry}
  assert parts - tried - fieldless == set(formats.WITHOUT)
  assert config.SETTINGS.keys() <= tried
  assert set(formats.WITHOUT) < DATASETS.keys()


def test_every_key_has_invalid_and_valid_values():
  for run in [local(0), *formats.DATA]:
    for key in keys_of(run):
      values = values_of(key)
      is_free = isinstance(key.value, str) and run.files
      assert is_free or any(value.is_nonsense for value in values), key
      assert any(not value.is_nonsense for value in values), key


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
  """Runs a program, and returns its verdict."""
  root = tmp_path_factory.mktemp("programs")
  worker = Worker(limit=0.3, bare=True)

  def run(source: str, **fields) -> Verdict:
    program = root / "program.py"
    program.write_text(source)
    case = Case("programs-0", "", [], script=str(program), **fields)
    return run_one(case, root, worker).verdict

  yield run
  worker.close()


LOUD = "import sys; sys.exit('error: a.txt, line 3: no number')"


@pytest.mark.parametrize(
  ("source", "fields", "outcome"),
  [
    ("1 / 0", {}, "traceback"),
    (
      "import sys; print('Traceback (most recent call last):', file=sys.stderr)",
      {},
      "traceback",
    ),
    ("while True: pass", {}, "hang"),
    ("import time; time.sleep(60)", {}, "hang"),
    ("import os; os.abort()", {}, "crash"),
    ("x = bytearray(10**12)", {}, "traceback"),
    ("pass", {"must_fail": True}, "accepted"),
    ("import sys; sys.exit(3)", {}, "unclear"),
    ("import sys; sys.exit('what is this?')", {}, "unclear"),
    (LOUD, {"must_fail": True, "names": ("b.txt",)}, "unclear"),
    (LOUD, {"must_fail": True, "names": ("a.txt",)}, "refused"),
    (LOUD, {}, "refused"),
    ("print('{\"ppl\": NaN}')", {"check": oracle.evaluated}, "wrong"),
    ("print('no object')", {"check": oracle.evaluated}, "wrong"),
    ("pass", {"check": oracle.trained}, "wrong"),
    ("print('{\"ppl\": 1.5}')", {"check": oracle.evaluated}, "succeeded"),
    ("input()", {"stdin": b"text"}, "succeeded"),
    ("print(sys.stdin)\nimport sys", {"stdin": None}, "traceback"),
  ],
)
def test_fuzz_finds_faults(judged, source, fields, outcome):
  verdict = judged(source, **fields)
  assert verdict.outcome == outcome, verdict
  assert verdict.is_fault == (outcome in oracle.FAULTS)


def test_program_leaves_no_state_for_the_next(judged):
  assert (
    judged("import os, sys; os.environ['A'] = 'a'; os.chdir('/')").outcome
    == "succeeded"
  )
  source = "import os; assert 'A' not in os.environ and os.getcwd() != '/'"
  assert judged(source).outcome == "succeeded"


def test_next_command_after_a_success_is_judged(judged):
  source = "import sys; sys.exit('error: no' if sys.argv[1:] else 0)"
  assert judged(source).outcome == "succeeded"
  assert judged(source, then=["again"]).outcome == "refused"


def test_command_can_be_repeated():
  case = Case("keys-0", "", [f"--workdir={HERE}/run", "--text=a b"])
  here = pathlib.Path("/there")
  expected = (
    "LARGEVOCAB_CACHE=/there/cache python -m largevocab.main --workdir=/there/run"
  )
  assert case.command(here) == f"{expected} '--text=a b'"


def test_numbers_within_lines_are_checked(tmp_path):
  (tmp_path / "run").mkdir()
  (tmp_path / "run" / "result.json").write_text('{"ppl": 1.0}')
  lines = [{"step": 1, "loss": 1.0}, {"step": 2, "loss": float("inf")}]
  text = "".join(json.dumps(line) + "\n" for line in lines)
  (tmp_path / "run" / "metrics.jsonl").write_text(text)
  done = Done("exit", 0, "", "", 0.0)
  assert oracle.trained(tmp_path, done) == "metrics.1.loss is inf"
