"""Decoupled weight decay of rows, each of which is brought up to date when touched.

Dense decay multiplies every row by 1 - lr_t mu in step t. A row that is not touched in
steps s, ..., t - 1 is multiplied by the product of their factors in one go:

  w <- w exp(L_t - L_s),   L_t = sum over steps i < t of log(1 - lr_i mu)

L_t is one number for the table, and L_s one for each row. Both are sums of two floats.
The second has what the first rounds away: otherwise small terms would be lost after
many steps. A term of 1 or more is taken as `_MOST`, since a row cannot be multiplied by
less than 0.

Cost: two floats a row.
"""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

_MOST = 1 - 1e-6  # largest share of a row that a step may take away
_NAMES = ("log_decay", "log_decay_rest")


def init_slots(w_VD: jax.Array) -> dict[str, jax.Array]:
  """Scalars of the table and arrays of its rows, all 0.

  >>> [(name, slot.shape) for name, slot in init_slots(jnp.ones((3, 2))).items()][:2]
  [('log_decay', ()), ('log_decay_V', (3,))]
  """
  num, slots = len(w_VD), {}
  for name in _NAMES:
    slots[name] = jnp.zeros((), w_VD.dtype)
    slots[f"{name}_V"] = jnp.zeros(num, w_VD.dtype)
  return slots


def fraction(lr: ArrayLike, decay: float) -> jax.Array:
  """The share of a row that a step takes away: lr mu, below 1."""
  return jnp.minimum(jnp.asarray(lr) * decay, _MOST)


def pending(rows: dict[str, jax.Array], shared: dict[str, jax.Array]) -> jax.Array:
  """The factor by which each row has yet to be multiplied, f[R].

  Args:
    rows: state of these rows, as in `init_slots`.
    shared: scalars of the table.
  """
  since = (shared[name] - rows[f"{name}_V"] for name in _NAMES)
  return jnp.exp(sum(since))


def after(
  shared: dict[str, jax.Array], lr: ArrayLike, decay: float
) -> dict[str, jax.Array]:
  """The scalars after one more step.

  >>> slots = init_slots(jnp.ones((1, 1)))
  >>> slots = after(after(slots, lr=0.5, decay=1.0), lr=0.75, decay=1.0)
  >>> round(float(jnp.exp(slots["log_decay"])), 6)  # 1/2 * 1/4
  0.125
  """
  total, rest = (shared[name] for name in _NAMES)
  term = rest + jnp.log1p(-fraction(lr, decay)).astype(total.dtype)
  new = total + term
  return dict(zip(_NAMES, (new, term - (new - total)), strict=True))


def up_to_date(num: int, shared: dict[str, jax.Array]) -> dict[str, jax.Array]:
  """The state of `num` rows that have been multiplied by all factors so far.

  {} for a table without decay.
  """
  names = [name for name in _NAMES if name in shared]
  return {f"{name}_V": jnp.full(num, shared[name]) for name in names}


def touched(
  rows: dict[str, jax.Array], shared: dict[str, jax.Array]
) -> dict[str, jax.Array]:
  """`up_to_date`, for rows whose state was read in the same step.

  NaN stays NaN. Because of this, a compiler reads a state before it writes the next
  one, and needs no copy of the table.

  Args: as in `pending`.

  >>> slots = init_slots(jnp.ones((1, 1))) | {"log_decay": jnp.float32(-0.5)}
  >>> touched(slots, slots)["log_decay_V"].tolist()
  [-0.5]
  """
  new = up_to_date(len(rows[f"{_NAMES[0]}_V"]), shared)
  return {name: jnp.where(jnp.isnan(rows[name]), rows[name], new[name]) for name in new}
