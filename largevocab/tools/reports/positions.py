"""Examples of held-out data, for reports on a trained model."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.data.base import HeldOutBatches
from largevocab.labels import Targets
from largevocab.training.activations import activations
from largevocab.training.input_rows import look_up
from largevocab.training.settings import Experiment
from largevocab.training.state import State


class Positions(NamedTuple):
  """Examples of held-out data.

  Attributes:
    x_ND: f32[N, D], activations.
    y: the true classes of the activations.
  """

  x_ND: jax.Array
  y: Targets

  def chunks(self, size: int) -> list["Positions"]:
    """The examples in chunks; the last may be smaller."""
    starts = range(0, len(self.x_ND), size)
    return [jax.tree.map(lambda a: a[s : s + size], self) for s in starts]  # noqa: B023


def positions_of(
  exp: Experiment, state: State, batches: HeldOutBatches, num: int, num_classes: int
) -> Positions:
  """`num` examples spread evenly over held-out data, or all if there are fewer.

  The network reads all the data, as in evaluation. Examples with fewer true classes
  than others are padded with `num_classes`.
  """
  total = sum(int((batch.y.w_NP.sum(axis=1) > 0).sum()) for batch in batches)
  wanted = np.unique(np.linspace(0, total - 1, min(num, total)).astype(np.int64))

  @jax.jit
  def network(params, table, head_state, carry, batch):
    rows_BTE = look_up(exp, table, head_state, batch.x)
    return activations(exp, params, rows_BTE, carry, batch)

  carry = exp.model.initial_carry(batches.batch_size)
  seen, parts = 0, []
  for batch in batches:
    h_ND, carry = network(state.params, state.inputs, state.head, carry, batch)
    real = np.flatnonzero(batch.y.w_NP.sum(axis=1) > 0)
    here = wanted[(wanted >= seen) & (wanted < seen + len(real))] - seen
    seen += len(real)
    rows = real[here]
    parts.append(jax.tree.map(lambda a: a[rows], (h_ND, batch.y)))  # noqa: B023
  widest = max(y.ids_NP.shape[1] for _, y in parts)

  def padded(y):
    missing = (0, 0), (0, widest - y.ids_NP.shape[1])
    ids_NP = np.pad(y.ids_NP, missing, constant_values=num_classes)
    return y._replace(ids_NP=ids_NP, w_NP=np.pad(y.w_NP, missing))

  parts = [(h_ND, padded(y)) for h_ND, y in parts]
  h_ND, y = jax.tree.map(lambda *a: jnp.concatenate(a), *parts)
  return Positions(h_ND, y)
