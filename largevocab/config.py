"""Conversion between an `Experiment` and its config, an `ml_collections.ConfigDict`.

The keys and default values of a config are the fields and defaults of the frozen
dataclasses in an `Experiment`. A block that is chosen from a registry stores its
registry name under `name`. `build` turns a config back into dataclasses. A missing,
misspelt or ill-typed key raises an error that names it.
"""

import dataclasses
import os
import types
from collections import ChainMap
from collections.abc import MutableMapping
from typing import Any

import jax
from ml_collections import ConfigDict

from largevocab.data import DATASETS
from largevocab.errors import UserError, listed, nearest
from largevocab.fields import declared, parse
from largevocab.heads import HEADS, LOGITS, Linear, Sampled, ShardedHead, class_mesh
from largevocab.losses import SAMPLED_LOSSES, SPHERICAL_LOSSES, SampledSoftmax
from largevocab.models import MODELS
from largevocab.rows import OPTIMIZERS
from largevocab.samplers import SAMPLERS
from largevocab.training.config_changes import check_model
from largevocab.training.json_files import as_json, read_json, write_json
from largevocab.training.lock import held
from largevocab.training.processes import check_devices
from largevocab.training.settings import (
  Checkpointing,
  Devices,
  Evaluating,
  Experiment,
  Logging,
  Training,
)
from largevocab.training.workdir import config_path

_TINY = {"embed": 8, "hidden": 8, "heads": 2}  # sizes of networks with `runlocal`

Registry = MutableMapping[str, Any]
# Classes that a block of this name may describe, anywhere in a config.
REGISTRIES: dict[str, Registry] = {
  "data": DATASETS,
  "model": MODELS,
  "head": HEADS,
  "sampler": SAMPLERS,
  "logits": LOGITS,
  "loss": ChainMap(SAMPLED_LOSSES, SPHERICAL_LOSSES),
  "optimizer": OPTIMIZERS,
}
# Kinds of parts that a path names after the slash, as in 'sampled/pps'.
_INNER = ("sampler", "loss")
SETTINGS: dict[str, Any] = {
  "train": Training,
  "eval": Evaluating,
  "checkpoint": Checkpointing,
  "log": Logging,
  "mesh": Devices,
}
# Learning rates of spherical losses on text, by the optimiser of the network; the head
# itself uses SGD. Found with configs/ptb.py (SGD) and configs/ngram.py (Adagrad).
_TEXT_RATES = {
  "sgd": {"taylor": 500.0, "spherical": 100.0, "squared": 0.003},
  "adagrad": {"taylor": 100.0, "spherical": 20.0, "squared": 0.003},
}


def sampled_heads() -> dict[str, Any]:
  """The losses of the sampled head, by the word that chooses them in a path.

  >>> [sampled_heads()[word].__name__ for word in ("sampled", "nce")]
  ['SampledSoftmax', 'NCE']
  """
  return {
    "sampled" if loss is SampledSoftmax else name: loss
    for name, loss in SAMPLED_LOSSES.items()
  }


def head_names() -> dict[str, Any]:
  """The classes of heads, by the first word of a path, as in 'nce/unigram'."""
  return dict.fromkeys(sampled_heads(), Sampled) | HEADS


def part(kind: str, name: str, **fields: Any) -> Any:
  """Makes a part of an experiment, given its kind and registry name.

  Fields that only other parts of this kind have are ignored. A config can therefore let
  its user choose among the parts of a kind.

  >>> part("sampler", "pps", power=0.75, tables=50)
  PPS(power=0.75, smoothing=1.0)
  """
  cls = _choose(REGISTRIES[kind], name, kind)
  return cls(**_own(kind, cls, fields))


def head(path: str, **fields: Any) -> Any:
  """Makes a head from a path such as 'sampled/pps'.

  A path has the form 'head', 'head/sampler', 'head/loss' or 'loss/sampler'. If the
  logits of the head can be chosen, '/cosine' may follow.

  `sampler`, `loss` and `logits` are dicts with the fields of these parts. Fields that
  only other heads, samplers or losses have are ignored. If the sampler is for absolute
  logits, the head's `absolute` is True by default. For cosine logits, the head's `bias`
  is False by default.

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
  >>> head("full/cosine", logits={"scale": 16.0}).logits
  Cosine(scale=16.0, angular=0.0, additive=0.0)
  """
  whole, slash, last = path.rpartition("/")
  chooses = bool(slash) and last in LOGITS
  name, slash, inner = (whole if chooses else path).partition("/")
  given = {kind: fields.pop(kind, {}) for kind in (*_INNER, "logits")}
  names = head_names()
  if name not in names:
    raise UserError(f"head is {name!r:.99}; it must be one of {listed(names)}")
  cls = names[name]
  if chooses:
    if "logits" not in declared(cls):
      raise UserError(f"head {name!r} has its own logits; drop {'/' + last!r}")
    fields["logits"] = LOGITS[last](**_own("logits", LOGITS[last], given["logits"]))
    fields.setdefault("bias", LOGITS[last] is Linear)
  if loss := sampled_heads().get(name):
    fields["loss"] = loss(**_own("loss", loss, given["loss"]))
  if slash:
    kind = _inner_kind(cls)
    if kind is None:
      logits = f", or give one of {listed(LOGITS)}" if "logits" in declared(cls) else ""
      raise UserError(
        f"head {name!r} takes neither sampler nor loss; drop {'/' + inner!r}{logits}"
      )
    chosen = _choose(choices(cls, kind), inner, kind)
    fields[kind] = chosen(**_own(kind, chosen, given[kind]))
    if getattr(fields[kind], "absolute", False):
      fields.setdefault("absolute", True)
  return cls(**_own("head", cls, fields))


