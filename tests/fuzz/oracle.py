"""Judges whether a case ended as expected."""

import json
import math
import pathlib
import re
from typing import Any, NamedTuple

from tests.fuzz.case import Case, Done

GOOD = ("refused", "succeeded")
FAULTS = ("traceback", "hang", "crash", "accepted", "wrong", "unclear")
_TRACEBACK = "Traceback (most recent call last)"


class Verdict(NamedTuple):
  """What came of a case.

  Attributes:
    outcome: one of GOOD or of FAULTS: an exception that nobody caught; no end; the
      death of the process; status 0 on nonsense; status 0 with numbers that are not
      finite or not the right ones; an error that is not one line, or does not name what
      must be mended.
    why: in a few words.
  """

  outcome: str
  why: str = ""

  @property
  def is_fault(self) -> bool:
    return self.outcome in FAULTS


def judge(case: Case, done: Done, here: pathlib.Path) -> Verdict:
  """The verdict on a case that was run in the directory `here`."""
  if done.ending == "hang":
    return Verdict("hang", f"no end after {done.seconds:.0f} s")
  if done.ending == "crash":
    return Verdict("crash", f"status {done.status}: {_last(done.err)}")
  if _TRACEBACK in done.err:
    return Verdict("traceback", _cause(done.err))
  if done.status:
    return _of_error(case, done)
  if case.must_fail:
    return Verdict("accepted", "status 0")
  try:
    why = case.check(here, done)
  except (OSError, ValueError, KeyError, TypeError) as error:
    why = f"no result: {type(error).__name__} {error}"
  return Verdict("wrong", why) if why else Verdict("succeeded")


def _of_error(case: Case, done: Done) -> Verdict:
  line = _last(done.err)
  name = pathlib.Path(case.script).stem
  # The last is argparse's.
  if not line.startswith(("error: ", f"{name}: ", f"{name}.py: error: ")):
    return Verdict("unclear", f"status {done.status}, and no error: {line}")
  if case.must_fail:
    for name in case.names:
      if name not in line:
        return Verdict("unclear", f"{name} is not named in: {line}")
  return Verdict("refused", line)


def _last(text: str) -> str:
  lines = [line for line in text.splitlines() if line.strip()]
  return lines[-1][:300] if lines else ""


def _cause(err: str) -> str:
  """The exception, and the last of our own lines that it passed."""
  places = re.findall(
    r'File ".*?((?:largevocab|scripts|configs)/[^"]*)", line (\d+)', err
  )
  place = ":".join(places[-1]) if places else "?"
  lines = re.findall(
    r"^[ |]*([A-Za-z_][\w.]*(?:Error|Exception|Group|Exit|Interrupt)\b.*)", err, re.M
  )
  return f"{(lines or [_last(err)])[-1][:200]} at {place}"


def trained(here: pathlib.Path, done: Done) -> str:
  """Whether the run in HERE/run left finite results."""
  workdir = here / "run"
  result = json.loads((workdir / "result.json").read_text())
  lines = (workdir / "metrics.jsonl").read_text().splitlines()
  return not_finite({"result": result, "metrics": list(map(json.loads, lines))})


def evaluated(here: pathlib.Path, done: Done) -> str:
  """Whether the object on stdout has finite numbers only."""
  return not_finite(json.loads(done.out.splitlines()[-1]))


def not_finite(content: Any, path: str = "") -> str:
  """Where a number is not finite; '' if nowhere.

  >>> not_finite({"a": [1.0, float("nan")]})
  'a.1 is nan'
  """
  if isinstance(content, float) and not math.isfinite(content):
    return f"{path} is {content}"
  items = (
    content.items()
    if isinstance(content, dict)
    else enumerate(content)
    if isinstance(content, list)
    else ()
  )
  found = (not_finite(value, f"{path}.{key}".lstrip(".")) for key, value in items)
  return next(filter(None, found), "")
