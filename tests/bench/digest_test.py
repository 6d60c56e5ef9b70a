"""The digest of a task's data: it is computed as its docstring says."""

import hashlib

import numpy as np
import pytest

from largevocab import config
from largevocab.bench.digest import digest
from largevocab.bench.tasks import TASKS
from largevocab.data import DATASETS
from largevocab.data.labels.documents import Documents


def by_hand(num_classes, arrays):
  text = f"classes {num_classes}\n".encode()
  for name, array in arrays:
    shape = "x".join(str(size) for size in array.shape)
    text += f"{name} {array.dtype.str} {shape}\n".encode() + array.tobytes()
  return f"sha256:{hashlib.sha256(text).hexdigest()}"


@pytest.mark.parametrize("name", ["zipf", "zipf_items"])
def test_digest_follows_its_description(name):
  data = DATASETS[name]().tiny().load()
  splits = [(f"{s}.ids", getattr(data, s)) for s in ("train", "valid", "test")]
  assert digest(data) == by_hand(data.counts.num_classes, splits)


def test_digest_covers_all_arrays_of_documents():
  data = DATASETS["zipf_labels"]().tiny().load()
  arrays = [
    (f"{split}.{name}", np.asarray(getattr(getattr(data, split), name)))
    for split in ("train", "valid", "test")
    for name in Documents._fields
  ]
  assert digest(data) == by_hand(data.counts.num_classes, arrays)


def test_digest_depends_on_every_id():
  data = DATASETS["zipf"](num_classes=9, num_tokens=100).load()
  before = digest(data)
  assert digest(data) == before
  data.test[-1] = (data.test[-1] + 1) % 9
  assert digest(data) != before


def test_digest_of_the_tiny_task_does_not_change():
  """It is as committed, also on other machines and with other versions of NumPy."""
  task = TASKS["tiny"]
  assert digest(config.build(task.settings()).data.load()) == task.digest


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_a_config(name):
  task = TASKS[name]
  place = "some/place" if task.data_key else ""
  exp = config.build(task.settings("sampled/pps", 2, place, ["head.num_samples=8"]))
  assert exp.head.num_samples == 8
  assert (exp.train.seed, exp.train.max_steps) == (2, task.steps)
  if "@" in task.metric:
    assert int(task.metric.partition("@")[2]) in (
      exp.eval.ranking_k,
      *exp.eval.precision_k,
    )


# Published numbers of training examples, or of words of text. Every twentieth of the
# 490,449 documents of Amazon-670K and of the 20,780 papers of citeulike-t is left out
# for validation, and one in a hundred of the 17,005,207 words of text8.
EXAMPLES = {
  "ptb": 929_589,
  "text8": 16_835_154,
  "citeulike_t": 19_741,
  "amazon670k": 465_926,
  "lm1b": 768_648_884,
}


def test_every_task_has_a_digest_or_a_published_size():
  unknown = {name for name, task in TASKS.items() if not task.digest}
  assert unknown <= EXAMPLES.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_task_data_last_for_its_steps(name):
  task = TASKS[name]
  train = config.build(task.settings(place="some/place")).train
  epoch = train.steps_per_epoch(EXAMPLES[name] // train.batch_size // train.unroll)
  assert train.num_steps(epoch) == task.steps
