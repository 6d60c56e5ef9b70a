"""Dataclasses with validated fields, whose bounds are declared in annotations.

  @settings
  class RowNorm:
    floor: Annotated[float, Between(1e-30, 1e6)] = 1e-3

All parts of a config are such classes: heads, samplers, optimisers, networks and data
sets. A value out of bounds raises a one-line error that names the field, both in a
config (`config.head.sampler.floor is -1.0; it must be at least 1e-30`) and in code
(`RowNorm.floor is ...`). Bounds only exclude values that cannot work. They do not
recommend values.
"""

import abc
import dataclasses
import functools
import inspect
import itertools
import sys
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Protocol

import numpy as np

from largevocab.errors import UserError

_MOST_FLOAT = sys.float_info.max
_LONGEST = 80  # maximum number of characters of a value in a message
_OF_FLAX = ("parent", "name")  # fields that flax adds to modules
_ACCEPTED: dict[type, tuple[type, ...]] = {
  bool: (bool, np.bool_),
  int: (int, np.integer),
  float: (float, int, np.floating, np.integer),
  str: (str,),
  tuple: (tuple, list),
}


class Rule(Protocol):
  """A constraint on the values of a field, given in its annotation."""

  def problem(self, value: Any) -> str:
    """Describes the violation, as in 'must be at least 1'; '' if there is none."""
    ...


@dataclasses.dataclass(frozen=True)
class Between:
  """Numbers from `least` to `most`, except those in `excluding`.

  >>> Between(0, 1).problem(0.5), Between(0, 1, excluding=(0,)).problem(0.0)
  ('', 'must be above 0')
  >>> Between(0, 1).problem(float("nan"))
  'must be a finite number'
  """

  least: float
  most: float
  excluding: tuple[float, ...] = ()

  def __post_init__(self):
    if not -np.inf < self.least <= self.most < np.inf:
      raise TypeError(f"{self} must have finite bounds, with least <= most")

  def problem(self, value: float) -> str:
    if value != value:
      return "must be a finite number"
    if value < self.least or value == self.least in self.excluding:
      return f"must be {self._end(self.least, 'above', 'at least')}"
    if value > self.most or value == self.most in self.excluding:
      return f"must be {self._end(self.most, 'below', 'at most')}"
    return f"must not be {value}" if value in self.excluding else ""

  def _end(self, end: float, without: str, within: str) -> str:
    return f"{without if end in self.excluding else within} {end}"


@dataclasses.dataclass(frozen=True, init=False)
class OneOf:
  """One of the given values.

  >>> OneOf("cpu", "accelerator").problem("gpu")
  'must be one of cpu, accelerator'
  """

  values: tuple[Any, ...]

  def __init__(self, *values: Any):
    object.__setattr__(self, "values", values)

  def problem(self, value: Any) -> str:
    if value in self.values:
      return ""
    return f"must be one of {', '.join(map(str, self.values))}"


@dataclasses.dataclass(frozen=True)
class Ascending:
  """Strictly increasing numbers."""

  def problem(self, value: tuple[float, ...]) -> str:
    is_rise = (a < b for a, b in itertools.pairwise(value))
    return "" if all(is_rise) else "must ascend"


@dataclasses.dataclass(frozen=True)
class Distinct:
  """Values without duplicates."""

  def problem(self, value: tuple[Any, ...]) -> str:
    return "" if len(set(value)) == len(value) else "must differ from each other"


@dataclasses.dataclass(frozen=True)
class NotEmpty:
  """A non-empty string."""

  def problem(self, value: str) -> str:
    return "" if value else "must not be empty"


@dataclasses.dataclass(frozen=True)
class Part:
  """An instance of an abstract class, or an object with the methods of a protocol.

  Attributes:
    kind: the class or protocol.
    default: function that makes the default object.
  """

  kind: type
  default: Any = None

  def problem(self, value: Any) -> str:
    if isinstance(value, type):
      return f"must be an object: {value.__name__}()"
    if isinstance(value, self.kind):
      return ""
    makers = self.kind.__subclasses__() if inspect.isabstract(self.kind) else []
    makers = makers or [self.default or self.kind]
    names = ", ".join(f"{make.__name__}()" for make in makers)
    return f"must be a {self.kind.__name__}, such as {names}"


