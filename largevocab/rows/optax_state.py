"""An optax transformation on few rows of a table.

From its state on a [V, D] table, arrays of V rows are kept with the rows. The rest must
follow from the number of updates: integers are this number, like the counts of Adam and
of schedules, and other numbers are constants.
"""

import functools
import itertools
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from largevocab.errors import UserError

PyTree = Any
_V, _D = 140, 130  # size of the table for trials: some transformations factor these
_SUBSETS = ((0, 2, 5), (4,))
_SCALES = (1.0, 1e3, 1e-2, 1.0)  # of its gradients: norms are above and below any bound


def init_slots(
  tx: optax.GradientTransformation, w_VD: jax.Array
) -> dict[str, jax.Array]:
  """The part of the initial state that belongs to rows, by name.

  >>> sorted(init_slots(optax.scale_by_adam(), jnp.ones((4, 2))))
  ['1_mu', '2_nu']
  """
  slots = dict(itertools.compress(_named(tx.init(w_VD)), _is_row(tx, w_VD)))
  for name, slot in slots.items():
    if slot.shape[:1] != w_VD.shape[:1]:
      raise UserError(
        f"the optax transformation keeps {name}, of shape {slot.shape} for "
        f"{len(w_VD)} rows, which is not a state of each row"
      )
  return slots


def step(
  tx: optax.GradientTransformation,
  g_RD: jax.Array,
  w_RD: jax.Array,
  slots: dict[str, jax.Array],
  count: jax.Array,
) -> tuple[jax.Array, dict[str, jax.Array]]:
  """The updates of these rows and their new state.

  Args:
    tx: a transformation that `check` accepts.
    g_RD: gradient of the rows.
    w_RD: the rows.
    slots: their state.
    count: i32[], number of updates of the table so far.
  """
  initial = tx.init(jnp.zeros((1, w_RD.shape[1]), w_RD.dtype))
  at_count = ((name, _at(leaf, count)) for name, leaf in _named(initial))
  leaves = [slots.get(name, leaf) for name, leaf in at_count]
  state = jax.tree.unflatten(jax.tree.structure(initial), leaves)
  updates, state = tx.update(g_RD, state, w_RD)
  updates_RD: Any = updates
  return updates_RD, {name: leaf for name, leaf in _named(state) if name in slots}


@functools.lru_cache(maxsize=64)
def check(tx: optax.GradientTransformation) -> None:
  """Tries a transformation on few rows and on all rows of a table, over some steps.

  Both start from the same state and get gradients of very different size.

  Raises:
    UserError: it mixes rows, keeps state that neither belongs to rows nor follows from
      the number of updates, or does not run.

  >>> check(optax.clip_by_global_norm(1.0))
  Traceback (most recent call last):
  ...
  largevocab.errors.UserError: the optax transformation mixes rows: its update of some
  rows depends on other rows, as with clipping by a global norm or matrices that are
  factored or orthogonalised; only transformations that treat each row on its own can
  update touched rows alone
  """
  with jax.ensure_compile_time_eval():
    try:
      _try(tx)
    except UserError:
      raise
    except Exception as error:  # from the transformation's own code
      why = (str(error).splitlines() or [type(error).__name__])[0][:200]
      raise UserError(
        f"the optax transformation cannot update rows ({why}); it gets their gradient, "
        "their state and the rows themselves"
      ) from error


def _try(tx):
  rng = np.random.default_rng(0)
  draw = lambda scale: jnp.asarray(scale * rng.standard_normal((_V, _D)), jnp.float32)
  update, on_rows = jax.jit(tx.update), jax.jit(functools.partial(step, tx))
  w_VD = draw(1.0)
  first = state = tx.init(w_VD)
  is_row = _is_row(tx, w_VD)
  of_rows = lambda state: dict(itertools.compress(_named(state), is_row))
  shared = lambda state: itertools.compress(_named(state), map(operator.not_, is_row))
  for count, scale in enumerate(_SCALES):
    g_VD, before = draw(scale), of_rows(state)
    updates_VD, state = update(g_VD, state, w_VD)
    for (name, was), (_, leaf) in zip(shared(first), shared(state), strict=True):
      if not _equal(leaf, _at(was, count + 1)):
        raise UserError(
          f"the optax transformation keeps {name}, which is neither a state of each "
          "row nor a count of all updates nor constant; leave out that part (learning "
          "rates are an argument of `update`, and `accumulate` adds gradients of "
          "batches)"
        )
    for ids in map(np.array, _SUBSETS):
      slots = {name: slot[ids] for name, slot in before.items()}
      new = on_rows(g_VD[ids], w_VD[ids], slots, jnp.int32(count))
      of_all = updates_VD, of_rows(state)
      wanted = jax.tree.map(lambda x, ids=ids: x[ids], of_all)
      if not all(map(_equal, jax.tree.leaves(new), jax.tree.leaves(wanted))):
        raise UserError(
          "the optax transformation mixes rows: its update of some rows depends on "
          "other rows, as with clipping by a global norm or matrices that are factored "
          "or orthogonalised; only transformations that treat each row on its own can "
          "update touched rows alone"
        )


def _equal(some, wanted) -> bool:
  some, wanted = _numbers(some), _numbers(wanted)
  if some.shape != wanted.shape:
    return False
  largest = np.max(np.abs(wanted), initial=0)
  return np.allclose(some, wanted, rtol=1e-4, atol=1e-6 * largest)


def _numbers(leaf) -> np.ndarray:
  is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
  return np.asarray(jax.random.key_data(leaf) if is_key else leaf, np.float64)


def _at(initial, count):
  """State that does not belong to rows, after `count` updates."""
  is_count = jnp.issubdtype(initial.dtype, jnp.integer) and not initial.shape
  return jnp.asarray(count, initial.dtype) if is_count else initial


def _is_row(tx, w_RD) -> list[bool]:
  """For each leaf of the state of a large table, whether it has a row for each row.

  Raises:
    UserError: a leaf depends on the number of rows in another way.
  """
  like = lambda num: jax.eval_shape(
    tx.init, jax.ShapeDtypeStruct((num, w_RD.shape[1]), w_RD.dtype)
  )
  found = []
  many = jax.tree.leaves(like(_V + 1))
  for (name, few), more in zip(_named(like(_V)), many, strict=True):
    found.append(few.shape != more.shape)
    if found[-1] and (few.shape[0], *more.shape) != (_V, _V + 1, *few.shape[1:]):
      raise UserError(
        f"the optax transformation keeps {name}, of shape {few.shape} for {_V} rows, "
        "which is not a state of each row"
      )
  return found


def _named(state: PyTree) -> list[tuple[str, Any]]:
  """The leaves of a state with distinct names."""
  leaves = jax.tree_util.tree_leaves_with_path(state)
  name = lambda path: jax.tree_util.keystr(path[-1:], simple=True)
  return [(f"{i}_{name(path)}", leaf) for i, (path, leaf) in enumerate(leaves)]
