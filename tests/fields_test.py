"""Bounds of fields are declared once, and every settings class enforces its own."""

import dataclasses
import functools
import math
from typing import Annotated

import flax.linen as nn
import numpy as np
import optax
import pytest
from ml_collections import ConfigDict

from largevocab import config as c, fields
from largevocab.errors import UserError
from largevocab.fields import (
  Between,
  Count,
  Positive,
  Seed,
  declared,
  declared_as,
  settings,
)
from largevocab.heads import Full, Sampled, Spherical
from largevocab.losses import NCE
from largevocab.rows import Adagrad
from largevocab.samplers import PPS
from largevocab.training.settings import Experiment

NAMED = {**c.REGISTRIES, **{key: {key: cls} for key, cls in c.SETTINGS.items()}}
CASES = [
  (key, name, field)
  for key, registry in NAMED.items()
  for name, cls in registry.items()
  for field, what in declared(cls).items()
  if what.kinds
]
HUGE = [math.nan, math.inf, -math.inf, 1e308, -1e308, 10**12, 10**25, 10**400, -(10**9)]


def rules_of(what: fields.Declared, cls=Between) -> list:
  """The rules of a field for its value, or for the elements of its tuple."""
  rules = what.element.rules if what.element else what.rules
  return [rule for rule in rules if isinstance(rule, cls)]


def kind_of(what: fields.Declared) -> type:
  kinds = (what.element or what).kinds
  return [kind for kind in kinds if kind is not type(None)][-1]


def ends(kind: type, rule: Between) -> tuple[list, list]:
  """The smallest and largest allowed numbers, and the numbers just beyond."""
  inside, outside = [], []
  for end, away in ((rule.least, -1), (rule.most, 1)):
    step = lambda n, end=end, away=away: (
      end + n * away if kind is int else float(np.nextafter(end, n * away * math.inf))
    )
    if end in rule.excluding:
      inside.append(step(-1))
      outside.append(end)
    else:
      inside.append(end)
      outside.append(step(1))
  return inside, outside


@functools.cache
def experiment(key: str, name: str) -> ConfigDict:
  """A config that contains this part with its defaults; shared by all its tests."""
  parts = {
    "data": c.part("data", "zipf"),
    "model": c.part("model", "linear"),
    "head": c.head("full"),
    "optimizer": c.part("optimizer", "sgd"),
  }
  if key == "logits":
    parts["head"] = c.head(f"full/{name}")
  elif key == "sampler":
    parts["head"] = c.head(f"sampled/{name}")
  elif key == "loss":
    words = {loss: word for word, loss in c.sampled_heads().items()}
    word = words.get(c.REGISTRIES["loss"][name])
    parts["head"] = c.head(f"{word}/pps" if word else f"spherical/{name}")
  elif key in c.REGISTRIES:
    parts[key] = c.part(key, name)
  return c.experiment(**parts)


def block_of(config: ConfigDict, key: str) -> tuple[str, ConfigDict]:
  if key in ("sampler", "loss", "logits"):
    return f"config.head.{key}", config.head[key]
  return f"config.{key}", config[key]


def put(block: ConfigDict, field: str, value) -> None:
  """Sets a field to a value of any type."""
  with block.unlocked():
    del block[field]
    block[field] = value


def message(make) -> str:
  try:
    make()
  except UserError as error:
    return str(error)
  return ""


def messages(key: str, name: str, field: str, value) -> tuple[tuple[str, str], ...]:
  """Pairs of a value's place and its message: in a config, and in code."""
  cls = NAMED[key][name]
  config = experiment(key, name)
  path, block = block_of(config, key)
  default = block[field]
  put(block, field, value)
  try:
    in_config = message(lambda: c.build(config))
  finally:
    put(block, field, default)
  in_code = message(lambda: cls(**{field: value}))
  return (f"{path}.{field}", in_config), (f"{cls.__name__}.{field}", in_code)


