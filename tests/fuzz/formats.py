"""Small files of every format that is read, and the runs that read them."""

import gzip
import lzma
import pathlib
import random
from dataclasses import dataclass, field

from tests.fuzz.case import HERE, ROOT

# Of runs on real files, which `runlocal` does not make small.
TINY = {
  "train.batch_size": 4,
  "train.max_steps": 2,
  "eval.batch_size": 4,
  "eval.every_epochs": 0,
  "log.every_steps": 1,
  "log.monitor_every_steps": 0,
}
_UNROLL = {"train.unroll": 5, "eval.unroll": 5}
_SMALL = {"model.embed": 8, "model.hidden": 8}
OF_TEXT = {**TINY, **_UNROLL, **_SMALL}
OF_ITEMS = {**TINY, **_SMALL}
OF_DOCUMENTS = {**TINY, "model.embed": 8}


@dataclass(frozen=True)
class Format:
  """A run, and the files that it reads.

  Attributes:
    name: of the format.
    config: FILE:ARG of the run, below configs.
    files: name and content of each file.
    kind: what holds of its content: 'text', 'numbers', 'xmlc', 'packed' or 'npy'; see
      `mutations`.
    flags: keys and values; HERE is the directory of the files.
  """

  name: str
  config: str
  files: dict[str, bytes] = field(default_factory=dict, hash=False)
  kind: str = "text"
  flags: dict[str, object] = field(default_factory=dict, hash=False)

  def argv(self) -> list[str]:
    """Of a run of largevocab.main in HERE/run."""
    flags = [f"--config.{key}={value}" for key, value in self.flags.items()]
    return [f"--config={ROOT}/configs/{self.config}", f"--workdir={HERE}/run", *flags]

  def write(self, here: pathlib.Path) -> None:
    """Writes the files."""
    for name, content in self.files.items():
      path = here / name
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_bytes(content)


def _words(rng: random.Random, number: int) -> list[str]:
  """Frequent words and rare ones."""
  return [f"w{min(int(rng.expovariate(0.1)), 60)}" for _ in range(number)]


def _lines(number: int, seed: int = 0) -> bytes:
  rng = random.Random(seed)
  lines = [" ".join(_words(rng, rng.randint(3, 12))) for _ in range(number)]
  return ("\n".join(lines) + "\n").encode()


def _sessions(number: int, seed: int = 0) -> bytes:
  rng = random.Random(seed)
  lines = [
    " ".join(str(int(rng.expovariate(0.05))) for _ in range(rng.randint(2, 9)))
    for _ in range(number)
  ]
  return ("\n".join(lines) + "\n").encode()


def _interactions(seed: int = 0) -> bytes:
  rng = random.Random(seed)
  pairs = [(user, rng.randint(1, 40)) for user in range(1, 31) for _ in range(6)]
  return "".join(f"{user} {item}\n" for user, item in pairs).encode()


def _users(number: int, seed: int = 0) -> bytes:
  rng = random.Random(seed)
  lines = []
  for user in range(number):
    items = sorted(rng.sample(range(50), rng.randint(2, 8)))
    lines.append(" ".join(map(str, [user, *items])))
  return ("\n".join(lines) + "\n").encode()


def _documents(number: int, seed: int = 0) -> bytes:
  rng = random.Random(seed)
  lines = [f"{number} 30 20"]
  for _ in range(number):
    labels = sorted(rng.sample(range(20), rng.randint(1, 3)))
    features = sorted(rng.sample(range(30), rng.randint(1, 6)))
    pairs = " ".join(f"{id}:{rng.random():.4f}" for id in features)
    lines.append(f"{','.join(map(str, labels))} {pairs}")
  return ("\n".join(lines) + "\n").encode()


def _pairs() -> bytes:
  rng = random.Random(0)
  rows = [f"w{i},w{i + 1},{rng.uniform(0, 10):.2f}" for i in range(20)]
  return ("\n".join(["Word 1,Word 2,Human (mean)", *rows]) + "\n").encode()


