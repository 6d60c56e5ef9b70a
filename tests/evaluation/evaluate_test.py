"""Evaluation, compared with a loop over single tokens."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import config as c
from largevocab.data import EvaluationBatches
from largevocab.evaluation.evaluate import Evaluate, evaluate_workdir
from largevocab.train import train
from largevocab.training.state import init_state
from tests.long import others_long

V = 20


@pytest.fixture(scope="module")
def trained():
  """A network and its tables with random values, and a text of 37 words."""
  settings = c.experiment(
    data=c.part("data", "zipf", num_classes=V, num_tokens=370),
    model=c.part("model", "lstm", embed=5, hidden=6, layers=2, dropout=0.5),
    head=c.head("full", init_scale=1.0),
    optimizer=c.part("optimizer", "sgd"),
  )
  exp = c.build(settings)
  corpus = exp.data.load()
  assert len(corpus.test) == 37
  return exp, init_state(exp, corpus), corpus


def nll_of_each(exp, state, tokens, first):
  """The nll of each token of one stream, computed one by one in float64."""
  w_VD = np.asarray(state.head.table.w_VD, np.float64)
  network = jax.jit(exp.model.apply)
  carry, before, nll = exp.model.initial_carry(1), first, []
  for token in tokens:
    row = state.inputs.w_VD[before][None, None]
    h_BTD, carry = network({"params": state.params}, row, carry)
    x = np.asarray(exp.head.features(h_BTD[0]), np.float64)[0]
    logits = w_VD @ x
    nll.append(np.log(np.sum(np.exp(logits))) - logits[token])
    before = token
  return nll


@pytest.mark.parametrize(
  ("batch_size", "unroll"),
  others_long([(1, 37), (1, 5), (3, 4), (5, 8)], [(1, 37), (3, 4)]),
)
def test_every_token_counts_once(trained, batch_size, unroll):
  exp, state, corpus = trained
  first = corpus.vocabulary.eos
  tokens = corpus.test
  length = -(-len(tokens) // batch_size)
  nll = []
  for begin in range(0, len(tokens), length):
    before = tokens[begin - 1] if begin else first
    nll += nll_of_each(exp, state, tokens[begin : begin + length], before)
  assert len(nll) == 37

  batches = EvaluationBatches(tokens, batch_size, unroll, first)
  metrics = Evaluate(exp, corpus.counts)(state, batches)
  assert metrics["nll"] == pytest.approx(np.mean(nll), rel=1e-6)
  assert metrics["ppl"] == pytest.approx(np.exp(np.mean(nll)), rel=1e-5)


def test_padding_does_not_count(trained):
  """Further padded steps, and rows that only padding reads, change nothing."""
  exp, state, corpus = trained
  values = []
  evaluate = Evaluate(exp, corpus.counts)
  for unroll in (37, 40, 100):
    batches = EvaluationBatches(corpus.test, 1, unroll, 0)
    values.append(evaluate(state, batches)["nll"])
  assert values == pytest.approx([values[0]] * 3, rel=1e-6)


def test_evaluation_does_not_change_the_state(trained):
  exp, state, corpus = trained
  before = jax.tree.map(jnp.copy, state)
  evaluate = Evaluate(exp, corpus.counts)
  batches = corpus.evaluation_batches("test", 4, 3)
  assert evaluate(state, batches) == evaluate(state, batches)
  for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(state), strict=True):
    assert (a == b).all()


@pytest.mark.parametrize("unroll", others_long([37, 5], [5]))
def test_normaliser_mean_and_spread_are_over_all_tokens(trained, unroll):
  """Also if it is far from 0, where squares lose their last digits."""
  exp, state, corpus = trained
  exp = dataclasses.replace(exp, head=c.head("nce/uniform", num_samples=4))
  head = init_state(exp, corpus).head
  w_VD = 500 * state.head.table.w_VD
  state = state._replace(head=head._replace(table=head.table._replace(w_VD=w_VD)))
  (whole,) = EvaluationBatches(corpus.test, 1, 37, 0)
  h_BTD, _ = exp.model.apply(
    {"params": state.params}, state.inputs.w_VD[whole.x], exp.model.initial_carry(1)
  )
  log_z_N = exp.head.evaluate(state.head, h_BTD[0], whole.y)["log_z"]
  log_z_N = np.asarray(log_z_N, np.float64)
  batches = EvaluationBatches(corpus.test, 1, unroll, 0)
  metrics = Evaluate(exp, corpus.counts)(state, batches)
  assert metrics["log_z"] == pytest.approx(log_z_N.mean(), rel=1e-6)
  assert metrics["log_z_sd"] == pytest.approx(log_z_N.std(), rel=1e-5)


def test_word_pairs_are_evaluated_with_the_validation_data(tmp_path):
  """They are in metrics.jsonl, in result.json and from `evaluate_workdir`."""
  path = tmp_path / "pairs.csv"
  path.write_text("a,b,score\nw2,w3,1\nw4,w5,2\nw6,w7,3\n")
  settings = c.experiment(
    runlocal=True,
    data=c.part("data", "text"),
    model=c.part("model", "ngram"),
    head=c.head("full"),
    optimizer=c.part("optimizer", "sgd"),
    eval=c.Evaluating(word_pairs=(str(path),)),
  )
  settings.eval.every_epochs = 3 / 50
  exp, workdir = c.build(settings), tmp_path / "run"
  result = train(exp, settings.to_dict(), str(workdir))
  lines = (workdir / "metrics.jsonl").read_text().splitlines()
  lines = [json.loads(line) for line in lines]
  names = {"pairs_input", "pairs_output"}
  measured = [line for line in lines if names & set(line)]
  places = [(line["step"], line["split"]) for line in measured]
  assert places == [(3, "valid"), (5, "valid")]
  later = evaluate_workdir(exp, str(workdir), "latest")
  for name in names:
    assert -1 <= measured[-1][name] <= 1
    assert result[f"valid_{name}"] == later[f"valid_{name}"] == measured[-1][name]
    assert f"test_{name}" not in result.keys() | later.keys()
