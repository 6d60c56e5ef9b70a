"""Small files of every format that is read, and the runs that read them."""

import gzip
import io
import json
import lzma
import pathlib
import random
from dataclasses import dataclass, field

import numpy as np

from largevocab.heads.partitioned import Partitioned
from largevocab.ops.adaptive.cost_model import FITTED
from tests.fuzz import oracle
from tests.fuzz.case import HERE, MAIN, ROOT, Done, nothing_more

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
  """A program, and the files that it reads.

  Attributes:
    name: of the format.
    files: name and content of each file.
    kind: what holds of its content: 'text', 'numbers', 'xmlc', 'pairs', 'packed',
      'npy', 'json', 'records' or 'python'; see `mutations`.
    config: FILE:ARG of a run of largevocab.main, below configs.
    keys: of the config; HERE is the directory of the files.
    words: arguments of a script instead.
    script: of the repository.
  """

  name: str
  files: dict[str, bytes] = field(default_factory=dict, hash=False)
  kind: str = "text"
  config: str = ""
  keys: dict[str, object] = field(default_factory=dict, hash=False)
  words: tuple[str, ...] = ()
  script: str = MAIN

  def argv(self) -> list[str]:
    """Arguments; a run of largevocab.main goes to HERE/run."""
    if self.words:
      return list(self.words)
    flags = [f"--config.{key}={value}" for key, value in self.keys.items()]
    return [f"--config={ROOT}/configs/{self.config}", f"--workdir={HERE}/run", *flags]

  def kind_of(self, name: str) -> str:
    """The kind of one of its files."""
    return "python" if name == "sweep.py" else self.kind

  def check(self, here: pathlib.Path, done: Done) -> str:
    """What is wrong with an end with status 0."""
    is_run = self.script == MAIN
    return oracle.trained(here, done) if is_run else nothing_more(here, done)

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
_CONFIG = b'''"""A config of one's own."""

from largevocab import config as c


def get_config(arg: str = ""):
  a = c.parse_arg(arg, head="full", hidden=8)
  return c.experiment(
    runlocal=a.runlocal,
    data=c.part("data", "ptb"),
    model=c.part("model", "lstm", embed=a.hidden, hidden=a.hidden, layers=1),
    head=c.head(a.head, init_scale=0.1),
    optimizer=c.part("optimizer", "sgd"),
    train=c.Training(epochs=2, batch_size=20, unroll=5, lr=1.0, clip_norm=0.25),
    eval=c.Evaluating(every_epochs=0.5),
  )
'''
_SWEEP = b'''"""A question."""


def sweep(add):
  for seed in range(2):
    for m in (10, 20):
      keys = {"head.num_samples": m, "train.seed": seed}
      add("configs/ptb.py:sampled/pps", keys, name=f"pps, m={m}")


def metrics():
  return ["test_ppl", "train_seconds"]


def paper():
  return {"pps, m=10": {"test_ppl": 114.5}}


def figures():
  return [
    {"file": "samples", "x": "head.num_samples", "y": "test_ppl", "log": "xy"},
    {"file": "steps", "x": "step", "y": "valid_ppl", "where": {"train.seed": 0},
     "line": "head.num_samples"},
  ]
'''


def _results() -> bytes:
  about = {
    **{"device": "a CPU", "num_devices": 1, "python": "3.11.7", "jax": "0.10.2"},
    **{"git": "2ea321d5997e366f", "git_dirty": False},
  }
  rows = [
    {
      **{"run": f"ptb-{m}-{seed}", "name": f"pps, m={m}"},
      **{"config": "configs/ptb.py:sampled/pps"},
      **{"overrides": {"head.num_samples": m, "train.seed": seed}},
      **{"test_ppl": 100.0 + m + seed, "train_seconds": 10.0 + m, **about},
      **{"curve": [[5, 6.0, 1.0], [10, 5.0 + seed, 3.0]]},
    }
    for m in (10, 20)
    for seed in range(2)
  ]
  return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _npy(array: np.ndarray) -> bytes:
  file = io.BytesIO()
  np.save(file, array)
  return file.getvalue()


_TEXT = _lines(120)
_SPLITS = ("train", "valid", "test")
_SHARDS = "training-monolingual.tokenized.shuffled/news.en-0000{}-of-00100"
_HELD_OUT = "heldout-monolingual.tokenized.shuffled/news.en.heldout-0000{}-of-00050"


def _of_text(name: str, config: str, file: str, content: bytes, kind: str = "text"):
  keys = {**OF_TEXT, "data.train": f"{HERE}/{file}"}
  return Format(name, {file: content}, kind, config, keys)


