"""Row-wise optimisers, which update only the touched rows of a table.

Those of optax are in `largevocab/rows/optax_rows.py`.
"""

import abc
from typing import Annotated

import jax
import jax.numpy as jnp
import optax

from largevocab.errors import UserError
from largevocab.fields import Between, Dtype, Eps, NonNegative, settings
from largevocab.ops import shards
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import wide
from largevocab.ops.tree.blocks import BlockGrads, rows_at
from largevocab.placement import LANES
from largevocab.rows import lazy_average, lazy_decay, optax_state
from largevocab.rows.grads import RowGrads, Table, fold_rows, rows_and_scalars
from largevocab.rows.rounding import as_kept, with_rows

Decay = Annotated[float, Between(0, 0.999999)]  # larger ones may round to 1 in float32


@settings(kw_only=True)
class RowOptimizer(abc.ABC):
  """A row-wise optimiser: w -= lr (direction(scale g + lambda w) + mu w).

  A subclass defines `rule`, an optax transformation. It updates few rows of a table, a
  whole table, or a network, so that one setting applies to all three. A subclass may
  also define the state of a row and its direction, if optax has none or if a lazier one
  is wanted.

  Attributes:
    weight_decay: lambda of the penalty lambda/2 |w|^2, also for biases. Its gradient is
      added to that of the loss after clipping, before the optimiser's rule.
    decoupled_decay: mu, decay beside the rule, also for biases: a step multiplies w by
      1 - lr mu. Rows that are not touched decay too: when a row is next touched, it is
      multiplied by the factors of all steps in between, whatever the learning rates
      were (`largevocab.rows.lazy_decay`). Given the same gradients, a touched row then
      equals that of dense decay. Until it is touched, all readers see
      a row as it was left: the forward pass that touches it, samplers, evaluation,
      checkpoints. Rows of the head `sampled` are brought up to date every
      `refresh_every` steps, those of `huffman`, `hierarchical` and the tails of
      `adaptive` by a call of `refresh`.
    row_dtype: type of the rows of tables, 'float32' or 'bfloat16', which takes half the
      memory. Steps are computed in float32, and the optimiser's state is float32. New
      rows of bfloat16 are rounded at random, so that they equal those of float32 in
      expectation, and no step is too small to count. No effect on a network.
    average: d of an exponential average of the weights, also of rows that are not
      touched (`largevocab.rows.lazy_average`). The trainer evaluates the average in
      place of the weights; training goes on with the weights. 0: none.

  Source: for decoupled decay, Loshchilov and Hutter 2019. Deviation: as in optax, mu is
    multiplied by the learning rate. For rows of bfloat16, Gupta et al. 2015 (stochastic
    rounding) and Zhang et al. 2025, who train large output layers this way. Deviation:
    the random bits are a hash of step, row and column
    (`largevocab.rows.rounding.random_bits`), so that no key is needed; two tables have
    the same bits in rows of the same number.

  Cost: rows of bfloat16 take half the memory; the optimiser's state takes as much as
    before. On a CPU these rows are written in a pass over the table
    (`largevocab.rows.rounding.with_rows`), and loops over parts of a table read from a
    copy in float32. Heads with the gradient of a whole table, such as `full`, hold the
    gradient and such a copy during a step, so that only what stays between steps is
    halved.

  Deviation: with a row-sparse gradient, `weight_decay` applies to the touched rows
    only; dense decay would change all V rows in every step. A rare row therefore decays
    less, and a row that is never touched keeps its initial value. There is no exact
    lazy version: the effect of a penalty alone under Adagrad, s <- s + (lambda w)^2 and
    w <- w - lr lambda w / sqrt(s), has no closed form. Where a gradient has all rows,
    as for `full` and for a network, decay is dense and exact.
  """

  weight_decay: NonNegative = 0.0
  decoupled_decay: NonNegative = 0.0
  row_dtype: Dtype = "float32"
  average: Decay = 0.0

  @abc.abstractmethod
  def rule(self) -> optax.GradientTransformation:
    """The step at learning rate 1, to be subtracted, as an optax transformation."""

  def init_slots(self, w_VD: jax.Array) -> dict[str, jax.Array]:
    """Initial optimiser state for each row; by default that of `rule`."""
    return optax_state.init_slots(self.rule(), w_VD)

  def direction(
    self,
    g_RD: jax.Array,
    w_RD: jax.Array,
    slots: dict[str, jax.Array],
    count: jax.Array,
  ) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The step at learning rate 1, and the new state, of the given rows.

    By default, this is `rule` on these rows alone. The state of other rows stays as it
    is: moments do not decay in the steps in which a row is not touched, and counts are
    those of all steps.
    """
    return optax_state.step(self.rule(), g_RD, w_RD, slots, count)

  def transformation(self) -> optax.GradientTransformation:
    """`rule` with both kinds of decay; its updates are directions to subtract.

    >>> tx, w = SGD(weight_decay=0.5).transformation(), {"w": jnp.array([2.0])}
    >>> tx.update({"w": jnp.array([3.0])}, tx.init(w), w)[0]["w"].tolist()
    [4.0]
    """
    rule = self.rule()
    if self.weight_decay:
      rule = optax.chain(optax.add_decayed_weights(self.weight_decay), rule)
    if self.decoupled_decay:
      rule = optax.chain(rule, optax.add_decayed_weights(self.decoupled_decay))
    return rule

  def penalised(self, g_RD: jax.Array, w_RD: jax.Array) -> jax.Array:
    """The gradient of these rows plus that of the penalty.

    >>> SGD(weight_decay=0.5).penalised(jnp.array([[3.0]]), jnp.array([[2.0]])).tolist()
    [[4.0]]
    """
    return g_RD + self.weight_decay * w_RD if self.weight_decay else g_RD

  def init(self, w_VD: jax.Array) -> Table:
    """A table of these rows, rounded to the nearest of their type, with initial state.

    >>> SGD().init(jnp.zeros((3, 2))).w_VD.shape
    (3, 2)
    >>> SGD(row_dtype="bfloat16").init(jnp.zeros((3, 2))).w_VD.dtype
    dtype(bfloat16)
    """
    w_VD = wide(w_VD)
    slots = self.init_slots(w_VD)
    if self.decoupled_decay:
      slots = slots | lazy_decay.init_slots(w_VD)
    if self.average:
      slots = slots | lazy_average.init_slots(w_VD)
    is_short = self.row_dtype == "bfloat16"
    return Table(w_VD.astype(jnp.bfloat16) if is_short else w_VD, slots, jnp.int32(0))

  def update(self, table: Table, grads: RowGrads | BlockGrads, lr, scale=1.0) -> Table:
    """Updates the rows of a row-sparse gradient, except padding.

    Cost: O(R D), independent of V, if the table is donated.

    >>> table = SGD().init(jnp.ones((3, 1)))
    >>> g = RowGrads(jnp.array([1, 3]), jnp.array([[2.0], [0.0]]))
    >>> SGD().update(table, g, lr=0.5, scale=1.0).w_VD[:, 0].tolist()
    [1.0, 0.0, 1.0]
    """
    update = lambda table, part: self._update_part(table, part, lr, scale)
    return self.after_step(fold_rows(update, table, table, grads), lr)

  def update_and_rows(
    self, table: Table, rows: RowGrads, lr, scale
  ) -> tuple[Table, jax.Array]:
    """The table after `update`, and the new rows of the gradient.

    The rows are in at least float32. Those of padding have no meaning.

    >>> table = SGD().init(jnp.ones((3, 1)))
    >>> g = RowGrads(jnp.array([1]), jnp.array([[2.0]]))
    >>> SGD().update_and_rows(table, g, lr=0.5, scale=1.0)[1].tolist()
    [[0.0]]
    """
    new = self.update(table, rows, lr, scale)
    read = lambda: new.rows_at(rows.ids_R, mode="clip")
    if table.w_VD.shape[1] >= LANES:
      return new, read()
    # For a table of narrow rows, the compiler for TPU would copy the table to read what
    # was written, and the compiler for CPU to read what is about to be written.
    anew = lambda: self.rows_anew(table, rows, lr, scale)
    return new, jax.lax.platform_dependent(cpu=read, default=anew)

  def rows_anew(self, table: Table, rows: RowGrads, lr, scale) -> jax.Array:
    """The new rows of `update_and_rows`, computed once more from the old table."""
    new_RD, _ = self._rows_after(table, rows, lr, scale)
    return wide(new_RD.astype(table.w_VD.dtype))

  def _update_part(self, table, part, lr, scale):
    """The table after an update of these rows, with the same count."""
    slots, shared = rows_and_scalars(table.slots)
    new_RD, new = self._rows_after(table, part, lr, scale)
    # The ids are distinct, and those of padding are out of range.
    at = {"mode": "drop", "unique_indices": True}
    put = lambda s, row: s.at[part.ids_R].set(row, **at)
    slots = jax.tree.map(put, slots, new) | shared
    return Table(with_rows(table.w_VD, part.ids_R, new_RD), slots, table.count)

  def _rows_after(self, table, part, lr, scale):
    """Rows as they will be stored, and their state, after an update."""
    slots, shared = rows_and_scalars(table.slots)
    rows = jax.tree.map(lambda s: rows_at(s, part.ids_R), slots)
    # Read before they are written, so that no other reader of old rows forces a copy.
    old_RD = wide(rows_at(table.w_VD, part.ids_R))
    g_RD = scale * wide(part.rows_RD)
    new_RD, new = self._stepped(g_RD, old_RD, rows, shared, table.count, lr)
    new_RD = self._kept(table, new_RD, part.ids_R)
    return new_RD, new | lazy_average.after(
      self.average, rows, old_RD, new_RD, table.count
    )

  def _stepped(self, g_RD, w_RD, rows, shared, count, lr):
    """Rows and their state after a step with this gradient."""
    if self.decoupled_decay:
      w_RD = w_RD * lazy_decay.pending(rows, shared)[:, None]
    step_RD, new = self.direction(self.penalised(g_RD, w_RD), w_RD, rows, count)
    return self._decayed(w_RD - lr * step_RD, new, w_RD, rows, shared, lr)

  def _decayed(self, new_RD, new, w_RD, rows, shared, lr):
    """Rows after the decoupled decay of a step, and their state."""
    if not self.decoupled_decay:
      return new_RD, new
    new_RD = new_RD - lazy_decay.fraction(lr, self.decoupled_decay) * w_RD
    shared = lazy_decay.after(shared, lr, self.decoupled_decay)
    return new_RD, new | lazy_decay.touched(rows, shared)

  def after_step(self, table: Table, lr) -> Table:
    """The table with a step counted, whose rows have been written.

    Without a gradient, rows are left as they are: decoupled decay and averages of the
    step are brought up to date when a row is next touched, or by `settled`.

    >>> opt = SGD(decoupled_decay=0.5)
    >>> table = opt.after_step(opt.init(jnp.ones((1, 1))), lr=1.0)
    >>> table.w_VD.tolist(), int(table.count), opt.settled(table).w_VD.tolist()
    ([[1.0]], 1, [[0.5]])
    """
    slots = table.slots
    if self.decoupled_decay:
      slots = slots | lazy_decay.after(slots, lr, self.decoupled_decay)
    return table._replace(slots=slots, count=table.count + 1)

  def settled(self, table: Table) -> Table:
    """The table with all rows decayed up to now, if decay is decoupled.

    Cost: O(V D); nothing without `decoupled_decay`.

    >>> opt, g = SGD(decoupled_decay=0.5), RowGrads(jnp.array([1]), jnp.zeros((1, 1)))
    >>> table = opt.update(opt.init(jnp.ones((2, 1))), g, lr=1.0, scale=1.0)
    >>> table.w_VD[:, 0].tolist(), opt.settled(table).w_VD[:, 0].tolist()
    ([1.0, 0.5], [0.5, 0.5])
    """
    if not self.decoupled_decay:
      return table
    table = lazy_average.settled(table, self.average)  # with rows as they were
    rows, shared = rows_and_scalars(table.slots)
    w_VD = wide(table.w_VD) * lazy_decay.pending(rows, shared)[:, None]
    slots = table.slots | lazy_decay.up_to_date(len(w_VD), shared)
    # Rounded with random bits that no step uses: counts of steps are not negative.
    kept_VD = self._kept(table._replace(count=~table.count), w_VD)
    return table._replace(w_VD=kept_VD, slots=slots)

  def _kept(self, table, new_RD, ids_R=None):
    """New rows, by default all, in the type of the table."""
    num = len(table.w_VD)
    rows_R = jnp.arange(num, dtype=jnp.int32) if ids_R is None else ids_R
    rows_R = shards.whole_rows(rows_R, num)
    return as_kept(new_RD, table.w_VD.dtype, table.count, rows_R)

  def dense_update(self, table: Table, g_VD: jax.Array, lr, scale=1.0) -> Table:
    """Updates all rows with a gradient of the table's shape.

    Raises:
      ValueError: the gradient has another shape.

    >>> table = SGD().init(jnp.ones((1, 2)))
    >>> SGD().dense_update(table, jnp.ones((1, 2)), lr=0.5, scale=1.0).w_VD.tolist()
    [[0.5, 0.5]]
    """
    check_shapes(w_VD=table.w_VD, g_VD=g_VD)
    slots, shared = rows_and_scalars(table.slots)
    old_VD, g_VD = wide(table.w_VD), scale * wide(g_VD)
    new_VD, new = self._stepped(g_VD, old_VD, slots, shared, table.count, lr)
    return self._all_written(table, old_VD, new_VD, new, lr)

  def _all_written(self, table, old_VD, new_VD, new, lr):
    """The table after a step that changed all rows, and the state of all rows."""
    rows, shared = rows_and_scalars(table.slots)
    new_VD = self._kept(table, new_VD)
    new |= lazy_average.after(self.average, rows, old_VD, new_VD, table.count)
    return self.after_step(Table(new_VD, new | shared, table.count), lr)


@settings
class SGD(RowOptimizer):
  """direction = g."""

  def rule(self):
    return optax.identity()


@settings
class Momentum(RowOptimizer):
  """direction = m with m <- momentum m + g: heavy-ball momentum, on all rows.

  Every row moves in every step, even if the gradient is sparse, since m stays non-zero
  after a row was touched. A lazy version would be a different method. Samplers get
  updates of touched rows only, and of the other rows when the head is refreshed.

  Every row also decays in every step, so `weight_decay` is exact.

  Cost: O(V D) an update, however few rows are touched.

  Attributes:
    momentum: decay factor of m.

  >>> table = Momentum(momentum=0.5).init(jnp.zeros((2, 1)))
  >>> g = RowGrads(jnp.array([1]), jnp.array([[1.0]]))
  >>> for _ in range(2):
  ...   table = Momentum(momentum=0.5).update(table, g, lr=1.0, scale=1.0)
  >>> table.w_VD[:, 0].tolist()
  [0.0, -2.5]
  """

  momentum: Decay = 0.9

  def init_slots(self, w_VD):
    return {"velocity_VD": jnp.zeros_like(w_VD)}

  def direction(self, g_RD, w_RD, slots, count):
    velocity_RD = self.momentum * slots["velocity_VD"] + g_RD
    return velocity_RD, {"velocity_VD": velocity_RD}

  def update(self, table, grads, lr, scale=1.0):
    old_VD = wide(table.w_VD)
    kept_VD = self.penalised(self.momentum * table.slots["velocity_VD"], old_VD)

    def add(velocity_VD, part):
      g_RD = scale * wide(part.rows_RD)
      return velocity_VD.at[part.ids_R].add(g_RD, mode="drop")

    velocity_VD = fold_rows(add, kept_VD, table, grads)
    slots, (rows, shared) = {"velocity_VD": velocity_VD}, rows_and_scalars(table.slots)
    new_VD = old_VD - lr * velocity_VD
    new_VD, slots = self._decayed(new_VD, slots, old_VD, rows, shared, lr)
    return self._all_written(table, old_VD, new_VD, slots, lr)

  def rule(self):
    return optax.trace(self.momentum)


@settings
class Adagrad(RowOptimizer):
  """direction = g / sqrt(s + eps) with s the sum of all g^2 so far.

  It equals dense Adagrad: where the gradient is zero, dense Adagrad does not move.

  Attributes:
    initial_accumulator: initial value of s.
    eps: added inside the root.

  Source: Duchi, Hazan and Singer 2011, section 3 (diagonal matrices). Deviations: eps
    is inside the root; s starts at `initial_accumulator`, not 0.
  Cost: O(R D) an update; as many floats of state as the table has.
  """

  initial_accumulator: NonNegative = 0.1
  eps: Annotated[float, Between(0, 1000)] = 1e-7

  def __post_init__(self):
    if not self.eps and not self.initial_accumulator:
      raise UserError(
        "Adagrad.eps and Adagrad.initial_accumulator are both 0, so a gradient of 0 "
        "would be divided by 0: set one of them above 0"
      )

  def init_slots(self, w_VD):
    return {"sum_sq_VD": jnp.full_like(w_VD, self.initial_accumulator)}

  def direction(self, g_RD, w_RD, slots, count):
    sum_sq_RD = slots["sum_sq_VD"] + jnp.square(g_RD)
    return g_RD * jax.lax.rsqrt(sum_sq_RD + self.eps), {"sum_sq_VD": sum_sq_RD}

  def rule(self):
    return optax.scale_by_rss(self.initial_accumulator, self.eps)


@settings
class RowwiseAdagrad(RowOptimizer):
  """direction = g / sqrt(s + eps) with s the sum of the mean of g^2 over a row.

  The state is one number for each row instead of one for each entry, which for wide
  rows takes hardly any memory. It is used for the tables of recommender systems. For a
  network, whose matrices have no rows in this sense, it is `Adagrad`.

  Attributes:
    initial_accumulator: initial value of s.
    eps: added inside the root.

  Source: Lerer et al. 2019 (PyTorch-BigGraph). Deviations: eps is inside the root; the
    mean is over the row as it is stored, in which a bias is padded with zeros, so that
    steps are longer.
  Cost: O(R D) an update; a float of state a row.

  >>> table = RowwiseAdagrad(initial_accumulator=0.0).init(jnp.zeros((2, 2)))
  >>> g = RowGrads(jnp.array([1]), jnp.array([[1.0, 7.0]]))  # mean square 25
  >>> step = RowwiseAdagrad().update(table, g, lr=1.0, scale=1.0)
  >>> [f"{w:.2f}" for w in step.w_VD[1]], step.slots["mean_sq_V"].shape
  (['-0.20', '-1.40'], (2,))
  """

  initial_accumulator: NonNegative = 0.1
  eps: Eps = 1e-7

  def init_slots(self, w_VD):
    return {"mean_sq_V": jnp.full(len(w_VD), self.initial_accumulator, w_VD.dtype)}

  def direction(self, g_RD, w_RD, slots, count):
    mean_sq_R = slots["mean_sq_V"] + jnp.mean(jnp.square(g_RD), axis=1)
    root_R = jax.lax.rsqrt(mean_sq_R + self.eps)
    return g_RD * root_R[:, None], {"mean_sq_V": mean_sq_R}

  def rule(self):
    return optax.scale_by_rss(self.initial_accumulator, self.eps)


@settings
class Adam(RowOptimizer):
  """Lazy Adam: moments as in dense Adam, but only touched rows move.

  In step t, for a row that was last touched in step t - s (step 0 if never),

    m <- b1^s m + (1 - b1) g,  v <- b2^s v + (1 - b2) g^2
    direction = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps).

  If a row was not touched for s steps, its moments are first decayed by b1^s and b2^s,
  as dense Adam would have done with zero gradients. Both moments therefore equal dense
  Adam's on every touched row. Deviation from dense Adam: the steps that dense Adam
  would have made from the first moment in between are left out.

  Attributes:
    b1: decay of the first moment.
    b2: decay of the second moment.
    eps: added to the root of the second moment.

  Source: Kingma and Ba 2015, algorithm 1.
  Cost: O(R D) an update; twice as many floats of state as the table has, and an integer
    a row.
  """

  b1: Decay = 0.9
  b2: Decay = 0.999
  eps: Eps = 1e-8

  def init_slots(self, w_VD):
    return {
      "mean_VD": jnp.zeros_like(w_VD),
      "mean_sq_VD": jnp.zeros_like(w_VD),
      "last_V": jnp.zeros(w_VD.shape[0], jnp.int32),
    }

  def direction(self, g_RD, w_RD, slots, count):
    step = count + 1
    since_R = (step - slots["last_V"]).astype(g_RD.dtype)[:, None]
    mean_RD = self.b1**since_R * slots["mean_VD"] + (1 - self.b1) * g_RD
    mean_sq_RD = self.b2**since_R * slots["mean_sq_VD"] + (1 - self.b2) * g_RD**2
    unbiased_RD = mean_RD / (1 - self.b1**step)
    root_RD = jnp.sqrt(mean_sq_RD / (1 - self.b2**step))
    slots = {
      "mean_VD": mean_RD,
      "mean_sq_VD": mean_sq_RD,
      # The larger of the two is `step`. A compiler that does not know this reads the
      # old number before it writes the new one, and needs no copy of the table.
      "last_V": jnp.maximum(slots["last_V"], step),
    }
    return unbiased_RD / (root_RD + self.eps), slots

  def rule(self):
    return optax.scale_by_adam(self.b1, self.b2, self.eps)
