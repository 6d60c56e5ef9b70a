"""Row-wise optimisers from optax: any transformation in code, and some by name."""

import optax

from largevocab.fields import Eps, NonNegative, settings
from largevocab.rows import optax_state
from largevocab.rows.optimizers import Decay, RowOptimizer


@settings
class OptaxRows(RowOptimizer):
  """Any optax transformation that treats each row on its own, lazily.

  A step gathers the touched rows of the table and of the transformation's state, calls
  `tx.update` on them, and writes them back. If every step touches all rows, it is `tx`
  on the whole table. For a row that a step does not touch:

  - the state stays as it is. Moments, averages and accumulators do not decay in the
    steps in between (those of `Adam` do), and momentum does not move the row;
  - decay in `tx` itself, as in `optax.adamw`, is left out. For dense decay, set
    `decoupled_decay`, and use a `tx` without decay;
  - counts are those of all updates of the table, also for bias corrections and
    schedules. If a row is touched late for the first time, its moments are therefore
    small and no longer corrected for that, as in `Adam`.

  A network is given `tx` as it is.

  Attributes:
    tx: the transformation at learning rate 1; the learning rate is an argument of
      `update`: `optax.lion(1.0)`, `optax.chain(optax.clip(1.0), optax.adamw(1.0))`.

  Raises:
    UserError: `tx` mixes rows, as clipping by a global norm, factored moments, trust
      ratios and orthogonalised updates do; or has state besides rows and counts, as
      `optax.MultiSteps` and `optax.inject_hyperparams` (`largevocab.rows.optax_state`).
      `tx` is tried on a small table, not looked up by name.

  Cost: that of `tx` for R rows; `tx` is tried once.

  >>> import jax.numpy as jnp
  >>> from largevocab.rows import RowGrads
  >>> opt = OptaxRows(optax.lion(1.0, weight_decay=0.0))
  >>> grads = RowGrads(jnp.array([1]), jnp.array([[3.0]]))
  >>> table = opt.update(opt.init(jnp.ones((3, 1))), grads, lr=0.25, scale=1.0)
  >>> table.w_VD[:, 0].tolist()
  [1.0, 0.75, 1.0]
  """

  tx: optax.GradientTransformation

  def __post_init__(self):
    optax_state.check(self.tx)

  def rule(self):
    return optax.chain(self.tx, optax.scale(-1.0))


@settings
class AdamW(RowOptimizer):
  """`optax.adamw`, with decay that is dense: see `decoupled_decay`.

  Update t of the table computes, for a row that it touches,

    m <- b1 m + (1 - b1) g,  v <- b2 v + (1 - b2) g^2
    direction = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps).

  Moments of rows that are not touched stay as they are, as in `OptaxRows`. `Adam` with
  `decoupled_decay` decays them too.

  Attributes:
    decoupled_decay: decay of the weights.
    b1: decay of the first moment.
    b2: decay of the second moment.
    eps: added to the root of the second moment.

  Source: Loshchilov and Hutter 2019, algorithm 2. Deviations: those of `RowOptimizer`;
    moments of rows that are not touched.
  Cost: O(R D) an update; twice as many floats of state as the table has.
  """

  decoupled_decay: NonNegative = 1e-4
  b1: Decay = 0.9
  b2: Decay = 0.999
  eps: Eps = 1e-8

  def rule(self):
    return optax.scale_by_adam(self.b1, self.b2, self.eps)


@settings
class Lion(RowOptimizer):
  """`optax.lion`: direction = sign(b1 m + (1 - b1) g), then m <- b2 m + (1 - b2) g.

  The average m of rows that are not touched stays as it is.

  Attributes:
    decoupled_decay: decay of the weights, which is dense.
    b1: weight of the average in the step.
    b2: decay of the average.

  Source: Chen et al. 2023, algorithm 2. Deviation: the average of rows that are not
    touched.
  Cost: O(R D) an update; as many floats of state as the table has.
  """

  decoupled_decay: NonNegative = 1e-3
  b1: Decay = 0.9
  b2: Decay = 0.99

  def rule(self):
    return optax.scale_by_lion(self.b1, self.b2)


@settings
class RMSProp(RowOptimizer):
  """`optax.rmsprop`: direction = g / sqrt(v + eps) with v <- d v + (1 - d) g^2.

  The mean square v of rows that are not touched stays as it is.

  Attributes:
    mean_decay: d, decay of the mean square.
    eps: added to the mean square, inside the root.

  Source: Tieleman and Hinton 2012. Deviations: eps; the mean square of rows that are
    not touched.
  Cost: O(R D) an update; as many floats of state as the table has.
  """

  mean_decay: Decay = 0.9
  eps: Eps = 1e-8

  def rule(self):
    return optax.scale_by_rms(self.mean_decay, self.eps)
