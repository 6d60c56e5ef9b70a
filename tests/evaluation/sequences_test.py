"""Recommendations: ranks among unseen items, compared with loops in float64."""

import itertools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import baselines, config as c, main, train
from largevocab.errors import UserError
from largevocab.evaluation import retrieval
from largevocab.evaluation.evaluate import Evaluate, held_out
from largevocab.labels import Targets
from largevocab.training.state import init_state, restore
from tests.long import others_long

V, T = 30, 6
DATA = c.part("data", "zipf_sequences", num_classes=V, num_users=40)


def settings(head="full", data=DATA, **evaluation):
  evaluation = {"hit_k": (2, 5), **evaluation}
  return c.experiment(
    data=data,
    model=c.part("model", "lstm", embed=4, hidden=5, layers=1, init_scale=1.0),
    head=c.head(head, init_scale=1.0),
    optimizer=c.part("optimizer", "sgd"),
    train=c.Training(max_steps=2, batch_size=8, unroll=T),
    eval=c.Evaluating(every_epochs=0, batch_size=16, unroll=T, **evaluation),
    log=c.Logging(monitor_every_steps=0),
  )


def metrics_of(ranks, ks=(2, 5)):
  """Metrics from the ranks of labels, from 1; None: the label is hidden."""
  found = {}
  for k in ks:
    hits = [rank is not None and rank <= k for rank in ranks]
    found[f"hr@{k}"] = np.mean(hits)
    gains = [1 / math.log2(1 + r) if hit else 0 for r, hit in zip(ranks, hits)]  # noqa: B905
    found[f"ndcg@{k}"] = np.mean(gains)
  return found


def rank_of(score_V, label, hidden):
  """The rank, from 1, with ties in order of id; None: the label is hidden."""
  if label in hidden:
    return None
  key = lambda id: (-score_V[id], id)
  return 1 + sum(key(id) < key(label) for id in range(len(score_V)) if id not in hidden)


def split_of(data, split):
  """(previous items, label) of each user with at least three items."""
  histories = [data.history(user).tolist() for user in range(len(data.users))]
  last = {"valid": 2, "test": 1}[split]
  return [(h[:-last], h[-last]) for h in histories if len(h) > 2]


@pytest.mark.parametrize("k", [1, 3, V])
def test_ranks_without_hidden_classes_match_a_loop(k):
  """With ties, hidden labels, padding, repeated hidden ids, and few ids left."""
  rng = np.random.default_rng(0)
  score_NV = rng.integers(0, 6, (60, V)).astype(np.float32)
  hidden_NS = rng.integers(0, V + 8, (60, 12))
  hidden_NS[0], hidden_NS[1] = V, 7
  label_N = rng.integers(0, V, 60)
  order_NV = np.argsort(-score_NV, axis=1, kind="stable")
  best = jnp.asarray(order_NV[:, : min(k + 12, V)], jnp.int32)
  best = retrieval.without(best, jnp.asarray(hidden_NS, jnp.int32), V)
  ranks = [
    rank_of(*row) for row in zip(score_NV, label_N, map(set, hidden_NS), strict=True)
  ]
  assert None in ranks
  y = Targets(jnp.asarray(label_N[:, None]), jnp.ones((60, 1)), jnp.zeros(60, int))
  found = retrieval.hits(best, y, (k,))
  for name, value in metrics_of(ranks, (k,)).items():
    assert np.mean(found[name]) == pytest.approx(value, rel=1e-6)


def test_example_without_a_label_is_not_a_hit():
  y = Targets(jnp.array([[3]]), jnp.zeros((1, 1)), jnp.zeros(1, jnp.int32))
  found = retrieval.hits(jnp.array([[3, V]]), y, (1, 2))
  assert {float(value_N[0]) for value_N in found.values()} == {0.0}


@pytest.fixture(scope="module")
def model():
  """An experiment, its data, a random state, and naive scores of histories."""
  exp = c.build(settings())
  data = exp.data.load()
  state = init_state(exp, data)
  w_VD = np.asarray(state.head.table.w_VD, np.float64)
  step = jax.jit(exp.model.apply)

  def scores(items):
    """f64[V], computed item by item, without padding or batches."""
    carry = exp.model.initial_carry(1)
    for item in items[-T:]:
      row = state.inputs.w_VD[item][None, None]
      h_BTD, carry = step({"params": state.params}, row, carry)
    return w_VD @ np.asarray(exp.head.features(h_BTD[0]), np.float64)[0]

  return exp, data, state, scores


