"""Activations as heads are given them: their width, rank and type."""

from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import AxisType
from jax.tree_util import GetAttrKey

from largevocab.errors import UserError
from largevocab.fields import Count, settings
from largevocab.ops.shapes import check_shapes

State = TypeVar("State", bound=type)


@settings
class Activations:
  """The activations that rows were made to be multiplied with.

  The rows alone do not tell: a bias and padding make them wider.

  Attributes:
    dim: D, the width of h.
  """

  dim: Count


def knows_activations(state: State) -> State:
  """Makes the field `activations` of a named tuple a part of its structure.

  As a node of its own, without arrays, it would be missing in checkpoints of states
  that had no such field.

  >>> from typing import NamedTuple
  >>> @knows_activations
  ... class Rows(NamedTuple):
  ...   w_VD: jax.Array
  ...   activations: Activations | None = None
  >>> jax.tree.map(jnp.shape, Rows(jnp.ones((3, 8)), Activations(5)))
  Rows(w_VD=(3, 8), activations=Activations(dim=5))
  """
  names = [name for name in state._fields if name != "activations"]  # pyrefly: ignore
  nodes = lambda x: [(GetAttrKey(name), getattr(x, name)) for name in names]
  jax.tree_util.register_pytree_with_keys(
    state,
    lambda x: (nodes(x), x.activations),
    lambda given, nodes: state(*nodes, given),
  )
  return state


def check_mesh(x: jax.Array) -> None:
  """Refuses an array whose type has axes of a mesh, which heads do not support.

  Raises:
    UserError: the mesh has Explicit axes, as `jax.make_mesh` makes them by default, or
      the array varies over axes of the caller's own `jax.shard_map`.
  """
  if not isinstance(x, jax.Array):
    return
  aval = jax.typeof(x)
  mesh = aval.sharding.mesh
  explicit = [
    name
    for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True)
    if kind == AxisType.Explicit
  ]
  if explicit:
    raise UserError(
      f"h_ND or y is on a mesh with Explicit axes {explicit}: make the mesh with "
      "jax.make_mesh(shape, names, axis_types=(jax.sharding.AxisType.Auto,) * "
      "len(names))"
    )
  # JAX has changed the name of this attribute before.
  varying = getattr(getattr(aval, "manual_axis_type", None), "varying", ())
  if varying:
    raise UserError(
      f"h_ND or y varies over {sorted(varying)} in your jax.shard_map: pass "
      "check_vma=False to jax.shard_map"
    )


def activations(h_ND: jax.Array, given: Activations | None = None) -> jax.Array:
  """h as a JAX array, if a head can multiply it.

  Args:
    h_ND: float[N, D].
    given: activations that the head was made for; None: of any width.

  Raises:
    ValueError: h is not a matrix.
    UserError: h has another type or width, or no example; or see `check_mesh`.

  >>> activations(jnp.ones((2, 9)), Activations(8))
  Traceback (most recent call last):
  ...
  largevocab.errors.UserError: h_ND has 9 columns, but the head was made for dim=8: \
pass activations of that width, or call init with dim=9
  """
  check_shapes(h_ND=h_ND)
  check_mesh(h_ND)
  if not jnp.issubdtype(h_ND.dtype, jnp.floating):
    raise UserError(f"h_ND is {h_ND.dtype}: pass activations of a float type")
  num, width = h_ND.shape
  if not num:
    raise UserError(
      "h_ND has no rows: pass at least one example, with weight 0 if necessary"
    )
  if given is not None and width != given.dim:
    raise UserError(
      f"h_ND has {width} columns, but the head was made for dim={given.dim}: pass "
      f"activations of that width, or call init with dim={width}"
    )
  return jnp.asarray(h_ND)