@pytest.mark.parametrize(("key", "name", "field"), CASES)
def test_value_out_of_bounds_is_refused_in_configs_and_code(key, name, field):
  what = declared(NAMED[key][name])[field]
  kind, wrap = kind_of(what), (lambda x: (x,)) if what.element else (lambda x: x)
  wrong = [object(), {}, b"x", 1j, *([] if type(None) in what.kinds else [None])]
  wrong += [] if str in what.kinds or what.element else ["", "1", "nan"]
  if kind in (int, float):
    wrong += [wrap(value) for value in (True, False, "x", *HUGE)]
    wrong += [wrap(2.5)] if kind is int else []
    (rule,) = rules_of(what)
    inside, outside = ends(kind, rule)
    wrong += map(wrap, outside)
    for value in map(wrap, inside):
      for where, said in messages(key, name, field, value):
        assert not said.startswith(f"{where} is "), said
  elif kind is bool:
    wrong += [0, 1, 1.0]
  elif kind is str:
    wrong += [wrap(3), True]
    wrong += ["no such" for rule in what.rules if isinstance(rule, fields.OneOf)]
    wrong += [wrap("") for rule in rules_of(what, fields.NotEmpty)]
  for value in wrong:
    for where, said in messages(key, name, field, value):
      assert said.startswith(f"{where} is "), (value, said)
      assert " must " in said
      assert "\n" not in said
      assert len(said) < 300, said


def test_every_number_of_every_part_has_bounds():
  numbers = 0
  for key, name, field in CASES:
    what = declared(NAMED[key][name])[field]
    if {int, float} & set((what.element or what).kinds):
      (rule,) = rules_of(what)
      assert -math.inf < rule.least < rule.most < math.inf
      numbers += 1
  assert numbers > 150
  kinds = {type(f.default) for f in dataclasses.fields(Experiment)}
  assert not {int, float} & kinds


@pytest.mark.parametrize(
  ("key", "name", "field", "value"),
  [
    ("model", "lstm", "layers", 100_000),
    ("model", "lstm", "hidden", 10**25),
    ("model", "lstm", "init_scale", math.nan),
    ("model", "lstm", "forget_bias", math.nan),
    ("head", "full", "init_scale", -1.0),
    ("head", "sampled", "num_samples", 3_000_000_000),
    ("head", "sampled", "exact_frequent", 10**12),
    ("sampler", "lsh_embedding", "codes", 10**12),
    ("sampler", "ivf", "iterations", 10**12),
    ("sampler", "block", "smoothing", -1.0),
    ("sampler", "block", "smoothing", math.nan),
    ("sampler", "pps", "smoothing", math.inf),
    ("sampler", "unigram", "power", math.inf),
    ("sampler", "quadratic", "dense_levels", -2),
    ("sampler", "quadratic", "dense_levels", 10**12),
    ("optimizer", "adam", "b1", 2.0),
    ("optimizer", "adam", "b1", math.nan),
    ("optimizer", "adam", "b2", 1.0),
    ("optimizer", "adam", "eps", -1.0),
    ("optimizer", "adam", "eps", 0.0),
    ("optimizer", "adagrad", "initial_accumulator", math.nan),
    ("optimizer", "momentum", "momentum", math.nan),
    ("data", "zipf", "coupling", 1e308),
    ("data", "zipf", "exponent", math.nan),
    ("data", "softmax_regression", "scale", 1e308),
    ("data", "text", "valid_share", math.nan),
    ("train", "train", "seed", 2**63),
    ("train", "train", "epochs", 1e308),
    ("eval", "eval", "precision_k", (1, 1)),
    ("eval", "eval", "propensity_a", math.inf),
    ("eval", "eval", "batch_size", 10**9),
  ],
)
def test_values_that_cannot_run_are_refused_at_once(key, name, field, value):
  for where, said in messages(key, name, field, value):
    assert said.startswith(f"{where} is "), said


def test_message_names_the_bound_that_is_violated():
  @settings
  class Draws:
    num: Count = 1
    rate: Positive = 1.0
    shares: Annotated[tuple[fields.ProperShare, ...], fields.Ascending()] = ()

  says = lambda **values: message(lambda: Draws(**values))
  assert says(num=0) == "Draws.num is 0; it must be at least 1"
  assert says(num=2**31) == "Draws.num is 2147483648; it must be at most 2147483647"
  assert says(num=True) == "Draws.num is True; it must be of type int"
  assert says(rate=0) == "Draws.rate is 0; it must be above 0"
  assert says(rate=math.nan) == "Draws.rate is nan; it must be a finite number"
  assert says(shares=(0, 0.5)) == "Draws.shares is (0, 0.5); each must be above 0"
  assert says(shares=(0.5, 0.5)) == "Draws.shares is (0.5, 0.5); they must ascend"
  assert says(shares=0.5) == "Draws.shares is 0.5; it must be of type tuple"
  assert says(num=-(10**5000)).startswith("Draws.num is a whole number of 16610 bits;")