_SOURCE = b'''"""A module."""
import os


def join(first, second):
  """Both of them, joined."""
  return os.path.join(str(first), str(second))


def listed(path):
  names = sorted(os.listdir(str(path)))
  print(len(names), join(path, names[0]))
  return [join(path, name) for name in names]
'''
_TEXT = _lines(120)
_SPLIT = {
  f"ptb.{split}.txt": _lines(60, i)
  for i, split in enumerate(["train", "valid", "test"])
}
_SHARDS = "training-monolingual.tokenized.shuffled/news.en-0000{}-of-00100"
_HELD_OUT = "heldout-monolingual.tokenized.shuffled/news.en.heldout-0000{}-of-00050"

PLAIN = Format(
  "text",
  "text.py:full",
  {"a.txt": _TEXT},
  "text",
  {**OF_TEXT, "data.train": f"{HERE}/a.txt"},
)
PTB = Format("ptb", "ptb.py:full", _SPLIT, "text", {**OF_TEXT, "data.path": HERE})
SESSIONS = Format(
  "diginetica",
  "next_item.py:full",
  {
    "diginetica_srgnn_train_sessions.txt": _sessions(60),
    "diginetica_srgnn_test_sessions.txt": _sessions(20, 1),
  },
  "numbers",
  {**OF_ITEMS, "data.path": HERE},
)
XMLC = Format(
  "xmlc",
  "xmlc.py:full,data=bibtex",
  {"bibtex_train.txt": _documents(60), "bibtex_test.txt": _documents(20, 1)},
  "xmlc",
  {**OF_DOCUMENTS, "data.path": HERE},
)
CALLS = Format(
  "stdlib_calls",
  "xmlc.py:full,data=stdlib_calls",
  {f"sources/m{i}.py": _SOURCE for i in range(40)},
  "source",
  {**OF_DOCUMENTS, "data.sources": f"{HERE}/sources"},
)
# Data sets without a format here: why.
WITHOUT = {
  "stdlib": "reads the whole library; its keys are those of `text`",
  "tfds": "needs a set that tensorflow-datasets has prepared",
  "tfds_xmlc": "the same",
}
ALL = [
  PLAIN,
  PTB,
  Format(
    "text8",
    "enwiki8.py:full",
    {"text8": _TEXT.replace(b"\n", b" ")},
    "text",
    {**OF_TEXT, "data.train": f"{HERE}/text8"},
  ),
  Format(
    "europarl",
    "europarl.py:full",
    {"e.da": _TEXT},
    "text",
    {
      **OF_TEXT,
      "data.train": f"{HERE}/e.da",
      "data.valid_share": 0.1,
      "data.test_share": 0.1,
    },
  ),
  Format(
    "lm1b",
    "lm1b.py:full",
    {
      _SHARDS.format(1): _lines(60),
      _SHARDS.format(2): _lines(60, 1),
      _HELD_OUT.format(0): _lines(40, 2),
      _HELD_OUT.format(1): _lines(40, 3),
    },
    "text",
    {**OF_TEXT, "data.path": HERE},
  ),
  Format(
    "gz",
    "text.py:full",
    {"a.txt.gz": gzip.compress(_TEXT, mtime=0)},
    "packed",
    {**OF_TEXT, "data.train": f"{HERE}/a.txt.gz"},
  ),
  Format(
    "xz",
    "text.py:full",
    {"a.txt.xz": lzma.compress(_TEXT)},
    "packed",
    {**OF_TEXT, "data.train": f"{HERE}/a.txt.xz"},
  ),
  SESSIONS,
  Format(
    "video_games",
    "next_item.py:full,data=video_games",
    {"sasrec_Video.txt": _interactions()},
    "numbers",
    {**OF_ITEMS, "data.path": HERE},
  ),
  XMLC,
  Format(
    "gowalla",
    "xmlc.py:full,data=gowalla",
    {"gowalla_train.txt": _users(60), "gowalla_test.txt": _users(40, 1)},
    "numbers",
    {**OF_DOCUMENTS, "data.path": HERE},
  ),
  CALLS,
  Format(
    "word pairs",
    "ngram.py:full,runlocal",
    {"pairs.csv": _pairs()},
    "pairs",
    {"eval.word_pairs": f"('{HERE}/pairs.csv',)"},
  ),
]
