"""Configs: the only file that knows ml_collections.

A config is a ConfigDict made from the frozen dataclasses of an `Experiment`; their
fields are its keys and their defaults its values. A part chosen from a registry carries
its registry name as `name`. `build` turns a config back into dataclasses; a missing,
misspelt or ill-typed key is an error that names it.
"""

import dataclasses
import difflib
import json
import os
import types
from collections.abc import Iterable
from typing import Any

from ml_collections import ConfigDict

from largevocab.data import DATASETS
from largevocab.errors import UserError
from largevocab.fields import declared, parse
from largevocab.heads import HEADS, Sampled
from largevocab.losses import SAMPLED_LOSSES, SPHERICAL_LOSSES, SampledSoftmax
from largevocab.models import MODELS
from largevocab.rows import OPTIMIZERS
from largevocab.samplers import SAMPLERS
from largevocab.training.settings import (
  Checkpointing,
  Evaluating,
  Experiment,
  Logging,
  Training,
)
from largevocab.training.workdir import held, read_json, write_json

_TINY_WIDTH = 8  # of what `runlocal` trains

# What may stand in a block of this name, anywhere in a config.
REGISTRIES: dict[str, dict[str, Any]] = {
  "data": DATASETS,
  "model": MODELS,
  "head": HEADS,
  "sampler": SAMPLERS,
  "loss": {**SAMPLED_LOSSES, **SPHERICAL_LOSSES},
  "optimizer": OPTIMIZERS,
}
# What a head may be made with: what stands after the slash in 'sampled/pps'. Before it
# may stand a loss of that head: 'nce/unigram'.
_INNER = ("sampler", "loss")
# Heads by the first word of a path: the sampled head also by the name of its loss.
SAMPLED_HEADS = {
  "sampled" if loss is SampledSoftmax else name: loss
  for name, loss in SAMPLED_LOSSES.items()
}
HEAD_NAMES = {**HEADS, **dict.fromkeys(SAMPLED_HEADS, Sampled)}
SETTINGS: dict[str, Any] = {
  "train": Training,
  "eval": Evaluating,
  "checkpoint": Checkpointing,
  "log": Logging,
}
# Factored heads learn by plain gradient descent, whatever the network learns by. Their
# rates on text, found with configs/ptb.py (SGD) and configs/ngram.py (Adagrad).
_TEXT_RATES = {
  "sgd": {"taylor": 500.0, "spherical": 100.0, "squared": 0.003},
  "adagrad": {"taylor": 100.0, "spherical": 20.0, "squared": 0.003},
}


def part(kind: str, name: str, **fields: Any) -> Any:
  """A part of an experiment from a registry, by name.

  >>> part("sampler", "pps", power=0.75)
  PPS(power=0.75, smoothing=1.0)
  """
  return _choose(REGISTRIES[kind], name, kind)(**fields)


def head(path: str, **fields: Any) -> Any:
  """A head from 'head', 'head/sampler', 'head/loss' or, of the head 'sampled',
  'loss/sampler'; fields of other heads are left out.

  `sampler` and `loss` are fields of these, of which those of others are left out, too.
  A sampler that is made for absolute logits makes the head's absolute.

  >>> head("sampled/uniform", num_samples=64).num_samples
  64
  >>> head("sampled/unigram", sampler={"power": 0.5, "tables": 50}).sampler.power
  0.5
  >>> head("sampled/quadratic").absolute
  True
  >>> head("spherical/squared").loss
  Squared(binary=False)
  >>> head("ranking/uniform", loss={"alpha": 1.0}).loss
  Ranking(penalty='log', alpha=1.0)
  """
  name, slash, inner = path.partition("/")
  given = {kind: fields.pop(kind, {}) for kind in _INNER}
  if name not in HEAD_NAMES:
    raise UserError(f"head is {name!r:.99}; it must be one of {listed(HEAD_NAMES)}")
  cls = HEAD_NAMES[name]
  if loss := SAMPLED_HEADS.get(name):
    fields["loss"] = loss(**_own("loss", loss, given["loss"]))
  if slash:
    kind = _inner_kind(cls)
    if kind is None:
      raise UserError(
        f"head {name!r} takes neither sampler nor loss; drop {'/' + inner!r}"
      )
    chosen = _choose(_inner(cls, kind), inner, kind)
    fields[kind] = chosen(**_own(kind, chosen, given[kind]))
    if getattr(fields[kind], "absolute", False):
      fields.setdefault("absolute", True)
  return cls(**_own("head", cls, fields))


def _inner_kind(cls: Any) -> str | None:
  """What heads of a class are made with: 'sampler', 'loss' or nothing."""
  return next((kind for kind in _INNER if kind in _fields(cls)), None)


