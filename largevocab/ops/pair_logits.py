"""Logits of (example, class) pairs and their gradients, by gathers or full products."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from largevocab.ops.merge import merge_rows, shared_slots
from largevocab.ops.passes import capacity, over_live
from largevocab.ops.shapes import check_shapes
from largevocab.ops.softmax.chunks import product

# On a CPU core, gathering the row of one pair and merging its gradient takes about as
# long as 50 rows of the table in the three products.
_ROWS_A_PAIR = 64
_MAX_LOGITS_BYTES = 256 * 2**20

# (d loss / d logits, which pairs are live, and for which the row is a constant)
# -> (d x_ND, ids_R, d rows_RD).
PullBack = Callable[..., tuple[jax.Array, jax.Array, jax.Array]]


def pair_logits(
  x_ND: jax.Array,
  w_VD: jax.Array,
  ids_NS: jax.Array,
  shared_T: jax.Array,
  dtype,
  num_true: int = 0,
) -> tuple[jax.Array, PullBack]:
  """o_ns = <x_n, w_c> with c = ids_ns, and for every n also with c = shared_t.

  `pull_back(d, live)` maps the gradient of a loss with respect to the logits to the
  gradients of x_ND and of distinct rows of the table. Rows without a live pair are
  padding: they are not updated. With `pull_back(d, live, constant)`, where `constant`
  is a mask like `live`, rows get no gradient from pairs in `constant`, but x_ND does.

    dx_n = sum over live s of d_ns w_c,  dw_c = sum over live n, s with ids_ns = c of
    d_ns x_n, and likewise for the shared classes

  Args:
    x_ND: float[N, D], features of the examples.
    w_VD: float[V, D], class table.
    ids_NS: i32[N, S], classes of each example; may repeat; padded with V.
    shared_T: i32[T], classes of all examples; may repeat; padded with V. T may be 0.
    dtype: type of the operands of the products; sums are at least float32.
    num_true: P, the first classes of each example that are labels. On several devices,
      each device has a share of them; the others are padding.

  Returns:
    o f32[N, S + T], those of `ids_NS` first, undefined (but finite) on padding; and
    `pull_back`: d f32[N, S + T] and live bool[N, S + T] to dx f32[N, D], ids i32[R],
    distinct, padded with ids >= V, and rows f32[R, D], zeros on padding.

  Cost: by gathers O(N (S + T) D), independent of V, and R = N S + T. By products,
    chosen where faster: 3 products of N V D, twice [N, V], and R = V. They are chosen
    for many classes per example, if [N, V] takes at most 256 MiB. On one of C devices,
    gathers of labels are about N P / C, in passes (`by_passes`).

  >>> x_ND, w_VD = jnp.array([[1.0], [2.0]]), jnp.array([[1.0], [3.0], [5.0]])
  >>> ids_NS, shared_T = jnp.array([[0, 0], [0, 3]]), jnp.array([2])
  >>> o, pull_back = pair_logits(x_ND, w_VD, ids_NS, shared_T, "float32")
  >>> live = jnp.array([[True, True, False], [True, False, False]])
  >>> o[live].tolist()
  [1.0, 1.0, 2.0]
  >>> dx_ND, ids_R, rows_RD = pull_back(jnp.ones((2, 3)), live)
  >>> dx_ND[:, 0].tolist()
  [2.0, 1.0]
  >>> [(int(i), float(r)) for i, r in zip(ids_R, rows_RD[:, 0]) if i < 3]
  [(0, 4.0)]
  """
  check_shapes(x_ND=x_ND, w_VD=w_VD, ids_NS=ids_NS, shared_T=shared_T)
  N, S = ids_NS.shape
  if products_are_faster(N, S, len(w_VD)):
    return by_products(x_ND, w_VD, ids_NS, shared_T, dtype)
  at_once = capacity(N * num_true)
  if at_once == N * num_true:
    return by_rows(x_ND, w_VD, ids_NS, shared_T, dtype)
  return by_passes(x_ND, w_VD, ids_NS, shared_T, dtype, num_true, at_once)


def of_pairs(
  of_rows: Callable[[jax.Array], jax.Array],
  w_VD: jax.Array,
  ids_NS: jax.Array,
  shared_T: jax.Array,
) -> jax.Array:
  """A function of rows, [..., D] to [...], at the classes of all pairs: [N, S + T].

  Pairs are in the order of `pair_logits`.

  Cost: as for `pair_logits`, for the rows of the pairs or for all rows, whichever is
  faster.

  >>> w_VD, ids_NS, shared_T = jnp.eye(3), jnp.array([[0], [2]]), jnp.array([1])
  >>> of_pairs(lambda w: w @ jnp.arange(3.0), w_VD, ids_NS, shared_T).tolist()
  [[0.0, 1.0], [2.0, 1.0]]
  """
  N, S = ids_NS.shape
  at = lambda x, ids: x.at[ids].get(mode="clip")
  if products_are_faster(N, S, len(w_VD)):
    of_V = of_rows(w_VD)
    own_NS, shared_T = at(of_V, ids_NS), at(of_V, shared_T)
  else:
    own_NS, shared_T = of_rows(at(w_VD, ids_NS)), of_rows(at(w_VD, shared_T))
  shared_NT = jnp.broadcast_to(shared_T, (N, len(shared_T)))
  return jnp.concatenate([own_NS, shared_NT], axis=1)


def products_are_faster(N: int, S: int, V: int) -> bool:
  """Whether to compute all logits of N examples that have S own classes each.

  >>> products_are_faster(400, 81, 10_000), products_are_faster(400, 321, 10_000)
  (False, True)
  """
  return min(N, _ROWS_A_PAIR) * S >= V and 4 * N * V <= _MAX_LOGITS_BYTES


def by_rows(x_ND, w_VD, ids_NS, shared_T, dtype):
  """`pair_logits` by gathering the rows of the pairs."""
  o, pull_pairs = _gathered(x_ND, w_VD, ids_NS, shared_T, dtype)

  def pull_back(d, live, constant=None):
    dx_ND, ids_R, rows_RD = pull_pairs(d, live, constant)
    return dx_ND, *merge_rows(ids_R, rows_RD, len(w_VD))

  return o, pull_back


def _gathered(x_ND, w_VD, ids_NS, shared_T, dtype):
  """`by_rows`, with rows as they were gathered, whose ids may repeat."""
  o_NT, pull_shared = _shared_pairs(x_ND, w_VD, shared_T, dtype)
  S = ids_NS.shape[1]
  if not S:  # in programs for several TPUs the compiler fails on rows of no pairs
    return o_NT, pull_shared
  o_NS, pull_own = _own_pairs(x_ND, w_VD, ids_NS, dtype)

  def pull_back(d, live, constant):
    both = [None if x is None else (x[:, :S], x[:, S:]) for x in (d, live, constant)]
    own, shared = ([x and x[i] for x in both] for i in (0, 1))
    dx_ND, ids_Q, rows_QD = pull_own(*own)
    more_ND, ids_T, rows_TD = pull_shared(*shared)
    ids_R = jnp.concatenate([ids_Q, ids_T])
    return dx_ND + more_ND, ids_R, jnp.concatenate([rows_QD, rows_TD])

  return jnp.concatenate([o_NS, o_NT], axis=1), pull_back


def _own_pairs(x_ND, w_VD, ids_NS, dtype):
  """`_gathered`, for each example's own classes."""
  V, D = w_VD.shape
  own_NSD = w_VD.at[ids_NS].get(mode="clip")

  def pull_back(d_NS, live_NS, constant_NS):
    d_NS = jnp.where(live_NS, d_NS, 0)
    dx_ND = product("ns,nsd->nd", d_NS, own_NSD, dtype)
    if constant_NS is not None:
      live_NS &= ~constant_NS
      d_NS = jnp.where(live_NS, d_NS, 0)
    rows_NSD = product("ns,nd->nsd", d_NS, x_ND, dtype)
    ids_Q = jnp.where(live_NS, ids_NS, V).ravel()
    return dx_ND, ids_Q, rows_NSD.reshape(-1, D)

  return product("nd,nsd->ns", x_ND, own_NSD, dtype), pull_back


