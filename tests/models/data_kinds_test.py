"""Each network with each kind of data: it trains and is evaluated, or is refused."""

import functools
import re

import jax
import numpy as np
import pytest

from largevocab import config as c
from largevocab.errors import UserError
from largevocab.evaluation import predict
from largevocab.evaluation.evaluate import Evaluate, held_out
from largevocab.models import MODELS
from largevocab.train import train
from largevocab.training.state import init_state
from largevocab.training.step import monitor, train_step
from tests.long import others_long

TEXT, ITEMS, LABELS = "zipf", "zipf_items", "zipf_labels"
FEATURES = "softmax_regression"
UNROLL = {TEXT: 5, ITEMS: 1, LABELS: 1, FEATURES: 1}
ONE_BAG = "this model reads one bag of features: set model.name to"
REFUSED = {
  ("bag", TEXT): ONE_BAG,
  ("bag", ITEMS): ONE_BAG,
  ("mlp", TEXT): "the data has 5 labels per example, but the network has 1 activation",
}


@functools.cache
def experiment(model, data):
  sizes = {"history": {TEXT: 5, ITEMS: 3}.get(data, 1)} if model == "mlp" else {}
  exp = c.build(
    c.experiment(
      runlocal=True,
      data=c.part("data", data),
      model=c.part("model", model, **sizes),
      head=c.head("full", init_scale=1.0),
      optimizer=c.part("optimizer", "adagrad"),
      train=c.Training(unroll=UNROLL[data], lr=0.1),
      eval=c.Evaluating(unroll=UNROLL[data]),
    )
  )
  loaded = loaded_by(exp.data)
  if not loaded.num_inputs:
    x_BTF = loaded.training_batches(4, 1).batch(0).x
    model = exp.model.clone(embed=x_BTF.shape[-1])
    exp = c.Experiment(**{**vars(exp), "model": model})
  return exp


@functools.cache
def loaded_by(data):
  return data.load()


@pytest.mark.parametrize("data", UNROLL)
@pytest.mark.parametrize("model", MODELS)
def test_each_network_reads_or_refuses_each_kind_of_data(model, data):
  """Traced, not compiled: no other part of the trainer depends on the network."""
  exp = experiment(model, data)
  loaded = loaded_by(exp.data)
  batch = loaded.training_batches(4, UNROLL[data]).batch(0)

  def once():
    state = init_state(exp, loaded)
    return train_step(state, batch, 0.1, exp=exp), monitor(state, batch, exp=exp)

  if message := REFUSED.get((model, data)):
    with pytest.raises(UserError, match=re.escape(message)) as error:
      jax.eval_shape(once)
    assert "\n" not in str(error.value)
  else:
    state, _ = jax.eval_shape(once)
    assert state.loss_sum.shape == ()


@pytest.mark.parametrize(
  "model", others_long(["lstm", "gru", "transformer"], ["transformer"])
)
def test_item_histories_are_read_from_zero_in_evaluation(model):
  """Metrics do not depend on the batch size: nothing leaks between examples."""
  small = experiment(model, ITEMS)
  large = small.model.clone(init_scale=1.0)  # states that matter
  exp = c.Experiment(**{**vars(small), "model": large})
  data = loaded_by(exp.data)
  state = init_state(exp, data)
  evaluate = Evaluate(exp, data.counts)
  few = evaluate(state, data.evaluation_batches("valid", 4, 1))
  all_at_once = evaluate(state, data.evaluation_batches("valid", len(data.valid), 1))
  assert few["nll"] == pytest.approx(all_at_once["nll"], rel=1e-6)
  shuffled = np.random.default_rng(0).permutation(data.valid)
  data = type(data)(data.vocabulary, data.train, shuffled, data.test)
  again = evaluate(state, held_out(exp, data)["valid"])
  assert again["nll"] == pytest.approx(few["nll"], rel=1e-6)


def test_next_words_without_a_state_follow_the_last_window():
  """The window is as long as in training; a recurrent state covers more."""
  ids = np.arange(2, 11, dtype=np.int32)
  for name in ("transformer", "gru"):
    exp = experiment(name, TEXT)
    data = loaded_by(exp.data)
    model = predict.language_model(exp, data.vocabulary, init_state(exp, data))
    whole = predict.next_words(model, ids, 3)
    last = predict.next_words(model, ids[-exp.train.unroll :], 3)
    shorter = predict.next_words(model, ids[1 - exp.train.unroll :], 3)
    assert (whole == last) == (name == "transformer")
    assert whole != shorter


@pytest.mark.long
def test_run_on_item_histories_learns_and_answers(tmp_path):
  short = experiment("transformer", ITEMS)
  rare = {"eval": c.Evaluating(every_epochs=0, unroll=1), "log": c.Logging()}
  longer = c.Training(batch_size=64, unroll=1, lr=0.3, epochs=3)
  exp = c.Experiment(**{**vars(short), **rare, "train": longer})
  parts = {"data": ITEMS, "model": "transformer", "head": "full"}
  names = {part: {"name": name} for part, name in parts.items()}
  result = train(exp, names, str(tmp_path))
  num_items = len(loaded_by(exp.data).vocabulary)
  assert result["valid_ppl"] < num_items / 2
  model = predict.load(exp, str(tmp_path), "latest")
  short, long = (model.queries.read(line) for line in ("3", "5 4 3 3 3 7"))
  best = predict.rank(model, [short, long], k=3)
  assert [len(each) for each in best] == [3, 3]
  assert best[0] != best[1]