@pytest.mark.parametrize(
  ("split", "hide"),
  others_long(
    itertools.product(["valid", "test"], [True, False]),
    [("valid", True), ("test", False)],
  ),
)
def test_metrics_match_full_rankings(model, split, hide):
  _, data, state, scores = model
  exp = c.build(settings(hide_seen=hide))
  assert not {len(before) for before, _ in split_of(data, split)} <= {*range(T + 1)}
  ranks, nll = [], []
  for before, label in split_of(data, split):
    score_V = scores(before)
    ranks.append(rank_of(score_V, label, set(before) if hide else set()))
    nll.append(np.logaddexp.reduce(score_V) - score_V[label])
  measured = Evaluate(exp, data.counts)(state, held_out(exp, data)[split])
  expected = metrics_of(ranks)
  assert 0 < expected["hr@2"] < expected["hr@5"] < 1
  for name, value in expected.items():
    assert measured[name] == pytest.approx(value, rel=1e-6), name
  assert measured["nll"] == pytest.approx(np.mean(nll), rel=1e-5)
  other = metrics_of([rank_of(scores(b), y, set()) for b, y in split_of(data, split)])
  assert (expected == other) == (not hide)


@pytest.mark.parametrize(
  "head", others_long(["adaptive", "nce/uniform"], ["nce/uniform"])
)
def test_other_heads_leave_out_seen_items(model, head):
  exp = c.build(settings(head))
  data, ranks = model[1], []
  state = init_state(exp, data)
  batches = held_out(exp, data)["test"]
  top_k = jax.jit(exp.head.top_k, static_argnums=2)
  measured = Evaluate(exp, data.counts)(state, batches)
  for batch in batches:
    rows_BTE = state.inputs.w_VD.at[batch.x].get(mode="fill", fill_value=0)
    carry = exp.model.initial_carry(len(batch.x))
    h_BTD, _ = exp.model.apply({"params": state.params}, rows_BTE, carry)
    h_BD = h_BTD[jnp.arange(len(batch.x)), batch.at]
    order_BV, _ = top_k(state.head, h_BD, len(data.vocabulary))
    for order_V, y, w, seen in zip(order_BV, *batch.y[:2], batch.seen, strict=True):
      left = [id for id in np.asarray(order_V).tolist() if id not in set(seen.tolist())]
      if w[0]:
        ranks.append(1 + left.index(y[0]) if y[0] in left else None)
  for name, value in metrics_of(ranks).items():
    assert measured[name] == pytest.approx(value, rel=1e-6), name


def test_baselines_leave_out_seen_items(model):
  exp, data, _, _ = model
  models = baselines.counted(exp, data)
  assert list(models) == ["popularity", "last item"]
  pairs = [
    pair
    for user in range(len(data.users))
    for part in [data.history(user).tolist()[:-2][-T - 1 :]]
    for pair in itertools.pairwise(part)
  ]
  num, counts_V = len(data.vocabulary), data.vocabulary.counts_V
  after = np.zeros((num, num))
  np.add.at(after, tuple(zip(*pairs, strict=True)), 1)
  assert np.array_equal(models["last item"]._pairs.toarray()[:num], after)
  for name, law in models.items():
    measured = baselines.measure(law, exp, data.counts, held_out(exp, data)["test"])
    ranks = []
    for before, label in split_of(data, "test"):
      ids = np.arange(num)[None]
      score_V = law.log_p(np.array(before[-1:]), ids)[0]
      if name == "popularity":
        assert (np.argsort(-score_V) == np.argsort(-counts_V, kind="stable")).all()
      ranks.append(rank_of(score_V, label, set(before)))
    for key, value in metrics_of(ranks).items():
      assert measured[key] == pytest.approx(value, rel=1e-6), (name, key)


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
  directory = tmp_path_factory.mktemp("run")
  text = "".join(f"u{i} " + " ".join(f"i{i * j % 9}" for j in range(5)) + "\n"
                 for i in range(1, 9))  # fmt: skip
  (directory / "users.txt").write_text(text)
  data = c.part(
    *("data", "interactions"),
    path=str(directory / "users.txt"),
    lines="histories",
    cache_dir=str(directory / "cache"),
  )
  run = settings(data=data, hit_k=(2,))
  train.train(c.build(run), run.to_dict(), str(directory / "run"))
  return str(directory / "run")


