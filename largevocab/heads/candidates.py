"""Candidate classes of a loss: exact sets and drawn classes, without duplicates."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.errors import UserError
from largevocab.labels import Counts, Targets, is_class
from largevocab.losses.importance_weights import complement_weights
from largevocab.ops import shards
from largevocab.ops.accidental_hits import is_first, is_member
from largevocab.ops.block_counts import for_all_blocks, own_classes, whole_counts
from largevocab.ops.class_blocks import Blocks
from largevocab.samplers.base import Draw


class Candidates(NamedTuple):
  """Classes in a loss besides the true ones.

  Attributes:
    own_NS: i32, candidates of each example.
    shared_T: i32, candidates shared by the whole batch.
    log_expected: f32[N, S + T], log expected counts, own candidates first.
    mask: bool[N, S + T], which candidates count for which example.
    is_drawn: bool[S + T] (NumPy), True for drawn classes, False for exact sets.
    exact_sets: the exact sets, i32[T] or i32[N, S] each, padded with V. Their expected
      count is 1.
    constant: bool[N, S + T], candidates whose rows are constants; or None.
  """

  own_NS: jax.Array
  shared_T: jax.Array
  log_expected: jax.Array
  mask: jax.Array
  is_drawn: np.ndarray
  exact_sets: list[jax.Array]
  constant: jax.Array | None

  @property
  def ids(self) -> jax.Array:
    """i32[N, S + T], own candidates first."""
    shape = len(self.own_NS), len(self.shared_T)
    return jnp.concatenate(
      [self.own_NS, jnp.broadcast_to(self.shared_T, shape)], axis=1
    )

  def expected_of_true(self, log_expected_NP, ids_NP) -> jax.Array:
    """Log expected counts of true classes, f32[N, P]; 0 for those in an exact set."""
    for ids in self.exact_sets:
      is_exact_NP = is_member(ids_NP, jnp.atleast_2d(ids))
      log_expected_NP = jnp.where(is_exact_NP, 0, log_expected_NP)
    return log_expected_NP

  def known(self, o_NM: jax.Array, num_classes: int) -> jax.Array:
    """Logits of the candidates, NaN where a sampler drew an id that is no class.

    The loss is then NaN too: it must not look valid.
    """
    return jnp.where(self.mask & ~is_class(self.ids, num_classes), jnp.nan, o_NM)


def candidates(
  draw: Draw,
  exact: list[jax.Array],
  y: Targets,
  num_classes: int,
  keep_hits: bool = False,
  active_set: bool = False,
) -> Candidates:
  """Merges exact sets and a draw; masks true classes and those in an earlier set.

  Args:
    draw: the sampler's draw; its exact set comes after those in `exact`.
    exact: i32[T] each, classes to be summed exactly, distinct within each set and
      padded with V.
    y: the true classes.
    num_classes: V.
    keep_hits: keep accidental hits, i.e. candidates that are true classes.
    active_set: each drawn class counts once, with weight 1 in place of 1 / expected.

  >>> draw = Draw(jnp.array([3, 1, 0]), jnp.zeros(3), jnp.ones(3, bool))
  >>> y = Targets(jnp.array([[0]]), jnp.ones((1, 1)), jnp.zeros(1))
  >>> candidates(draw, [jnp.array([1])], y, 4).mask.tolist()
  [[True, True, False, False]]
  """
  N = len(y.ids_NP)
  sets = [*exact, *([] if draw.exact_ids is None else [draw.exact_ids])]
  groups = [(ids, jnp.zeros(ids.shape), ids < num_classes) for ids in sets]
  drawn, log_drawn = draw.mask, draw.log_expected
  if active_set:
    unused = num_classes + jnp.arange(draw.ids.shape[-1], dtype=draw.ids.dtype)
    unused = jnp.broadcast_to(unused, draw.ids.shape)
    first = is_first(jnp.atleast_2d(jnp.where(drawn, draw.ids, unused)))
    drawn &= first.reshape(drawn.shape)
    log_drawn = jnp.zeros_like(log_drawn)
  groups.append((draw.ids, log_drawn, drawn))
  seen = [] if keep_hits else [y.ids_NP]
  masked = []
  for ids, log_expected, mask in groups:
    keep = jnp.atleast_2d(mask)
    known = is_class(jnp.atleast_2d(ids), num_classes)  # and not padding of a set
    for earlier in seen:
      keep &= ~(known & is_member(jnp.atleast_2d(ids), earlier))
    seen.append(jnp.atleast_2d(ids))
    is_drawn = np.full(ids.shape[-1], ids is draw.ids)
    constant = jnp.zeros(ids.shape, bool)
    if ids is draw.ids and draw.constant is not None:
      constant = draw.constant
    masked.append((ids, log_expected, keep, is_drawn, constant))
  masked.sort(key=lambda group: -group[0].ndim)
  ids, log_expected, mask, is_drawn, constant = zip(*masked, strict=True)
  spread = lambda x: jnp.broadcast_to(x, (N, x.shape[-1]))
  joined = lambda parts: jnp.concatenate([*map(spread, parts)], axis=1)
  own = [i for i in ids if i.ndim == 2]
  shared = [i for i in ids if i.ndim == 1]
  return Candidates(
    jnp.concatenate([jnp.zeros((N, 0), jnp.int32), *own], axis=1),
    jnp.concatenate([jnp.zeros(0, jnp.int32), *shared]),
    joined(log_expected),
    joined(mask),
    np.concatenate(is_drawn),
    sets,
    None if draw.constant is None else joined(constant),
  )


def exact_classes(counts: Counts, frequent: int, ids: tuple[int, ...]) -> np.ndarray:
  """The distinct classes among `ids` and the `frequent` most frequent ones, ascending.

  For a block of classes, its own ones, padded with V as in `own_classes`.

  Raises:
    UserError: an id is not one of the classes.

  >>> exact_classes(Counts(np.array([1, 5, 3])), 1, (2,)).tolist()
  [1, 2]
  """
  if not frequent and not ids:
    return np.zeros(0, int)
  whole = whole_counts(counts)
  V = whole.num_classes
  if frequent > V:
    raise UserError(
      f"head.exact_frequent is {frequent}, but there are only {V} classes: set it to "
      f"{V} or less"
    )
  by_count_V = for_all_blocks(counts, _by_count)
  exact_T = np.unique(np.concatenate([by_count_V[:frequent], np.asarray(ids, int)]))
  wrong = [int(c) for c in exact_T if not 0 <= c < V]
  if wrong:
    raise UserError(
      f"head.exact_ids contains {wrong[0]}, but there are {V} classes: use ids from 0 "
      f"to {V - 1}"
    )
  return own_classes(counts, exact_T)


def _by_count(counts: Counts, blocks: Blocks) -> np.ndarray:
  return np.argsort(-counts.unigram_V, kind="stable")


def true_mask(y: Targets, num_classes: int) -> jax.Array:
  """Mask of true classes bool[N, P]: False on padding and repeated classes."""
  return (y.ids_NP < num_classes) & is_first(y.ids_NP)


def log_conditional_weights(
  others: Candidates,
  y: Targets,
  log_expected: Callable[[jax.Array], jax.Array],
  num_rows: int,
  num_draws: int,
) -> tuple[jax.Array, jax.Array]:
  """Log importance weights, given which draws missed the exact set.

  They are f32[N, P] for the true classes and f32[N, S + T] for the candidates, and are
  conditional within each block of classes (`complement_weights`). Finite where masked.

  Args:
    others: the candidates, with independent draws for each example.
    y: the true classes.
    log_expected: function from classes i32[N, A] to their log expected counts in a
      draw.
    num_rows: number of rows of the table on this device.
    num_draws: m, the number of draws from each block.
  """
  is_drawn = others.is_drawn
  exact_NA = jnp.concatenate([y.ids_NP, others.ids[:, ~is_drawn]], axis=1)
  is_exact_NA = jnp.concatenate(
    [true_mask(y, num_rows), others.mask[:, ~is_drawn]], axis=1
  )
  hits_NA = jnp.where(is_exact_NA, jnp.exp(log_expected(exact_NA)), 0)
  share_NB = shards.sums_by_block(hits_NA, exact_NA, num_rows) / num_draws
  # An unused row of a block is treated as a class, with exp(score) = 0.
  drawn_NM, kept_NM = others.ids[:, is_drawn], others.mask[:, is_drawn]
  kept_NM |= ~shards.used(drawn_NM, num_rows, jnp.ones_like(kept_NM))
  kept_NB = shards.sums_by_block(kept_NM, drawn_NM, num_rows)
  log_exact_NB, log_drawn_NB = complement_weights(share_NB, kept_NB, num_draws)
  log_exact, log_drawn = (
    shards.of_block(x_NB, others.ids) for x_NB in (log_exact_NB, log_drawn_NB)
  )
  log_weight = jnp.where(others.mask, -others.log_expected, 0)
  log_weight += jnp.where(is_drawn[None], log_drawn, log_exact)
  log_exact_NP = shards.of_block(log_exact_NB, y.ids_NP)
  return jax.lax.stop_gradient((log_exact_NP, log_weight))
