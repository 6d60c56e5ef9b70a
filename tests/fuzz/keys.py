"""Every key of every config, with extreme values.

Keys come from the configs themselves and parts from the registries, so that a new one
is tried without a change here.
"""

import functools
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from largevocab import command_line, config
from largevocab.losses import SAMPLED_LOSSES
from largevocab.samplers import SAMPLERS
from largevocab.samplers.base import counts_rows, follows_labels, is_choice
from tests.fuzz import formats, oracle
from tests.fuzz.case import ROOT, Case
from tests.fuzz.formats import Format

CONFIGS = sorted(path.name for path in ROOT.glob("configs/*.py"))
OPTIMIZERS = ("adamw", "lion", "rmsprop")
# What configs take before their head, to reach all parts there are.
VARIANTS = {
  "xmlc.py": ["", "data=amazon670k,head=", "data=topics,head="],
  "enwiki8.py": ["", "optimizer=rowwise_adagrad,head="],
  "sequences.py": ["", *(f"optimizer={x},head=" for x in OPTIMIZERS)],
  "text.py": ["", "model=gru,head=", "model=transformer,head="],
}
# Which numbers may be below zero: an exponent, a place, what may lower or turn round.
MAY_BE_NEGATIVE = {
  "forget_bias",
  "exponent",
  "coupling",
  "scale",
  "power",
  "dense_levels",
  "shift",
  "alpha",
  "calibration",
}
# Texts that name no choice: what stands in them is the user's own.
FREE_TEXTS = {"cache_dir", "path", "file", "begin", "feature", "data_dir"}
# What nobody can mean, though the type is right: by the name of a part and its key.
KNOWN_NONSENSE = {
  ("adam", "b1"): ["1", "1.5"],
  ("adam", "b2"): ["1", "1.5"],
  ("momentum", "momentum"): ["1.5"],
  ("eval", "precision_k"): ["(1, 1)", "(0,)", "(-1,)"],
  ("eval", "hit_k"): ["(1, 1)", "(0,)", "(-1,)"],
  ("sampled", "exact_frequent"): [str(10**12)],
  ("sampled", "exact_ids"): ["(-1,)", "(1, 1)", f"({10**12},)"],
}
_ALWAYS = {
  "dropout": ["1", "2"],
  "layers": [str(10**5)],
  "unigram_share": ["2"],
  "min_head_mass": ["2"],
}
_SHARES = {"valid_share": ["2", "1"], "test_share": ["2"], "buckets": ["(2.0,)"]}

BAD_NUMBERS = ["nan", "inf", "-inf", "abc", "", "(1,)", "1;2", "0x"]
BELOW_ZERO = ["-1", "-1e-30", "-1e308"]
BAD_BOOLS = ["maybe", "2", "nan", "(1,)", "-1"]
BAD_TUPLES = ["nan", "(nan,)", "(None,)", "((),)", "(1e308,)", "([1],)", "(-1,)"]
BAD_CHOICES = ["nosuch", "nan", "x" * 5000, "~nosuch/x", "a\nb", "[", "\\", "ä😀", " "]
# Of keys that may take a bound away: what ends the run all the same.
ENDING = {"train.max_steps": ["--config.train.epochs=0.1"]}
INTS = ["0", "1", "2", "3", "7", str(10**12), str(2**31), str(2**31 - 1)]
INTS += [str(2**32), str(2**63 - 1), str(2**63), str(2**64), str(10**25)]
FLOATS = ["0", "-0.0", "1e308", "1e-308", "1e30", "1e-30", "0.5", "1", "2", "1e9"]
TUPLES = ["()", "(1,)", "(2, 1)", "(0.5,)", "('a',)", "('~nosuch/x',)", "(10**12,)"]
TUPLES += ["(0.1, 0.2, 0.3)", f"({2**63},)", "(1, 2, 3)", "(0,)", "abc"]
TEXTS = ["", "1", "nosuch", "~nosuch/x", "x" * 5000, "/", "..", "[", "*", "\\", "a\nb"]
TEXTS += ["ä😀", "/dev/null", "\udcff"]


class Key(NamedTuple):
  """A key of a config, and the part that it belongs to.

  Attributes:
    path: as in 'head.sampler.power'.
    part: name of the part, or of the block where there is no choice: 'pps', 'train'.
    value: what it is.
  """

  path: str
  part: str
  value: Any

  @property
  def name(self) -> str:
    return self.path.rpartition(".")[2]


class Value(NamedTuple):
  """A value for a key, and whether it must be refused."""

  text: str
  is_nonsense: bool