MOST = 2**31 - 1  # largest count, since ids and shapes are i32
Count = Annotated[int, Between(1, MOST)]
CountOrNone = Annotated[int, Between(0, MOST)]
# Step numbers with offsets are folded into random keys, and must be below 2**32.
MOST_STEPS = 2**30
Steps = Annotated[int, Between(1, MOST_STEPS)]
StepsOrNever = Annotated[int, Between(0, MOST_STEPS)]
BatchSize = Annotated[int, Between(1, 2**20)]
Unroll = Annotated[int, Between(1, 2**16)]
Layers = Annotated[int, Between(1, 100)]  # each is compiled
History = Annotated[int, Between(1, 1024)]  # most recent inputs of an example
Dropout = Annotated[float, Between(0, 1, excluding=(1,))]
Width = Annotated[int, Between(1, 2**16)]  # columns of a matrix
# jax.random.key ignores all but the lowest 32 bits.
Seed = Annotated[int, Between(0, 2**32 - 1)]
Share = Annotated[float, Between(0, 1)]
ProperShare = Annotated[float, Between(0, 1, excluding=(0, 1))]
Positive = Annotated[float, Between(0, 1_000_000, excluding=(0,))]
NonNegative = Annotated[float, Between(0, 1_000_000)]
Eps = Annotated[float, Between(1e-30, 1000)]  # added to quantities that must not be 0
InitScale = Annotated[float, Between(0, 1000)]
InputScale = Annotated[float, Between(0, 1000, excluding=(0,))]  # rows of 0 are missing
MemoryMibOrDefault = Annotated[int, Between(0, 2**20)]
Dtype = Annotated[str, OneOf("float32", "bfloat16")]
FileName = Annotated[str, NotEmpty()]


@dataclasses.dataclass(frozen=True)
class Declared:
  """Type and constraints of a field, from its annotation.

  Attributes:
    kinds: allowed types, among bool, int, float, str, tuple and NoneType; if empty, any
      type that the rules allow.
    rules: constraints that values must satisfy.
    element: type and constraints of the elements of a tuple.
  """

  kinds: tuple[type, ...] = ()
  rules: tuple[Rule, ...] = ()
  element: "Declared | None" = None

  def read(self, where: str, value: Any) -> Any:
    """Converts a value to the declared type: an int to a float, a list to a tuple.

    Raises:
      UserError: the value has the wrong type or violates a constraint; the message
        names `where`.

    >>> declared_as(float).read("x", 1), declared_as(Count).read("n", 2)
    (1.0, 2)
    """
    value, problem = self._read(value)
    if problem:
      raise UserError(f"{where} is {shown(value)}; {problem}")
    return value

  def _read(self, value: Any) -> tuple[Any, str]:
    if not self.kinds:
      problems = (rule.problem(value) for rule in self.rules)
      return value, next((f"it {problem}" for problem in problems if problem), "")
    if value is None and types.NoneType in self.kinds:
      return value, ""
    kind = next((k for k in self.kinds if _is_of(value, k)), None)
    if kind is None:
      return value, _of_type(*self.kinds)
    plural = kind is tuple
    if self.element is not None and plural:
      read = [self.element._read(each) for each in value]
      for _, problem in read:
        if problem:
          return value, problem.replace("it must", "each must", 1)
      value = tuple(each for each, _ in read)
    if isinstance(value, str) and not _is_unicode(value):
      return value, "it must be in UTF-8"
    for rule in self.rules:  # before the cast, which fails for huge numbers
      if problem := rule.problem(value):
        return value, f"{'they' if plural else 'it'} {problem}"
    if kind is float and not self.rules and not abs(value) <= _MOST_FLOAT:
      return value, "it must be a finite number"
    if kind is float and value == 0:
      return 0.0, ""  # some functions treat -0.0 as negative
    return (value if type(value) is kind else kind(value)), ""


def declared_as(annotation: Any) -> Declared:
  """Parses an annotation; only plain types are constrained.

  >>> declared_as(tuple[Count, ...]).element.rules
  (Between(least=1, most=2147483647, excluding=()),)
  """
  rules: tuple[Rule, ...] = ()
  if typing.get_origin(annotation) is Annotated:
    annotation, *given = typing.get_args(annotation)
    rules = tuple(given)
  if typing.get_origin(annotation) is tuple:
    kind, *more = typing.get_args(annotation)
    return Declared((tuple,), rules, declared_as(kind) if more == [...] else None)
  is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
  kinds = typing.get_args(annotation) if is_union else (annotation,)
  if not all(kind in _ACCEPTED or kind is types.NoneType for kind in kinds):
    return Declared()
  return Declared(kinds, rules)


