"""Changing the classes of a trained head: rows are kept, all else is new."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import config as c, single_targets
from largevocab.errors import UserError
from largevocab.heads import Full, carry_classes
from largevocab.labels import as_counts
from largevocab.rows import SGD, carry_rows
from tests.long import others_long

V, D = 12, 5
COUNTS = np.arange(V, 0, -1)
WAS = np.array([3, -1, 0, 11, 1, -1, 2, 7])  # some are gone, two are new
NEW = np.array([9, 7, 6, 5, 4, 3, 2, 1])
KEY = jax.random.key(5)


def trained(path, **fields):
  head = c.head(path, num_samples=6, optimizer=c.part("optimizer", "adam"), **fields)
  state = head.init(jax.random.key(0), COUNTS, D)
  h_ND = jax.random.normal(jax.random.key(1), (16, D))
  step = jax.jit(head.backward)(state, h_ND, single_targets(np.arange(16) % V), KEY)
  return head, head.update(state, step.grads, lr=0.1, scale=1.0), h_ND


@pytest.mark.parametrize(
  "path",
  others_long(["full", "sampled/quadratic_prior", "nce/unigram"], ["nce/unigram"]),
)
def test_former_classes_keep_what_they_learned(path):
  fields = {"loss": {"normalizer": "context"}} if path == "nce/unigram" else {}
  head, state, h_ND = trained(path, **fields)
  later = carry_classes(head, state, NEW, D, WAS, KEY)
  kept = WAS >= 0
  old, new = state.table, later.table
  np.testing.assert_array_equal(new.w_VD[kept], old.w_VD[WAS[kept]])
  for name, slot in old.slots.items():
    assert np.any(slot)
    np.testing.assert_array_equal(new.slots[name][kept], slot[WAS[kept]])
    assert not np.any(new.slots[name][~kept])
  assert new.count == old.count == 1
  assert 0 < np.abs(new.w_VD[~kept][:, :D]).max() <= head.init_scale
  if path == "nce/unigram":
    np.testing.assert_array_equal(later.log_z.w_VD[kept], state.log_z.w_VD[WAS[kept]])
  if path != "full":
    anew = head.refresh(head.init_state(new, as_counts(NEW)), KEY)
    jax.tree.map(np.testing.assert_allclose, later.stats, anew.stats)
  y = single_targets(np.arange(16) % len(NEW))
  step = jax.jit(head.backward)(later, h_ND, y, KEY)
  assert np.isfinite(step.loss)
  head.update(later, step.grads, lr=0.1, scale=1.0)


def test_state_before_remains_when_a_step_donates_the_one_after():
  fields = {"loss": {"normalizer": "global"}}
  head, state, h_ND = trained("nce/unigram", **fields)
  later = carry_classes(head, state, NEW, D, WAS, KEY)
  step = jax.jit(head.backward)(later, h_ND, single_targets([0] * 16), KEY)
  jax.jit(head.update, donate_argnums=0)(later, step.grads, 0.1, 1.0)
  assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(state))


@pytest.mark.parametrize("num_contexts", [4, V])
@pytest.mark.parametrize("is_renumbered", [False, True])
def test_log_z_of_fewer_contexts_is_kept_unless_they_are_renumbered(
  num_contexts, is_renumbered
):
  loss = {"normalizer": "context", "num_contexts": num_contexts}
  head, state, _ = trained("nce/unigram", loss=loss)
  was = WAS if is_renumbered else np.r_[np.arange(V), -1]
  learned = np.arange(1.0, 1 + num_contexts)[:, None]
  state = state._replace(log_z=state.log_z._replace(w_VD=jnp.asarray(learned)))
  later = carry_classes(head, state, np.arange(len(was), 0, -1), D, was, KEY)
  expected = np.full_like(learned, np.log(len(was))) if is_renumbered else learned
  np.testing.assert_allclose(later.log_z.w_VD, expected, rtol=1e-6)


def test_scores_of_former_classes_do_not_change():
  head, state, h_ND = trained("sampled/pps")
  later = carry_classes(head, state, NEW, D, WAS, KEY)
  best = lambda state, k: head.top_k(state, h_ND, k)
  ids, score = map(np.asarray, best(state, V))
  before = np.zeros((16, V))
  np.put_along_axis(before, ids, score, axis=1)
  ids, score = map(np.asarray, best(later, len(WAS)))
  after = np.zeros((16, len(WAS)))
  np.put_along_axis(after, ids, score, axis=1)
  kept = WAS >= 0
  between = lambda score_NV: score_NV[:, 1:] - score_NV[:, :1]  # without log Z
  np.testing.assert_allclose(
    between(after[:, kept]), between(before[:, WAS[kept]]), atol=1e-5
  )


def test_rows_of_new_classes_may_be_passed():
  head, state, _ = trained("full")
  given = jnp.arange(2.0 * D).reshape(2, D)
  later = carry_classes(head, state, NEW, D, WAS, KEY, given)
  rows = later.table.w_VD[np.flatnonzero(WAS < 0)]
  np.testing.assert_array_equal(rows[:, :D], given)
  assert not np.any(rows[:, D:])
  with pytest.raises(UserError, match="3 rows were passed for 2 new classes"):
    carry_classes(head, state, NEW, D, WAS, KEY, jnp.ones((3, D)))
  with pytest.raises(UserError, match=r"rows of 6 numbers .* rows of 5, the width of"):
    carry_classes(head, state, NEW, D, WAS, KEY, jnp.ones((2, D + 1)))


@pytest.mark.parametrize("wrong", [[0] * 8, [12, *WAS[1:]], [-2, *WAS[1:]], WAS[:-1]])
def test_invalid_former_numbers_are_named(wrong):
  head, state, _ = trained("full")
  with pytest.raises(UserError, match=r"^former numbers"):
    carry_classes(head, state, NEW, D, np.array(wrong), KEY)


def test_heads_with_several_tables_are_refused():
  head = c.head("adaptive")
  with pytest.raises(UserError, match="Adaptive has no single table"):
    carry_classes(head, None, NEW, D, WAS, KEY)


def test_width_other_than_that_of_the_state_is_named():
  """Includes a width whose rows have the same number of columns."""
  head = Full()
  state = head.init(jax.random.key(0), [3, 2, 1], 60)
  with pytest.raises(UserError, match=r"dim=63, but the state is for .* width 60"):
    carry_classes(head, state, [3, 2, 1, 0], 63, [0, 1, 2, -1], jax.random.key(1))
  narrow, wide = (SGD().init(jnp.zeros((2, D))) for D in (1, 3))
  message = "former rows have 1 columns, but new ones have 3:"
  with pytest.raises(UserError, match=message):
    carry_rows(wide, narrow, [0, 1])
