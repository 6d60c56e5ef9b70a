"""The report on the variance of the estimated normaliser, against formulas."""

import json
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import config, main
from largevocab.errors import UserError
from largevocab.heads import Sampled
from largevocab.labels import Counts, Targets
from largevocab.tools import relvar_report
from largevocab.tools.reports import positions
from largevocab.training.state import restore

REPOSITORY = pathlib.Path(relvar_report.__file__).parents[2]
M = 16
HEADS = [
  f"uniform:num_samples={M}",
  f"uniform:num_samples={M}:exact_frequent=40",
  f"bernoulli:num_samples={M}",
  f"pps/shuffled:num_samples={M}",
  "pps:num_samples=1000",
]


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
  """A run whose softmax is far from flat."""
  path = tmp_path_factory.mktemp("run")
  given = f"--config={REPOSITORY}/configs/ptb.py:full,runlocal"
  flags = [f"--workdir={path}", "--config.head.init_scale=3.0"]
  assert main.run(["main", given, *flags]) == 0
  return str(path)


def formula(workdir, text):
  """The mean of Var(Z~) / Z^2, by Barber & Botev 2016, equations 18 and 21."""
  exp = config.build(config.of_workdir(workdir))
  data, state = restore(exp, workdir, "latest")
  batches = data.evaluation_batches("valid", exp.eval.batch_size, exp.eval.unroll)
  h_ND, y = positions.positions_of(exp, state, batches, 32, data.counts.num_classes)
  head, _ = relvar_report.head_of(text, exp.head)
  x_ND, w_VD = head.features(h_ND), state.head.table.w_VD
  stats = head.sampler.init(data.counts, w_VD, head.num_samples)
  o_NV = np.asarray(x_ND @ w_VD.T, np.float64)
  p_NV = np.exp(o_NV - o_NV.max(1, keepdims=True))
  p_NV /= p_NV.sum(1, keepdims=True)
  p_NV[np.arange(len(p_NV)), np.asarray(y.ids_NP[:, 0])] = 0
  p_NV[:, np.argsort(-data.counts.unigram_V, kind="stable")[: head.exact_frequent]] = 0
  ids_V = np.arange(len(w_VD))
  expected_V = np.exp(head.sampler.log_expected(stats, w_VD, x_ND, y, ids_V))
  if text.startswith("bernoulli"):
    return (p_NV**2 * (1 / expected_V - 1)).sum(1).mean()
  variance_N = (p_NV**2 / expected_V).sum(1) - p_NV.sum(1) ** 2 / head.num_samples
  return variance_N.mean()


@pytest.mark.long
def test_measured_relvar_matches_the_formulas(workdir, tmp_path):
  output = tmp_path / "out" / "results.jsonl"
  flags = [f"--workdir={workdir}", f"--output={output}", "--positions=32"]
  assert relvar_report.main([*flags, "--draws=3000", *HEADS]) == 0
  rows = [json.loads(line) for line in output.read_text().splitlines()]
  assert [row["name"] for row in rows] == HEADS
  for row in rows[:3]:
    assert row["relvar"] == pytest.approx(formula(workdir, row["name"]), rel=0.15)
  for row in rows:
    error = 5 * np.sqrt(row["relvar"] / row["draws"]) + 1e-6
    assert row["mean_ratio"] == pytest.approx(1, abs=error), row["name"]
  # Every class is drawn, so nothing is estimated.
  assert rows[-1]["relvar"] < 1e-9
  assert rows[-1]["classes"] >= rows[-1]["num_classes"] - 1
  assert rows[3]["classes"] <= M


def test_shuffled_classes_keep_their_contexts_and_padding():
  """Counts, rows and word pairs still belong to the same classes."""
  tokens, w_VD = np.array([0, 1, 0, 2]), jnp.arange(4.0)[:, None]
  y = Targets(jnp.array([[0, 4], [2, 3]]), jnp.ones((2, 2)), jnp.array([1, 2]))
  given = positions.Positions(jnp.ones((2, 1)), y)
  counts, new_w_VD, new = relvar_report.shuffled(
    Counts(np.array([2, 1, 1, 0]), tokens), w_VD, given
  )
  row_of = lambda ids: np.asarray(new_w_VD)[np.asarray(ids), 0]
  np.testing.assert_array_equal(row_of(counts.tokens), tokens)
  np.testing.assert_array_equal(row_of(new.y.context_N), y.context_N)
  np.testing.assert_array_equal(row_of(new.y.ids_NP[1]), y.ids_NP[1])
  assert row_of(new.y.ids_NP[0, 0]) == 0
  assert new.y.ids_NP[0, 1] == 4  # no class
  np.testing.assert_array_equal(counts.unigram_V[counts.tokens], [2, 1, 2, 1])


@pytest.mark.parametrize(
  ("text", "message"),
  [
    ("uniforn", "sampler is 'uniforn'"),
    ("pps/sorted", "only 'shuffled' can follow '/'"),
    ("pps:num_sample=3", "'num_sample' is not a field; did you mean 'num_samples'"),
    ("pps:power=x", "power is 'x', but must be of type float"),
  ],
)
def test_wrong_heads_are_named(text, message):
  with pytest.raises(UserError, match=message):
    relvar_report.head_of(text, Sampled())