def _inner_kind(cls: Any) -> str | None:
  """The kind of part that a path of this head ends in: 'sampler', 'loss' or None."""
  return next((kind for kind in _INNER if kind in declared(cls)), None)


def _own(kind: str, cls: Any, fields: dict[str, Any]) -> dict[str, Any]:
  """The given fields that a class has; the rest must belong to a class of its kind."""
  known = {name for other in REGISTRIES[kind].values() for name in declared(other)}
  for key in fields:
    if key not in known:
      raise UserError(f"no {kind} has a field {key!r}{nearest(key, known)}")
  return {key: value for key, value in fields.items() if key in declared(cls)}


def head_paths() -> list[str]:
  """All paths that `head` accepts, except those that end in '/cosine'.

  >>> {"full", "sampled/uniform", "nce/uniform", "spherical/z"} <= {*head_paths()}
  True
  """
  paths = []
  for name, cls in head_names().items():
    kind = _inner_kind(cls)
    paths += [f"{name}/{inner}" for inner in choices(cls, kind)] if kind else [name]
  return paths


def choices(cls: Any, kind: str) -> Registry:
  """The classes that the block `kind` of a head or other part may describe."""
  return cls.losses if kind == "loss" else REGISTRIES[kind]


def parse_arg(arg: str | None, **defaults: Any) -> types.SimpleNamespace:
  """Parses ARG of --config=FILE:ARG.

  ARG is a comma-separated list of `key=value` or, for a bool, `key`. If the first word
  is not a key, it is the value of `head`. Every config accepts `runlocal`.

  Args:
    arg: the text after the colon.
    **defaults: keys of this config and their defaults; values are cast to the types of
      the defaults.

  Raises:
    UserError: unknown key, ill-typed value, or duplicate key.

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
  """Makes the config of an experiment.

  On text, spherical losses need their own learning rate, which is the same in all
  configs. If `train.head_lr_factor` is not given, it is set so that
  `train.head_lr_factor` times `train.lr` is this rate. For losses without such a rate,
  `train.head_lr_factor` is 1.

  Args:
    runlocal: whether to use a tiny model on tiny synthetic data of the same kind and
      stop after 5 steps.
    **parts: fields of `Experiment`.
  """
  whole = _with_head_rate(Experiment(**parts))
  if runlocal:
    whole = _shrink(whole)
  blocks = {f.name: getattr(whole, f.name) for f in dataclasses.fields(whole)}
  return ConfigDict({key: _to_block(key, value) for key, value in blocks.items()})


def build(config: ConfigDict) -> Experiment:
  """Builds the experiment that a config describes.

  If the head has a field `optimizer`, this field is set to the experiment's optimiser.

  Raises:
    UserError: a key or value is invalid; the message names the key and the nearest
      valid one.
  """
  keys = [f.name for f in dataclasses.fields(Experiment)]
  _check_keys("config", config, keys)
  parts = {
    key: _build_block(
      f"config.{key}", config[key], REGISTRIES.get(key), SETTINGS.get(key)
    )
    for key in keys
  }
  if "optimizer" in declared(type(parts["head"])):
    parts["head"] = dataclasses.replace(parts["head"], optimizer=parts["optimizer"])
  parts["head"] = _sharded(parts["head"], parts["mesh"])
  return Experiment(**parts)


def _sharded(head: Any, mesh: Devices) -> Any:
  """The head, sharded if there are several blocks of classes."""
  check_devices(mesh.blocks, mesh.num)
  if mesh.blocks == 1 and mesh.num <= 1:
    return head
  found = jax.devices()
  if mesh.num > len(found):
    raise UserError(
      f"mesh.num is {mesh.num}, but JAX finds only {len(found)} devices: set it to at "
      "most that number"
    )
  return ShardedHead(head, class_mesh(found[: mesh.num or None]), mesh.blocks)


def of_workdir(workdir: str) -> ConfigDict:
  """Reads the config of a run.

  Keys that are missing from a config of an older version get their defaults.
  """
  path = config_path(workdir)
  if os.path.isfile(workdir):
    raise UserError(f"--workdir: {workdir} is a file; give the directory of a run")
  if not os.path.exists(path):
    raise UserError(f"{path} is missing; name the workdir of a run, or give --config")
  try:
    config = ConfigDict(read_json(path))
  except (ValueError, TypeError, AttributeError) as error:
    if isinstance(error, UserError):
      raise
    raise UserError(f"{path} is damaged ({error}); restore it") from error
  for key, block in config.items():
    _complete(key, block)
  for key, cls in SETTINGS.items():
    if key not in config:
      config[key] = _to_block(key, cls())
  return config


def check_model_of(workdir: str, config: ConfigDict, other_data: bool = False) -> None:
  """Checks that a config describes the model of a workdir's run; see `check_model`.

  Does nothing if the workdir has no config.
  """
  if os.path.exists(config_path(workdir)):
    was = of_workdir(workdir).to_dict()
    check_model(workdir, was, config.to_dict(), other_data)


def bring_up_to_date(workdir: str) -> None:
  """Adds missing keys to the config of an older run, so that the run can resume.

  Does nothing if there is no config.
  """
  path = config_path(workdir)
  if not os.path.exists(path):
    return
  completed = of_workdir(workdir).to_dict()
  if as_json(completed) != read_json(path):
    with held(workdir):
      write_json(path, completed)


def _complete(key: str, block: Any) -> None:
  """Adds missing keys to a block, in place, and turns its lists back into tuples."""
  if not isinstance(block, ConfigDict):
    return  # `build` reports the error
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
      values = tuple(block[name])  # JSON has no tuples, and flags cannot set lists.
      del block[name]  # otherwise the new value would be cast to a list
      block[name] = values


def _with_head_rate(whole: Experiment) -> Experiment:
  """Sets `head_lr_factor`, if it is not given, from `_TEXT_RATES` or else to 1."""
  if whole.train.head_lr_factor is not None:
    return whole
  is_text = hasattr(whole.data, "words")
  by_loss = _TEXT_RATES.get(
    _name_of("optimizer", whole.optimizer), _TEXT_RATES["adagrad"]
  )
  rate = by_loss.get(_name_of("loss", getattr(whole.head, "loss", None)))
  factor = rate / whole.train.lr if is_text and rate else 1.0
  train = dataclasses.replace(whole.train, head_lr_factor=factor)
  return dataclasses.replace(whole, train=train)


def _name_of(kind: str, value: Any) -> str:
  """The registry name of a part; '' if its class is not registered."""
  names = {cls: name for name, cls in REGISTRIES[kind].items()}
  return names.get(type(value), "")


def _shrink(whole: Experiment) -> Experiment:
  head: Any = whole.head
  fields = {"num_samples": 16} if "num_samples" in declared(type(head)) else {}
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
  return model.clone(
    **{key: _TINY[key] for key in _TINY.keys() & declared(type(model))}
  )


def _to_block(key: str, value: Any) -> ConfigDict:
  block = ConfigDict()
  if key in REGISTRIES:
    block.name = _name_of(key, value)
  for name in declared(type(value)):
    inner = getattr(value, name)
    if name == "optimizer":
      continue  # set by `build`
    block[name] = _to_block(name, inner) if dataclasses.is_dataclass(inner) else inner
  return block


def _build_block(path: str, block: Any, registry: Registry | None, cls: Any) -> Any:
  """Builds the part that a block describes: a class from a registry, or else `cls`."""
  if not isinstance(block, ConfigDict):
    raise UserError(f"{path} is {block!r}; it must be a block of keys")
  if registry:
    if "name" not in block:
      raise UserError(f"{path}.name is missing; it must be one of {listed(registry)}")
    cls = _choose(registry, block.name, f"{path}.name")
  fields = {n: what for n, what in declared(cls).items() if n != "optimizer"}
  _check_keys(path, block, [*fields, "name"] if registry else list(fields))
  values = {}
  for name, what in fields.items():
    place, value = f"{path}.{name}", block[name]
    if name in REGISTRIES:
      values[name] = _build_block(place, value, choices(cls, name), None)
    else:
      values[name] = what.read(place, value)
  return cls(**values)


def _check_keys(path: str, block: ConfigDict, keys: list[str]) -> None:
  for key in block:
    if key not in keys:
      raise UserError(f"{path}.{key} is not a known key{nearest(key, keys)}")
  for key in keys:
    if key not in block:
      raise UserError(f"{path}.{key} is missing; set it")


def _choose(registry: Registry, name: str, path: str) -> Any:
  if not isinstance(name, str) or name not in registry:
    raise UserError(f"{path} is {name!r:.99}; it must be one of {listed(registry)}")
  return registry[name]