def cases(seed: int, number: int) -> Iterator[Case]:
  """Cases with one key set, on all configs and heads in turn; the fields of all parts
  come equally often, and of a field all values in a random order."""
  rng = random.Random(f"{seed}/keys")
  seen: Counter[tuple[str, str]] = Counter()
  values: dict[tuple[str, str], list[Value]] = {}
  start = rng.randrange(10**6)
  for i in range(number):
    run = of_files(i // 5) if i % 5 == 0 else local(start + i)
    keys = keys_of(run)
    least = min(seen[key.part, key.name] for key in keys)
    key = rng.choice([key for key in keys if seen[key.part, key.name] == least])
    field = key.part, key.name
    if not values.get(field):
      values[field] = values_of(key)
      rng.shuffle(values[field])
    seen[field] += 1
    yield case(f"keys-{i}", run, key, values[field].pop())


def case(id: str, run: Format, key: Key, value: Value) -> Case:
  """A run with a key set."""
  return Case(
    id,
    f"{key.part}: {key.path}={value.text[:40]!r}",
    [*run.argv(), *ENDING.get(key.path, []), f"--config.{key.path}={value.text}"],
    prepare=run.write,
    must_fail=value.is_nonsense,
    # Of data without text, `bigram` is refused for that.
    names=() if "/bigram" in run.config else (key.name,),
    check=oracle.trained,
  )


def local(i: int) -> Format:
  """The i-th of all configs and heads, on synthetic data."""
  heads = [path for path in config.head_paths() if _goes_together(path)]
  heads += ["full/cosine", "sampled/uniform/cosine"]
  name = CONFIGS[i % len(CONFIGS)]
  head = heads[i // len(CONFIGS) % len(heads)]
  variants = VARIANTS.get(name, [""])
  before = variants[i // len(CONFIGS) % len(variants)]
  return Format("runlocal", config=f"{name}:{before}{head},runlocal")


def _goes_together(path: str) -> bool:
  """Whether the loss of a head takes the sampler."""
  head, _, name = path.partition("/")
  loss = SAMPLED_LOSSES.get(head)
  if loss is None:
    return True
  sampler = SAMPLERS[name]()
  return not (
    (loss.needs_sets and not getattr(sampler, "distinct", False))
    or (loss.needs_noise and (follows_labels(sampler) or is_choice(sampler)))
    or (loss.keeps_hits and counts_rows(sampler))
  )


def of_files(i: int) -> Format:
  return formats.DATA[i % len(formats.DATA)]


@functools.cache
def keys_of(run: Format) -> list[Key]:
  """All keys that flags can set; of data from files the keys of the data alone."""
  settings = command_line.load(f"{ROOT}/configs/{run.config}")
  blocks = {"data": settings.data} if run.files else settings
  return [key for name, block in blocks.items() for key in _keys(name, name, block)]


def _keys(path: str, part: str, block: ConfigDict) -> Iterator[Key]:
  part = block.get("name", part)
  for name, value in block.items():
    if isinstance(value, ConfigDict):
      yield from _keys(f"{path}.{name}", name, value)
    elif name != "name":
      yield Key(f"{path}.{name}", part, value)


def values_of(key: Key) -> list[Value]:
  """All values that are tried for a key."""
  known = KNOWN_NONSENSE.get((key.part, key.name), [])
  known = [*known, *_ALWAYS.get(key.name, []), *_SHARES.get(key.name, [])]
  bad, fair = _by_type(key)
  bad = [*known, *bad]
  return [Value(text, True) for text in bad] + [
    Value(text, False) for text in fair if text not in bad
  ]


def _by_type(key: Key) -> tuple[list[str], list[str]]:
  """Invalid values, and values that may be valid."""
  match key.value:
    case bool():
      return BAD_BOOLS, ["True", "False", ""]
    case int():
      bad = [*BAD_NUMBERS, "1.5", "True", str(-(10**12)), str(-(2**63))]
      fair = [str(key.value), str(key.value + 1), *INTS]
      may_be = key.name in MAY_BE_NEGATIVE
      return (bad, ["-1", *fair]) if may_be else ([*bad, "-1"], fair)
    case float():
      near = [str(key.value), str(key.value / 2), str(key.value * 2)]
      if key.name in MAY_BE_NEGATIVE:
        return BAD_NUMBERS, [*BELOW_ZERO, *near, *FLOATS]
      return [*BAD_NUMBERS, *BELOW_ZERO], [*near, *FLOATS]
    case tuple():
      return BAD_TUPLES, TUPLES
    case _ if key.name in FREE_TEXTS or key.part in config.REGISTRIES["data"]:
      return [], TEXTS
    case _:
      return [*BAD_CHOICES, *([""] if key.value else [])], ["", "1"]
