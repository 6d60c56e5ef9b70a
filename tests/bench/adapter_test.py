"""Adapters: what they get, and how their output is measured."""

import dataclasses
import itertools
import pathlib
import re
import sys

import jax
import numpy as np
import pytest

from largevocab import baselines, config
from largevocab.bench import adapter
from largevocab.bench.adapter import Given
from largevocab.bench.measure import Measure
from largevocab.errors import Diverged, UserError
from largevocab.evaluation.evaluate import held_out
from tests.bench.counting import METHOD, TINY, Counting

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "bench.md"
V, B, T = 30, 4, 5
PEERS = {
  "torch": "largevocab.bench.adapters.torch_adaptive:TorchAdaptive",
  "tensorflow": "largevocab.bench.adapters.tensorflow_sampled:TensorFlowSampled",
}
ITEMS = "next_item:{},runlocal,data=diginetica"
LABELS = "xmlc:{},runlocal,data=synthetic"
OPTIONS = {"torch": {"div_value": 1.5}, "tensorflow": {"num_samples": 10}}
SMALL = dataclasses.replace(
  TINY,
  digest="",
  fixed={**TINY.fixed, "data.num_classes": V, "train.epochs": 100, "train.unroll": T},
)


@pytest.mark.parametrize(
  ("name", "says"),
  [
    ("StopsEarly", "before it took all steps up to 5: it must take every step"),
    ("GivesScores", r"\[20\]"),
    ("GivesTooFew", "one array for each batch"),
    ("GivesTooMany", "one array for each batch"),
    ("HasNoVersion", "which is not an imported module with a `__version__`"),
    ("HasNoPackages", "`packages` is empty; name the modules that it imports"),
    ("ForgetsTheMinus", "is the minus missing"),
    ("HasAPairForADevice", r"`device` gave \('GPU', 7.0\), but must give None or"),
    ("HasAnInfinityForMemory", r"`device` gave Device\(.*inf\), .* a finite number"),
    ("HasNoNameForADevice", r"`device` gave Device\(name='', peak_mib=7.0\)"),
    ("HasAStringForPackages", "`packages` has 'numpy2', which is not an imported mod"),
    ("ForgetsToNormalise", r"probabilities that sum to \d+.* over all classes: norm"),
  ],
)
def test_faults_of_an_adapter_are_reported(name, says):
  with pytest.raises(UserError, match=says):
    adapter.run(TINY, METHOD.replace("Counting", name), 0, "", [])


def test_adapter_cannot_change_what_the_metric_reads():
  own, changing = METHOD, METHOD.replace("Counting", "ChangesWeights")
  expected, found = (adapter.run(TINY, name, 0, "", []) for name in (own, changing))
  assert (found["valid"], found["test"]) == (expected["valid"], expected["test"])


def test_adapter_error_names_the_adapter_and_the_line(capsys):
  name = METHOD.replace("Counting", "HasAnError")
  says = rf"^--adapter={name}: TypeError: .*, in line \d+ of .*counting.py; fix it"
  with pytest.raises(UserError, match=says) as error:
    adapter.run(TINY, name, 0, "", [])
  assert isinstance(error.value.__cause__, TypeError)
  trace = capsys.readouterr().err
  assert trace.startswith("Traceback")
  assert "len(3)" in trace