def _own(kind: str, cls: Any, fields: dict[str, Any]) -> dict[str, Any]:
  """Those of the fields that a class has; the others must be of one of its kind."""
  known = {name for other in REGISTRIES[kind].values() for name in _fields(other)}
  for key in fields:
    if key not in known:
      raise UserError(f"no {kind} has a field {key!r}{nearest(key, known)}")
  return {key: value for key, value in fields.items() if key in _fields(cls)}


def head_paths() -> list[str]:
  """All that `head` takes.

  >>> {"full", "sampled/uniform", "nce/uniform", "spherical/z"} <= {*head_paths()}
  True
  """
  paths = []
  for name, cls in HEAD_NAMES.items():
    kind = _inner_kind(cls)
    paths += [f"{name}/{inner}" for inner in _inner(cls, kind)] if kind else [name]
  return paths


def _inner(cls: Any, kind: str) -> dict[str, Any]:
  """What may stand in the block `kind` of a head or any other part."""
  return cls.losses if kind == "loss" else REGISTRIES[kind]


def parse_arg(arg: str | None, **defaults: Any) -> types.SimpleNamespace:
  """What stands after the colon in --config=FILE:ARG.

  ARG is `key=value` or, for a bool, `key`, separated by commas; a first word without a
  key is `head`. Every config takes `runlocal`.

  Args:
    arg: the text after the colon.
    **defaults: the keys that this config knows; values are cast to their types.

  Raises:
    UserError: unknown key, ill-typed value, or a key that is given twice.

  >>> parse_arg("sampled/pps,hidden=650", head="full", hidden=200)
  namespace(runlocal=False, head='sampled/pps', hidden=650)
  """
  values = {"runlocal": False, **defaults}
  given = set()
  for position, word in enumerate((arg or "").split(",")):
    key, equals, text = word.strip().partition("=")
    if not key:
      continue
    if not equals and key not in values and position == 0 and "head" in values:
      key, equals, text = "head", "=", key
    if key not in values:
      raise UserError(f"config argument {key!r} is unknown{nearest(key, values)}")
    if key in given:
      raise UserError(
        f"config argument {key!r} is given twice in {arg!r}; give it once"
      )
    given.add(key)
    what, kind = f"config argument {key}", type(values[key])
    if kind is not bool and not equals:
      raise UserError(f"{what} has no value; set it, as in {key}={values[key]}")
    values[key] = parse(what, text, kind)
  return types.SimpleNamespace(**values)


def experiment(runlocal: bool = False, **parts: Any) -> ConfigDict:
  """The config of an experiment.

  On text a head that has to learn at a rate of its own gets it, unless
  `train.head_lr_factor` is given: all configs of texts have the same.

  Args:
    runlocal: replace the data by a tiny synthetic set of their kind and stop after 5
      steps.
    **parts: fields of `Experiment`.
  """
  whole = _at_text_rate(Experiment(**parts))
  if runlocal:
    whole = _shrink(whole)
  blocks = {f.name: getattr(whole, f.name) for f in dataclasses.fields(whole)}
  return ConfigDict({key: _to_block(key, value) for key, value in blocks.items()})


def build(config: ConfigDict) -> Experiment:
  """The experiment that a config describes.

  The head learns with the experiment's optimiser, if it has use for one.

  Raises:
    UserError: names the key and its nearest valid neighbour.
  """
  keys = [f.name for f in dataclasses.fields(Experiment)]
  _check_keys("config", config, keys)
  parts = {
    key: _build_block(
      f"config.{key}", config[key], REGISTRIES.get(key), SETTINGS.get(key)
    )
    for key in keys
  }
  if "optimizer" in _fields(type(parts["head"])):
    parts["head"] = dataclasses.replace(parts["head"], optimizer=parts["optimizer"])
  return Experiment(**parts)


def of_workdir(workdir: str) -> ConfigDict:
  """The config that a run was started with.

  Keys that a run of an older version does not have are at their defaults.
  """
  path = os.path.join(workdir, "config.json")
  if not os.path.exists(path):
    raise UserError(f"{path} is missing; name the workdir of a run, or give --config")
  try:
    config = ConfigDict(read_json(path))
  except (ValueError, TypeError, AttributeError) as error:
    if isinstance(error, UserError):
      raise
    raise UserError(f"{path} is damaged ({error}); delete it") from error
  for key, block in config.items():
    _complete(key, block)
  return config


def bring_up_to_date(workdir: str) -> None:
  """Writes the keys of today that the config of an older run lacks, so that it can go
  on; there need not be one."""
  path = os.path.join(workdir, "config.json")
  if not os.path.exists(path):
    return
  completed = of_workdir(workdir).to_dict()
  if json.loads(json.dumps(completed)) != read_json(path):
    with held(workdir):
      write_json(path, completed)