@functools.cache
def declared(cls: type) -> dict[str, Declared]:
  """The declared fields of a settings class, or of any other dataclass.

  >>> [*declared(Between)]
  ['least', 'most', 'excluding']
  """
  found = {}
  for field in dataclasses.fields(cls):
    if not field.init or field.name in _OF_FLAX:
      continue
    annotation: Any = field.type
    if isinstance(annotation, str):  # from __future__ import annotations
      annotation = typing.get_type_hints(cls, include_extras=True)[field.name]
    what = declared_as(annotation)
    if _is_interface(annotation):
      default = field.default_factory
      made_by = default if isinstance(default, type) else None
      what = Declared(rules=(Part(annotation, made_by),))
    found[field.name] = what
  return found


def check_bounds(cls: type) -> None:
  """Raises TypeError if a number has no declared bounds, or a tuple no element type."""
  for name, what in declared(cls).items():
    for part in (what, what.element or Declared()):
      is_number = {int, float} & set(part.kinds)
      is_tuple_of_what = tuple in part.kinds and part.element is None
      if (is_number and not part.rules) or is_tuple_of_what:
        raise TypeError(
          f"{cls.__name__}.{name}: declare the bounds of its numbers, as in "
          "Annotated[int, Between(1, 64)]; see largevocab.fields"
        )


def enforce(instance: Any) -> None:
  """Validates the fields of a settings instance, and converts them to their types.

  Raises:
    UserError: a value violates its declaration; the message names class and field.
  """
  for name, what in declared(type(instance)).items():
    value = getattr(instance, name)
    read = what.read(f"{type(instance).__name__}.{name}", value)
    if read is not value:
      object.__setattr__(instance, name, read)


@typing.dataclass_transform(
  frozen_default=True, field_specifiers=(dataclasses.field, dataclasses.Field)
)
def settings(cls: type | None = None, /, **options: Any) -> Any:
  """Makes a frozen dataclass, or a flax module, with validated fields.

  Fields are validated before the class's `__post_init__` runs, which therefore only
  needs to check constraints between fields.

  Args:
    cls: the class.
    **options: arguments of `dataclasses.dataclass`, as in `@settings(kw_only=True)`.

  Raises:
    TypeError: a numeric field has no declared bounds.

  >>> @settings
  ... class Draws:
  ...   num: Count = 512
  >>> Draws(2.5)
  Traceback (most recent call last):
  ...
  largevocab.errors.UserError: Draws.num is 2.5; it must be of type int
  """
  if cls is None:
    return functools.partial(settings, **options)
  inner: Callable[[Any], None] = getattr(cls, "__post_init__", lambda self: None)

  def post_init(self):
    enforce(self)
    inner(self)

  cls.__post_init__ = post_init  # pyrefly: ignore
  if "__dataclass_fields__" not in vars(cls):  # flax makes its modules dataclasses
    cls = dataclasses.dataclass(frozen=True, **options)(cls)
  check_bounds(cls)
  return cls


def parse(where: str, text: str, kind: type) -> Any:
  """Converts a string to a plain type; for a bool, the empty string is True.

  Raises:
    UserError: the string is not a value of this type; the message names `where`.

  >>> parse("power", "0.75", float), parse("bias", "false", bool)
  (0.75, False)
  """
  try:
    if kind is bool:
      return {"": True, "true": True, "1": True, "false": False, "0": False}[
        text.lower()
      ]
    return kind(text)
  except (KeyError, ValueError):
    raise UserError(f"{where} is {shown(text)}; {_of_type(kind)}") from None


def shown(value: Any) -> str:
  """A value as shown in messages: its `repr`, on one line of limited length.

  >>> shown(0.5), len(shown("a" * 1000))
  ('0.5', 80)
  """
  try:
    text = repr(value)
  except ValueError:  # Python does not print integers of more than 4,300 digits
    text = f"a whole number of {value.bit_length()} bits"
  text = " ".join(text.split())
  return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _of_type(*kinds: type) -> str:
  return f"it must be of type {' or '.join(kind.__name__ for kind in kinds)}"


def _is_unicode(text: str) -> bool:
  """Whether a string can be encoded in UTF-8; a command line may hold other bytes."""
  try:
    text.encode()
  except UnicodeEncodeError:
    return False
  return True


def _is_interface(kind: Any) -> bool:
  """Whether `kind` is an abstract class, or a protocol that supports `isinstance`."""
  try:
    return isinstance(kind, abc.ABCMeta) and not isinstance(None, kind)
  except TypeError:  # a protocol that is not `runtime_checkable`
    return False


def _is_of(value: Any, kind: type) -> bool:
  if isinstance(value, bool | np.bool_) and kind is not bool:
    return False
  return isinstance(value, _ACCEPTED.get(kind, ()))