@pytest.mark.parametrize("call", ["train", "evaluate"])
def test_batch_error_is_not_blamed_on_the_adapter(call):
  """Even if the error is raised inside a call of the adapter."""
  exp = config.build(TINY.settings())
  given = Given(exp.data.load(), exp.model, exp.train, 0)
  model = adapter._Named("mine:Mine", Counting, given)
  lost = (1 // 0 for _ in range(1))
  with pytest.raises(ZeroDivisionError):
    model.train(lost) if call == "train" else list(model.evaluate(lost, 0))


def test_module_that_cannot_be_imported_is_named(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, "path", [*sys.path])
  (tmp_path / "own_code.py").write_text("def f(:\n")
  with pytest.raises(UserError, match=r"^--adapter=own_code:f: SyntaxError: .*line 1"):
    adapter.load("own_code:f")


@pytest.mark.parametrize(
  ("name", "step"), [("Diverges", 5), ("GivesInfinity", 5), ("SaysThatItDiverged", 3)]
)
def test_nonfinite_loss_ends_the_run(name, step):
  line = adapter.run(TINY, METHOD.replace("Counting", name), 0, "", [])
  assert line["diverged"] == step
  assert "valid" not in line


def test_accelerators_are_left_to_the_adapter():
  """JAX uses only the CPU, which the line names if there is no accelerator."""
  before = jax.config.jax_platforms
  try:
    jax.config.update("jax_platforms", None)
    line = adapter.run(TINY, METHOD.replace("Counting", "OnAnAccelerator"), 0, "", [])
    assert jax.config.jax_platforms == "cpu"
  finally:
    jax.config.update("jax_platforms", before)
  assert (line["device"], line["peak_mib"]) == ("GPU", 7.0)


def test_examples_without_weight_do_not_count():
  """Whatever an adapter returns for such examples."""
  exp = config.build(TINY.settings())
  data = exp.data.load()
  counting, measure = Counting(Given(data, exp.model, exp.train, 0)), {}
  for padding in (0.0, np.nan, -9.0):

    class Padded(Counting):
      def evaluate(self, batches, k, padding=padding):
        for batch in batches:
          (nll_N,) = counting.evaluate([batch], k)
          yield np.where(batch.y.w_NP[:, 0], nll_N, padding)

    model = Padded(Given(data, exp.model, exp.train, 0))
    batches = data.evaluation_batches("valid", 7, 5)
    assert any(not batch.y.w_NP.all() for batch in batches)
    measure[padding] = Measure(exp, data)(model, batches)["ppl"]
  assert len(set(measure.values())) == 1


def test_rates_follow_the_schedule():
  chosen = ["train.lr=3", "train.schedule=linear"]
  exp = config.build(TINY.settings(chosen=chosen))
  data = exp.data.load()
  counting = Counting(Given(data, exp.model, exp.train, 0))
  adapter._train(counting, exp, data, "ppl")
  np.testing.assert_allclose(counting.rates, 3 * (1 - np.arange(20) / 20), rtol=1e-6)


def of_page(number):
  """The names that a program on the page defines."""
  programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
  assert len(programs) == 2
  names: dict = {}
  exec(programs[number], names)
  return names


def test_output_layer_on_the_page_learns():
  pytest.importorskip("torch")
  exp = config.build(SMALL.settings(chosen=["train.lr=5"]))
  data = exp.data.load()
  model = of_page(1)["FullSoftmax"](Given(data, exp.model, exp.train, 0))
  ended = adapter._train(model, exp, data, "ppl")
  assert 1 < ended["valid"] < 0.75 * V
  batch = next(iter(held_out(exp, data)["valid"]))
  assert next(model.evaluate([batch], 3)).shape == (len(batch.y.ids_NP), 3)


def test_output_layer_on_the_page_clips_gradients():
  pytest.importorskip("torch")
  exp = config.build(SMALL.settings(chosen=["train.lr=5", "train.clip_norm=1e-9"]))
  data = exp.data.load()
  model = of_page(1)["FullSoftmax"](Given(data, exp.model, exp.train, 0))
  before = model.out.weight.detach().numpy().copy()
  adapter._train(model, exp, data, "ppl")
  np.testing.assert_allclose(model.out.weight.detach().numpy(), before, atol=1e-5)


@pytest.mark.parametrize(
  ("settings", "metric"), [(TINY.config, "ppl"), (LABELS, "p@1")]
)
def test_example_on_the_page_is_an_adapter(settings, metric):
  """For words, and for examples with several labels."""
  names = of_page(0)
  exp = config.build(dataclasses.replace(TINY, config=settings).settings())
  data = exp.data.load()
  given = Given(data, exp.model, exp.train, 0)
  own, ours = names["Counting"](given), Counting(given)
  ends = [adapter._train(model, exp, data, metric)["test"] for model in (own, ours)]
  assert ends[0] == pytest.approx(ends[1])
  np.testing.assert_array_equal(own.count_V, ours.count_V)
  batches = held_out(exp, data)["valid"]
  assert next(own.evaluate(batches, 3)).shape == next(ours.evaluate(batches, 3)).shape


def test_rankings_are_measured_like_those_of_baselines():
  """Ranking by counts of all training examples equals the popularity baseline."""
  config_of_items = "next_item:{},runlocal,data=diginetica"
  task = dataclasses.replace(TINY, config=config_of_items, metric="recall@20")
  exp = config.build(task.settings())
  data = exp.data.load()
  counting = Counting(Given(data, exp.model, exp.train, 0), prior=0)
  counting.count_V = data.counts.unigram_V.astype(float)
  popular = baselines.counted(exp, data)["popularity"]
  for batches in held_out(exp, data).values():
    expected = baselines.measure(popular, exp, data.counts, batches)
    found = Measure(exp, data)(counting, batches)
    assert found["recall@20"] == pytest.approx(expected["recall@20"], rel=1e-6)
    assert found["recall@20"] > 0


@pytest.fixture(scope="module", params=PEERS)
def peer(request):
  """An adapter of another package after some training, its losses, and the data."""
  pytest.importorskip(request.param)
  exp = config.build(SMALL.settings())
  data = exp.data.load()
  given = Given(data, exp.model, exp.train, 0)
  model = adapter.load(PEERS[request.param])(given, **OPTIONS[request.param])
  batches = data.training_batches(B, T)
  valid = held_out(exp, data)["valid"]
  losses = []
  for start in range(0, 600, 200):
    steps = (adapter.Step(batches.batch(i), 2.0) for i in range(start, start + 200))
    model.train(steps)
    losses.append(Measure(exp, data)(model, valid)["nll"])
  return model, losses, data


def test_peer_adapter_learns(peer):
  _, losses, data = peer
  share_V = data.counts.unigram_V / data.counts.unigram_V.sum()
  entropy = -np.sum(share_V * np.log(np.maximum(share_V, 1e-9)))
  assert losses[-1] < losses[0]
  assert losses[-1] < 1.05 * entropy < np.log(V)


def test_peer_probabilities_sum_to_one(peer):
  """Each class in turn as the label of the same inputs."""
  model, _, data = peer
  batch = next(iter(data.evaluation_batches("valid", B, T)))
  labelled = [
    batch._replace(y=batch.y._replace(ids_NP=np.full_like(batch.y.ids_NP, c)))
    for c in range(V)
  ]
  nll_VN = [next(iter(model.evaluate([each], 0))) for each in labelled]
  np.testing.assert_allclose(np.exp(-np.array(nll_VN)).sum(0), 1, rtol=1e-4)


def test_peer_evaluation_keeps_the_training_state(peer):
  """Evaluation starts from a fresh state and does not change the training state."""
  model, _, data = peer
  batches = list(itertools.islice(data.evaluation_batches("test", B, T), 3))
  whole = list(model.evaluate(batches, 0))
  before = model._state
  again = list(model.evaluate(batches, 0))
  np.testing.assert_array_equal(np.array(whole), np.array(again))
  assert model._state is before


@pytest.fixture(scope="module", params=PEERS)
def trained(request):
  """A function that trains an adapter of another package on a task."""
  module = adapter.load(PEERS[request.param]).__module__
  pytest.importorskip(request.param)

  def train(settings, metric, steps):
    exp = config.build(
      dataclasses.replace(TINY, config=settings, metric=metric).settings()
    )
    data = exp.data.load()
    given = Given(data, exp.model, exp.train, 0)
    make = adapter.load(PEERS[request.param])
    model = make(given, optimizer="adagrad", **OPTIONS[request.param])
    batches = data.training_batches(exp.train.batch_size, exp.train.unroll)
    model.train(adapter.Step(batches.batch(i), 0.1) for i in range(steps))
    return model, exp, data

  train.module = module
  return train


def test_peer_ranks_labels_better_than_by_counts(trained):
  model, exp, data = trained(LABELS, "p@1", steps=400)
  counted = baselines.counted(exp, data)["label frequency"]
  batches = held_out(exp, data)["valid"]
  least = baselines.measure(counted, exp, data.counts, batches)["p@1"]
  assert Measure(exp, data)(model, batches)["p@1"] > 1.3 * least > 0


def test_peer_best_classes_are_the_most_probable(trained, monkeypatch):
  """Each class in turn is the label; the best classes are found in chunks."""
  monkeypatch.setattr(f"{trained.module}.CHUNK", 3)
  model, exp, data = trained(ITEMS, "recall@20", steps=20)
  batch = next(iter(held_out(exp, data)["valid"]))
  labelled = [
    batch._replace(y=batch.y._replace(ids_NP=np.full_like(batch.y.ids_NP, c)))
    for c in range(data.counts.num_classes)
  ]
  nll_NV = np.stack([next(iter(model.evaluate([y], 0))) for y in labelled], axis=1)
  (best_NK,) = model.evaluate([batch], 20)
  own_NK = np.take_along_axis(nll_NV, best_NK, axis=1)
  np.testing.assert_allclose(own_NK, np.sort(nll_NV, axis=1)[:, :20], rtol=1e-4)
  assert all(len(set(row)) == 20 for row in best_NK.tolist())


@pytest.mark.parametrize("name", PEERS)
def test_peer_notices_a_nonfinite_loss(name):
  """Also if only the best classes are evaluated."""
  pytest.importorskip(name)
  exp = config.build(dataclasses.replace(TINY, config=ITEMS).settings())
  data = exp.data.load()
  given = Given(data, exp.model, exp.train, 0)
  model = adapter.load(PEERS[name])(given, **OPTIONS[name])
  batches = data.training_batches(exp.train.batch_size, exp.train.unroll)
  model.train(adapter.Step(batches.batch(step), 0.1) for step in range(3))
  with pytest.raises(Diverged) as error:
    model.train(adapter.Step(batches.batch(step), 1e38) for step in range(3, 7))
  assert error.value.step == 7


def test_independent_negatives_can_outnumber_the_classes():
  """Distinct negatives cannot."""
  pytest.importorskip("tensorflow")
  exp = config.build(SMALL.settings())
  data = exp.data.load()
  given = Given(data, exp.model, exp.train, 0)
  make = adapter.load(PEERS["tensorflow"])
  model = make(given, num_samples=2 * V, unique=False)
  batches = data.training_batches(B, T)
  model.train(adapter.Step(batches.batch(i), 2.0) for i in range(200))
  nll = Measure(exp, data)(model, held_out(exp, data)["valid"])["nll"]
  assert 0 < nll < np.log(V)


def test_unknown_optimizer_is_named():
  for peer in PEERS.values():
    with pytest.raises(UserError, match=r"optimizer is 'sdg'.*adagrad, adam, sgd"):
      adapter.load(peer)(None, optimizer="sdg")