def _shared_pairs(x_ND, w_VD, shared_T, dtype):
  """`_gathered`, for the shared classes."""
  shared_TD = w_VD.at[shared_T].get(mode="clip")

  def pull_back(d_NT, live_NT, constant_NT):
    d_NT = jnp.where(live_NT, d_NT, 0)
    dx_ND = product("nt,td->nd", d_NT, shared_TD, dtype)
    if constant_NT is not None:
      live_NT &= ~constant_NT
      d_NT = jnp.where(live_NT, d_NT, 0)
    rows_TD = product("nt,nd->td", d_NT, x_ND, dtype)
    ids_T = jnp.where(jnp.any(live_NT, axis=0), shared_T, len(w_VD))
    return dx_ND, ids_T, rows_TD

  return product("nd,td->nt", x_ND, shared_TD, dtype), pull_back


def by_passes(x_ND, w_VD, ids_NS, shared_T, dtype, num_true, at_once):
  """`by_rows`, which skips padding among the first P classes of each example.

  Processes `at_once` of these pairs at a time, and has no derivative of its own.

  Cost: O((L + K) D) for the L of these N P pairs that are not padding, K at a time. For
    all N P pairs only rows of zeros are written, since L is not known before.
  """
  V, P = len(w_VD), num_true
  ids_A = ids_NS[:, :P].ravel()
  others, pull_others = _gathered(x_ND, w_VD, ids_NS[:, P:], shared_T, dtype)

  def rows(at_K):
    w_KD = w_VD.at[ids_A.at[at_K].get(mode="clip")].get(mode="clip")
    return x_ND.at[at_K // P].get(mode="clip"), w_KD

  def add_logits(o_A, at_K):
    return o_A.at[at_K].set(product("kd,kd->k", *rows(at_K), dtype), mode="drop")

  o_A = over_live(add_logits, jnp.zeros(len(ids_A), others.dtype), ids_A < V, at_once)

  def pull_back(d, live, constant=None):
    d_A, live_A = d[:, :P].ravel(), live[:, :P].ravel()
    of_others = None if constant is None else constant[:, P:]
    dx_ND, ids_Q, rows_QD = pull_others(d[:, P:], live[:, P:], of_others)
    updated_A = live_A if constant is None else live_A & ~constant[:, :P].ravel()
    ids_R = jnp.concatenate([jnp.where(updated_A, ids_A, V), ids_Q])
    slots_R, ids_R = shared_slots(ids_R, V)
    slots_A, slots_Q = jnp.split(slots_R, [len(ids_A)])
    sums_RD = jnp.zeros((len(ids_R), rows_QD.shape[1]), rows_QD.dtype)
    sums_RD = sums_RD.at[slots_Q].add(rows_QD, mode="drop")

    def add(sums, at_K):
      dx_ND, sums_RD = sums
      x_KD, w_KD = rows(at_K)
      d_K = d_A.at[at_K].get(mode="clip")
      slots_K = slots_A.at[at_K].get(mode="fill", fill_value=len(ids_R))
      dx_KD = product("k,kd->kd", d_K, w_KD, dtype)
      dw_KD = product("k,kd->kd", d_K, x_KD, dtype)
      dx_ND = dx_ND.at[at_K // P].add(dx_KD, mode="drop")
      return dx_ND, sums_RD.at[slots_K].add(dw_KD, mode="drop")

    dx_ND, sums_RD = over_live(add, (dx_ND, sums_RD), live_A, at_once)
    return dx_ND, ids_R, sums_RD

  return jnp.concatenate([o_A.reshape(len(x_ND), P), others], axis=1), pull_back


def by_products(x_ND, w_VD, ids_NS, shared_T, dtype):
  """`pair_logits` by computing the logits of all classes."""
  N, V = len(x_ND), len(w_VD)
  shared_NT = jnp.broadcast_to(shared_T, (N, len(shared_T)))
  ids = jnp.concatenate([ids_NS, shared_NT], axis=1)
  o_NV = product("nd,vd->nv", x_ND, w_VD, dtype)

  def pull_back(d, live, constant=None):
    n_N1 = jnp.arange(N, dtype=ids.dtype)[:, None]

    def at_classes(live):
      live_ids = jnp.where(live, ids, V)
      return live_ids, jnp.zeros_like(o_NV).at[n_N1, live_ids].add(d, mode="drop")

    live_ids, d_NV = at_classes(live)
    dx_ND = product("nv,vd->nd", d_NV, w_VD, dtype)
    if constant is not None:
      live_ids, d_NV = at_classes(live & ~constant)
    rows_VD = product("nv,nd->vd", d_NV, x_ND, dtype)
    touched_V = jnp.zeros(V, bool).at[live_ids.ravel()].set(True, mode="drop")
    at_V = jnp.arange(V, dtype=ids.dtype)
    return dx_ND, jnp.where(touched_V, at_V, V + at_V), rows_VD

  return jnp.take_along_axis(o_NV, ids, axis=1, mode="clip"), pull_back
