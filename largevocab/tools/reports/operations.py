"""Counts the operations of a program in matrix products."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax.extend import core


def operations(function: Callable[..., Any], *args: Any) -> float:
  """Additions and multiplications in all array products of a function.

  Elementwise operations, look-ups and sorts are not counted, since they are the smaller
  part of a training step. A loop counts as often as it runs with these arguments, and
  only the branch that is taken counts. The count does not depend on the device. The
  function is evaluated only if the number of products depends on values.

  Raises:
    ValueError: a loop of fixed length contains products whose number depends on values,
      which is not supported.

  >>> import jax.numpy as jnp
  >>> x_NK, w_KM = jnp.ones((5, 3)), jnp.ones((3, 2))
  >>> operations(lambda x_NK: x_NK @ w_KM, x_NK)
  60.0
  """
  closed = jax.make_jaxpr(function)(*args)
  if not any(map(_depends, closed.jaxpr.eqns)):
    return sum(map(_fixed, closed.jaxpr.eqns), 0.0)
  leaves = jax.tree.leaves(args)
  return _evaluated(closed.jaxpr, closed.consts, leaves)[0]


def _evaluated(
  jaxpr: core.Jaxpr, consts: Sequence[Any], args: Sequence[Any]
) -> tuple[float, list[Any]]:
  """Operations and results of a program with these arguments."""
  values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))
  read = lambda atom: atom.val if isinstance(atom, core.Literal) else values[atom]
  total = 0.0
  for equation in jaxpr.eqns:
    count, results = _of(equation, [read(atom) for atom in equation.invars])
    total += count
    values.update(zip(equation.outvars, results, strict=True))
  return total, [read(atom) for atom in jaxpr.outvars]


def _of(equation: core.JaxprEqn, args: list[Any]) -> tuple[float, list[Any]]:
  name, params = equation.primitive.name, equation.params
  if not _depends(equation):
    return _fixed(equation), _bound(equation, args)
  if name == "while":
    return _of_while(params, args)
  if name == "cond":
    branch = params["branches"][int(args[0])]
    return _evaluated(branch.jaxpr, branch.consts, args[1:])
  if name == "scan":
    raise ValueError(
      "a loop of fixed length contains one whose length depends on values"
    )
  (inner,) = _inner(params)
  return _evaluated(inner.jaxpr, inner.consts, args)


def _of_while(params: dict[str, Any], args: list[Any]) -> tuple[float, list[Any]]:
  test, body = params["cond_jaxpr"], params["body_jaxpr"]
  num_test, num_body = params["cond_nconsts"], params["body_nconsts"]
  of_test, rest = args[:num_test], args[num_test:]
  of_body, carry = rest[:num_body], rest[num_body:]
  total = 0.0
  while True:
    count, (goes_on,) = _evaluated(test.jaxpr, test.consts, [*of_test, *carry])
    total += count
    if not goes_on:
      return total, carry
    count, carry = _evaluated(body.jaxpr, body.consts, [*of_body, *carry])
    total += count


def _bound(equation: core.JaxprEqn, args: list[Any]) -> list[Any]:
  """The results of one equation."""
  params = equation.primitive.get_bind_params(equation.params)
  results = equation.primitive.bind(*args, **params)
  return results if equation.primitive.multiple_results else [results]


def _depends(equation: core.JaxprEqn) -> bool:
  """Whether an equation has products whose number depends on values."""
  if equation.primitive.name in ("while", "cond"):
    return any(_has_products(inner.jaxpr) for inner in _inner(equation.params))
  every = (each for inner in _inner(equation.params) for each in inner.jaxpr.eqns)
  return any(map(_depends, every))


def _has_products(jaxpr: core.Jaxpr) -> bool:
  inner = (each.jaxpr for equation in jaxpr.eqns for each in _inner(equation.params))
  own = any(equation.primitive.name == "dot_general" for equation in jaxpr.eqns)
  return own or any(map(_has_products, inner))


def _fixed(equation: core.JaxprEqn) -> float:
  """Operations of an equation in which their number does not depend on values."""
  if equation.primitive.name == "dot_general":
    left: Any = equation.invars[0].aval
    result: Any = equation.outvars[0].aval
    (contracted, _), _ = equation.params["dimension_numbers"]
    terms = math.prod(left.shape[axis] for axis in contracted)
    return 2.0 * math.prod(result.shape) * terms
  times = equation.params["length"] if equation.primitive.name == "scan" else 1
  every = (each for inner in _inner(equation.params) for each in inner.jaxpr.eqns)
  return times * sum(map(_fixed, every), 0.0)


def _inner(params: dict[str, Any]) -> Iterator[core.ClosedJaxpr]:
  """The programs inside an equation."""
  for value in params.values():
    for each in value if isinstance(value, tuple | list) else [value]:
      if isinstance(each, core.ClosedJaxpr):
        yield each
      elif isinstance(each, core.Jaxpr):
        yield core.ClosedJaxpr(each, ())