def _complete(key: str, block: Any) -> None:
  """Adds to a block, in place, the keys of today that it lacks, and makes its lists the
  tuples that they were."""
  if not isinstance(block, ConfigDict):
    return  # `build` says what is wrong
  registry = REGISTRIES.get(key)
  cls = registry.get(str(block.get("name"))) if registry else SETTINGS.get(key)
  if cls is None:
    return
  for name, value in _to_block(key, cls()).items():
    if name not in block:
      block[name] = value
    elif isinstance(value, ConfigDict):
      _complete(name, block[name])
    elif isinstance(value, tuple) and isinstance(block[name], list):
      values = tuple(block[name])  # JSON has no tuples, and flags set no lists.
      del block[name]  # or else the new value would become a list, too
      block[name] = values


def _at_text_rate(whole: Experiment) -> Experiment:
  """The experiment, its head at the rate that is known for its loss on text, if any."""
  is_text = hasattr(whole.data, "words")
  by_loss = _TEXT_RATES.get(
    _name_of("optimizer", whole.optimizer), _TEXT_RATES["adagrad"]
  )
  rate = by_loss.get(_name_of("loss", getattr(whole.head, "loss", None)))
  if not is_text or rate is None or whole.train.head_lr_factor != 1.0:
    return whole
  train = dataclasses.replace(whole.train, head_lr_factor=rate / whole.train.lr)
  return dataclasses.replace(whole, train=train)


def _name_of(kind: str, value: Any) -> str:
  """The name in its registry of what a part is; '' of what is in none."""
  names = {cls: name for name, cls in REGISTRIES[kind].items()}
  return names.get(type(value), "")


def _shrink(whole: Experiment) -> Experiment:
  head: Any = whole.head
  fields = {"num_samples": 16} if "num_samples" in _fields(type(head)) else {}
  return dataclasses.replace(
    whole,
    data=whole.data.tiny(),
    model=_tiny_model(whole.model),
    head=dataclasses.replace(head, **fields),
    train=dataclasses.replace(
      whole.train, batch_size=4, unroll=min(whole.train.unroll, 5), max_steps=5
    ),
    eval=dataclasses.replace(
      whole.eval, every_epochs=1.0, batch_size=4, unroll=min(whole.eval.unroll, 5)
    ),
    checkpoint=Checkpointing(every_steps=2),
    log=Logging(every_steps=1, monitor_every_steps=2),
  )


def _tiny_model(model: Any) -> Any:
  sizes = {"embed", "hidden"} & _fields(type(model)).keys()
  return model.clone(**dict.fromkeys(sizes, _TINY_WIDTH))


def _fields(cls) -> dict[str, Any]:
  """Fields that a config may set: not those that flax adds to its modules."""
  own = (f for f in dataclasses.fields(cls) if f.init)
  return {f.name: f for f in own if f.name not in ("parent", "name")}


def _to_block(key: str, value: Any) -> ConfigDict:
  block = ConfigDict()
  if key in REGISTRIES:
    block.name = _name_of(key, value)
  for name in _fields(type(value)):
    inner = getattr(value, name)
    if name == "optimizer":
      continue  # the experiment's own: see `build`
    block[name] = _to_block(name, inner) if dataclasses.is_dataclass(inner) else inner
  return block


def _build_block(path: str, block: Any, registry: dict | None, cls: Any) -> Any:
  """The part that a block describes: one of a registry, or of the class `cls`."""
  if not isinstance(block, ConfigDict):
    raise UserError(f"{path} is {block!r}; it must be a block of keys")
  if registry:
    if "name" not in block:
      raise UserError(f"{path}.name is missing; one of {listed(registry)}")
    cls = _choose(registry, block.name, f"{path}.name")
  fields = {n: what for n, what in declared(cls).items() if n != "optimizer"}
  _check_keys(path, block, [*fields, "name"] if registry else list(fields))
  values = {}
  for name, what in fields.items():
    place, value = f"{path}.{name}", block[name]
    if name in REGISTRIES:
      values[name] = _build_block(place, value, _inner(cls, name), None)
    else:
      values[name] = what.read(place, value)
  return cls(**values)


def _check_keys(path: str, block: ConfigDict, keys: list[str]) -> None:
  for key in block:
    if key not in keys:
      raise UserError(f"{path}.{key} is no such key{nearest(key, keys)}")
  for key in keys:
    if key not in block:
      raise UserError(f"{path}.{key} is missing")


def _choose(registry: dict[str, Any], name: str, path: str) -> Any:
  if not isinstance(name, str) or name not in registry:
    raise UserError(f"{path} is {name!r:.99}; it must be one of {listed(registry)}")
  return registry[name]


def listed(names: Iterable[str]) -> str:
  """Names in order, as a message lists them.

  >>> listed({"b", "a"})
  'a, b'
  """
  return ", ".join(sorted(names))


def nearest(name: str, names: Iterable[str]) -> str:
  """What to add to a message about a name that is unknown.

  >>> nearest("hiden", ["hidden", "layers"])
  "; did you mean 'hidden'?"
  """
  names = list(names)
  found = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
  return f"; did you mean {found[0]!r}?" if found else f"; known: {listed(names)}"