def test_values_take_the_declared_type():
  @settings
  class Draws:
    num: Count = 1
    rate: Positive = 1.0
    ks: tuple[Count, ...] = ()
    named: Annotated[str | None, fields.NotEmpty()] = None

  made = Draws(num=np.int64(3), rate=2, ks=[1, np.int32(5)])
  assert made == Draws(3, 2.0, (1, 5))
  kinds = [type(value) for value in (made.num, made.rate, made.ks, made.ks[1])]
  assert kinds == [int, float, tuple, int]
  assert dataclasses.replace(made, num=4).num == 4
  with pytest.raises(UserError, match=r"Draws\.named is ''; it must not be empty"):
    Draws(named="")


@pytest.mark.parametrize(
  "annotation", [int, float, "int", int | None, tuple, tuple[float, ...]]
)
def test_number_without_bounds_cannot_be_declared(annotation):
  with pytest.raises(TypeError, match=r"Draws\.num: declare the bounds"):

    @settings
    class Draws:
      num: annotation

  with pytest.raises(TypeError, match=r"Net\.num: declare the bounds"):

    @settings
    class Net(nn.Module):
      num: annotation


def test_bounds_have_two_finite_ends():
  for least, most in [(0, math.inf), (-math.inf, 0), (1, 0), (math.nan, 1)]:
    with pytest.raises(TypeError, match="must have finite bounds, with least <= most"):
      Between(least, most)


def test_subclasses_keep_the_bounds_of_their_bases():
  """Includes plain dataclasses, and several fields with rules."""
  seen = []

  @settings
  class Base:
    num: Count = 1

    def __post_init__(self):
      seen.append(self.num)

  @settings
  class Sub(Base):
    seed: Seed = 0

    def __post_init__(self):
      super().__post_init__()
      seen.append(self.seed)

  @dataclasses.dataclass(frozen=True)
  class Plain(Base):
    share: float = 0.5  # without bounds: finite is all that is asked

  Sub(num=2, seed=5)
  assert seen == [2, 5]
  for cls in (Sub, Plain):
    with pytest.raises(UserError, match=rf"^{cls.__name__}\.num is 0; it must"):
      cls(num=0)
  assert seen == [2, 5]
  assert Plain(share=-3).share == -3
  with pytest.raises(UserError, match=r"^Plain\.share is nan; it must be a finite"):
    Plain(share=math.nan)


def test_a_run_has_no_more_steps_than_can_be_numbered():
  with pytest.raises(UserError, match=r"train\.epochs is 1000000000\.0.*max_steps"):
    c.Training(epochs=1e9).num_steps(100)
  assert c.Training(epochs=1e9, max_steps=3).num_steps(100) == 3
  assert c.Training(decay=10.0, hold_epochs=0).learning_rate(10**6, 1) == math.inf


@pytest.mark.parametrize(
  ("head", "field", "value", "says"),
  [
    (Sampled, "sampler", "pps", r"is 'pps'; it must be a Sampler, such as PPS\(\)"),
    (Sampled, "sampler", PPS, r"is <class .*>; it must be an object: PPS\(\)"),
    (Sampled, "sampler", None, "is None; it must be a Sampler"),
    (Sampled, "loss", "nce", r"is 'nce'; it must be a SampledLoss, such as .*NCE\(\)"),
    (Sampled, "logits", "cosine", r"must be a Logits, such as Linear\(\)"),
    (
      Sampled,
      "optimizer",
      optax.adam(1.0),
      r"must be a RowOptimizer, .* OptaxRows\(\)",
    ),
    (Full, "optimizer", Adagrad, r"it must be an object: Adagrad\(\)"),
    (Spherical, "loss", NCE(), r"must be a SphericalLoss, such as TaylorSoftmax\(\)"),
  ],
)
def test_part_of_the_wrong_kind_is_named(head, field, value, says):
  with pytest.raises(UserError, match=rf"{head.__name__}\.{field} .*{says}"):
    head(**{field: value})


@pytest.mark.parametrize("annotation", [str, tuple[str, ...]])
def test_text_that_is_not_unicode_is_refused(annotation):
  value = "a\udcff" if annotation is str else ("a", "a\udcff")
  with pytest.raises(UserError, match=r"data\.cache_dir is .*must be in UTF-8"):
    declared_as(annotation).read("data.cache_dir", value)


def test_minus_zero_becomes_zero():
  read = declared_as(Annotated[float, Between(0, 1)]).read("x", -0.0)
  assert math.copysign(1, read) == 1