def ask(workdir, capsys, path, *flags):
  status = main.run(
    ["main", "--mode=predict", f"--workdir={workdir}", f"--input={path}", *flags]
  )
  out, err = capsys.readouterr()
  return status, [json.loads(line) for line in out.splitlines()], err


def test_recommendations_are_printed_as_json_lines(workdir, tmp_path, capsys):
  exp = c.build(c.of_workdir(workdir))
  data, state = restore(exp, workdir, "latest")
  path = tmp_path / "queries"
  path.write_text("u3\nnew i1 i2 i1\nu3 i1 i2 i1\n")
  status, said, err = ask(workdir, capsys, path, "--top_k=3")
  assert (status, err) == (0, "")
  assert [(one["line"], one["user"]) for one in said] == [(1, "u3"), (2, "new"),
                                                          (3, "u3")]  # fmt: skip
  assert said[1]["items"] == said[2]["items"] != said[0]["items"]
  known = data.vocabulary.decode(data.history(data.users.index("u3")))
  assert len(known) == 5
  w_VD = np.asarray(state.head.table.w_VD, np.float64)
  for one, items in zip(said, (known, ["i1", "i2", "i1"], ["i1", "i2", "i1"])):  # noqa: B905
    x = np.array([[data.vocabulary.words.index(item) for item in items]])
    rows_BTE, carry = state.inputs.w_VD[x], exp.model.initial_carry(1)
    h_BTD, _ = exp.model.apply({"params": state.params}, rows_BTE, carry)
    o_V = w_VD @ np.asarray(exp.head.features(h_BTD[0, -1:]), np.float64)[0]
    log_p_V = o_V - np.logaddexp.reduce(o_V)
    order = [id for id in np.argsort(-log_p_V) if id not in x]
    assert one["items"] == data.vocabulary.decode(order[:3])
    assert one["scores"] == pytest.approx(log_p_V[order[:3]], abs=1e-5)


def test_seen_items_are_recommended_on_request(workdir, tmp_path, capsys):
  path = tmp_path / "queries"
  path.write_text("u3\n")
  num = len(c.build(c.of_workdir(workdir)).data.load().vocabulary)
  for hides, left in ((True, num - 3), (False, num)):
    flags = f"--top_k={num}", f"--config.eval.hide_seen={hides}"
    _, said, _ = ask(workdir, capsys, path, *flags)
    assert len(said[0]["items"]) == left


def test_unknown_users_are_reported(workdir, tmp_path, capsys):
  path = tmp_path / "queries"
  path.write_text("nobody\n\nu1 i99\nu1\n")
  status, said, err = ask(workdir, capsys, path)
  assert status == 1
  assert [one["line"] for one in said] == [4]
  assert "line 1: 'nobody' is not a user" in err
  for words in ("line 2: no user", "line 3: 'i99' is"):
    assert words in err


def test_network_with_one_output_is_refused_for_many_labels():
  mlp = c.part("model", "mlp", history=T, embed=4, hidden=4)
  wrong = settings()
  wrong = c.experiment(
    data=DATA, model=mlp, head=c.head("full"), optimizer=c.part("optimizer", "sgd"),
    train=c.Training(max_steps=2, batch_size=8, unroll=T),
    eval=c.Evaluating(batch_size=16, unroll=T, hit_k=(2,)),
  )  # fmt: skip
  from largevocab.training.step import train_step

  exp = c.build(wrong)
  data = exp.data.load()
  state = init_state(exp, data)
  batch = data.training_batches(8, T).batch(0)
  with pytest.raises(
    UserError, match=r"6 labels per example, but the network has 1 activation"
  ):
    jax.eval_shape(lambda s, b: train_step(s, b, 0.1, exp=exp), state, batch)
  wrong.data.one_label = True
  exp = c.build(wrong)
  batch = exp.data.load().training_batches(8, T).batch(0)
  after = jax.eval_shape(lambda s, b: train_step(s, b, 0.1, exp=exp), state, batch)
  assert after.step.shape == ()
