"""The tasks of the benchmark: data, network and training that are the same for all.

An entrant chooses the output layer, its loss, the optimiser and the rates. The task
determines everything else. With other data, or another network, budget or metric, it is
another task or another version of the protocol.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ml_collections import ConfigDict

from largevocab import command_line, config
from largevocab.errors import UserError, listed, nearest
from largevocab.paths import user_path

PROTOCOL = 1  # a change of a task's data, network, budget or metric increases it
SEEDS = (0, 1, 2)
# RATES are the keys that any entrant may set. An adapter may also set arguments of its
# function. A head of this package may also set keys of the output layer and the
# optimiser.
RATES = re.compile(
  r"train\.(lr|schedule|warmup_steps|hold_epochs|decay|end_factor|clip_norm)"
)
OF_ADAPTER = re.compile(rf"[^\W\d]\w*|{RATES.pattern}")
FREE = re.compile(rf"(head|optimizer)\.[\w.]+|train\.head_lr_factor|{RATES.pattern}")


@dataclass(frozen=True)
class Task:
  """Data, network and budget.

  Attributes:
    title: title of the task, for tables.
    config: config of the package, as for --config; {} stands for the output layer.
    steps: number of training steps, of one batch each.
    metric: metric in result.json, without the split: 'ppl', 'recall@20', 'p@1'.
    data_key: key of the config that has the location of the data; '': the data is
      synthetic.
    data: how to get the data.
    digest: digest of the data (`largevocab.bench.digest`); '': not known yet, so that
      the first submitted results determine it.
    fixed: keys of the config whose values differ from the config's own.
    is_entered: whether results can be submitted.
  """

  title: str
  config: str
  steps: int
  metric: str
  data_key: str = ""
  data: str = ""
  digest: str = ""
  fixed: Mapping[str, Any] = field(default_factory=dict)
  is_entered: bool = True

  def settings(
    self,
    method: str = "full",
    seed: int = 0,
    place: str = "",
    chosen: Sequence[str] = (),
  ) -> ConfigDict:
    """The config of a run.

    Args:
      method: the output layer, as HEAD, HEAD/SAMPLER or HEAD/LOSS.
      seed: seed of initial values and negatives.
      place: location of the data on this machine.
      chosen: 'KEY=VALUE' for keys that the task does not determine.

    Raises:
      UserError: a method, key or place is wrong; the message names it.
    """
    if not is_method(method):
      raise UserError(
        f"--method={method}: must be a path such as sampled/pps, of one of the heads "
        f"{listed(config.head_names())}; set the rest by --set KEY=VALUE"
      )
    for word in chosen:
      key, equals, _ = word.partition("=")
      if not equals or not FREE.fullmatch(key):
        raise UserError(
          f"--set {word}: must be KEY=VALUE of head, optimizer or a rate of train; "
          "the task sets all other keys"
        )
    values = {
      **{"log.monitor_every_steps": 0, "train.max_steps": self.steps},
      **self.fixed,
      "train.seed": seed,
      **self._place(place),
    }
    words = [f"{key}={value}" for key, value in values.items()]
    settings = command_line.load(self.config.format(method))
    flags = [f"--config.{word}" for word in [*words, *chosen]]
    command_line.override(settings, ["bench", *flags], known=[])
    return settings

  def _place(self, place: str) -> dict[str, str]:
    if bool(place) != bool(self.data_key):
      if self.data_key:
        raise UserError(f"--data is missing; {self.data}")
      raise UserError(f"--data is {place}, but this task makes its data: leave it out")
    return {self.data_key: str(user_path(place, "--data"))} if place else {}


def _wikipedia(**fields: Any) -> Task:
  """A task that one core trains in hours; each held-out split has 5 of 1,000 words."""
  return Task(
    config="enwiki8:{},optimizer=sgd",
    steps=41_900,
    metric="ppl",
    data_key="data.train",
    fixed={
      **{"model.embed": 128, "model.hidden": 128},
      **{"train.batch_size": 20, "train.epochs": 1, "eval.batch_size": 20},
      **{"data.valid_share": 0.005, "data.test_share": 0.005},
      "eval.every_epochs": 0.05,
    },
    **fields,
  )


def _tiny(**fields: Any) -> Task:
  """A task without files that trains in a moment."""
  fixed = {"eval.every_epochs": 0.1, "checkpoint.every_steps": 1000}
  return Task(steps=20, fixed=fixed, is_entered=False, **fields)


TASKS = {
  "ptb": Task(
    title="Penn Treebank, 10,000 words",
    config="ptb:{}",
    steps=30_199,
    metric="ppl",
    data_key="data.path",
    data="python -m largevocab.tools.fetch ptb DIR, then --data DIR",
    digest="sha256:34123bcc3dacea865057d04f5a4f61ba25cd9fc8faf7dce8a40ec1055b152c15",
    fixed={"eval.every_epochs": 0.5},
  ),
  "enwiki8": _wikipedia(
    title="Wikipedia of 2015 by the recipe of text8, 67,531 words",
    data="make the file as docs/bench.md says, then --data FILE",
    digest="sha256:2202c6adfde69650003ccdc32edd4a441c6712ce308df552eadefc96786afd22",
  ),
  "text8": _wikipedia(
    title="Wikipedia, text8",
    data="python -m largevocab.tools.fetch text8 DIR, then --data DIR/text8",
  ),
  "citeulike_t": Task(
    title="citeulike-t, 52,946 tags",
    config="xmlc:{},data=citeulike_t",
    steps=385,
    metric="p@1",
    data_key="data.path",
    data="get the files as docs/bench.md says, then --data DIR",
    digest="sha256:875ee6ef84c3afb6249d7a36358889fffd644dfcb3205a5d02a473e89e591c2f",
    fixed={"eval.every_epochs": 0.2},
  ),
  "diginetica": Task(
    title="Diginetica, 43,097 items",
    config="next_item:{}",
    steps=10_684,
    metric="recall@20",
    data_key="data.path",
    data="python -m largevocab.tools.fetch diginetica DIR, then --data DIR",
    digest="sha256:03c99e435ac2652138f9edacdaa21e95f5bc62bf6b68367d7284a1b6106414c9",
    fixed={"eval.every_epochs": 0.25},
  ),
  "amazon670k": Task(
    title="Amazon-670K, 670,091 labels",
    config="xmlc:{},data=amazon670k",
    steps=10_000,
    metric="p@1",
    data_key="data.path",
    data="python -m largevocab.tools.fetch amazon670k DIR, then --data DIR",
    fixed={"train.epochs": 22.0},
  ),
  "lm1b": Task(
    title="One Billion Word, 800,000 words",
    config="lm1b:{}",
    steps=100_000,
    metric="ppl",
    data_key="data.path",
    data="python -m largevocab.tools.fetch lm1b DIR, then --data DIR/1-billion-...",
    fixed={"eval.every_epochs": 0.02},
  ),
  "tiny": _tiny(
    title="text made in a moment, to try out an adapter",
    config="ptb:{},runlocal",
    metric="ppl",
    digest="sha256:3d7b706581f913bcbef50c0f9886c277589e24839f3d79b931666370ea32abc7",
  ),
  "tiny_items": _tiny(
    title="items made in a moment, to try out an adapter",
    config="next_item:{},runlocal,data=diginetica",
    metric="recall@20",
    digest="sha256:cadad18a3dc08d12f7cc43eebeb744b3df0c14e0a6d52aeebeec28ed524147ad",
  ),
  "tiny_labels": _tiny(
    title="documents made in a moment, to try out an adapter",
    config="xmlc:{},runlocal,data=synthetic",
    metric="p@1",
    digest="sha256:8607ad68c14db19e46cc8402230594c96b14ffc739b8c8a9309f497284a47657",
  ),
}


def is_method(text: str) -> bool:
  """Whether a text is the path of a head, and sets nothing else in a config.

  >>> is_method("sampled/pps"), is_method("adam"), is_method("full,adam")
  (True, False, False)
  """
  return text.partition("/")[0] in config.head_names() and not set(text) & set(",=")


def find(name: str, tasks: Mapping[str, Task] = TASKS) -> Task:
  """The task with a given name; raises a UserError if there is none."""
  if name not in tasks:
    raise UserError(f"there is no task {name!r:.99}{nearest(name, tasks)}")
  return tasks[name]