PLAIN = _of_text("text", "text.py:full", "a.txt", _TEXT)
DOCUMENTS = Format(
  "xmlc",
  {"bibtex_train.txt": _documents(60), "bibtex_test.txt": _documents(20, 1)},
  "xmlc",
  "xmlc.py:full,data=bibtex",
  {**OF_DOCUMENTS, "data.path": HERE},
)
# Of data sets.
DATA = [
  PLAIN,
  Format(
    "ptb",
    {f"ptb.{split}.txt": _lines(60, i) for i, split in enumerate(_SPLITS)},
    "text",
    "ptb.py:full",
    {**OF_TEXT, "data.path": HERE},
  ),
  _of_text("text8", "enwiki8.py:full", "text8", _TEXT.replace(b"\n", b" ")),
  _of_text("europarl", "europarl.py:full", "e.da", _lines(600)),
  Format(
    "lm1b",
    {
      **{_SHARDS.format(i): _lines(60, i) for i in (1, 2)},
      **{_HELD_OUT.format(i): _lines(40, 3 + i) for i in (0, 1)},
    },
    "text",
    "lm1b.py:full",
    {**OF_TEXT, "data.path": HERE},
  ),
  _of_text("gz", "text.py:full", "a.txt.gz", gzip.compress(_TEXT, mtime=0), "packed"),
  _of_text("xz", "text.py:full", "a.txt.xz", lzma.compress(_TEXT), "packed"),
  Format(
    "diginetica",
    {
      "diginetica_srgnn_train_sessions.txt": _sessions(60),
      "diginetica_srgnn_test_sessions.txt": _sessions(20, 1),
    },
    "numbers",
    "next_item.py:full",
    {**OF_ITEMS, "data.path": HERE},
  ),
  Format(
    "video_games",
    {"sasrec_Video.txt": _interactions()},
    "numbers",
    "next_item.py:full,data=video_games",
    {**OF_ITEMS, "data.path": HERE},
  ),
  Format(
    "interactions",
    {"a.txt": _interactions()},
    "numbers",
    "sequences.py:full",
    {**OF_TEXT, "data.path": f"{HERE}/a.txt"},
  ),
  DOCUMENTS,
  Format(
    "gowalla",
    {"gowalla_train.txt": _users(60), "gowalla_test.txt": _users(40, 1)},
    "numbers",
    "xmlc.py:full,data=gowalla",
    {**OF_DOCUMENTS, "data.path": HERE},
  ),
  Format(
    "stdlib_calls",
    {f"sources/m{i}.py": _SOURCE for i in range(40)},
    "sources",
    "xmlc.py:full,data=stdlib_calls",
    {**OF_DOCUMENTS, "data.sources": f"{HERE}/sources"},
  ),
]
# Data sets without a format here: why.
WITHOUT = {
  "stdlib": "reads the whole library; its keys are those of `text`",
  "tfds": "needs a set that tensorflow-datasets has prepared",
  "tfds_xmlc": "the same",
}
_RESULTS = {"sweep.py": _SWEEP, "results.jsonl": _results()}
_COUNTS = {"counts.npy": _npy(np.arange(60, 0, -1))}
TABLE = Format(
  "table",
  _RESULTS,
  "records",
  words=(f"{HERE}/results.jsonl",),
  script="scripts/tabulate.py",
)
COUNTS = Format(
  "counts",
  _COUNTS,
  "npy",
  words=(f"--counts={HERE}/counts.npy", "--dim=8", "--batch=16"),
  script="largevocab/tools/clusters_report.py",
)
# Of files that are given by a name, and of scripts.
OTHERS = [
  Format(
    "word pairs",
    {"pairs.csv": _pairs()},
    "pairs",
    "ngram.py:full,runlocal",
    {"eval.word_pairs": f"('{HERE}/pairs.csv',)"},
  ),
  Format(
    "clusters",
    {"clusters.npy": _npy(np.arange(1000, dtype=np.int32) % 32)},
    "npy",
    "ptb.py:hierarchical,runlocal",
    {"head.clusters": f"{HERE}/clusters.npy"},
  ),
  Format(
    "cost model",
    {"model.json": (FITTED / f"{Partitioned.cost_model}.json").read_bytes()},
    "json",
    "ptb.py:adaptive,runlocal",
    {"head.cost_model": f"{HERE}/model.json"},
  ),
  Format(
    "config",
    {"mine.py": _CONFIG},
    "python",
    words=(f"--config={HERE}/mine.py:full,runlocal", f"--workdir={HERE}/run"),
  ),
  TABLE,
  Format(
    "figures",
    _RESULTS,
    "records",
    words=(f"{HERE}/sweep.py",),
    script="scripts/plot.py",
  ),
  Format(
    "sweep",
    {"sweep.py": _SWEEP},
    "python",
    words=(f"{HERE}/sweep.py", "--dry_run", f"--root={HERE}/runs"),
    script="scripts/run_sweep.py",
  ),
  COUNTS,
  Format(
    "counts of advise",
    _COUNTS,
    "npy",
    words=(f"--counts={HERE}/counts.npy", "--dim=8", "--batch=8", "--heads", "full"),
    script="scripts/advise.py",
  ),
]
