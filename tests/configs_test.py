"""Every config with every head, and every point of every sweep."""

import ast
import dataclasses
import itertools
import json
import pathlib
import re
import shlex

import numpy as np
import pytest

from largevocab import command_line, config, main
from largevocab.errors import UserError
from largevocab.tools.sweeps import sweepfile

REPOSITORY = pathlib.Path(__file__).parents[1]
CONFIGS = sorted(REPOSITORY.glob("configs/*.py"))
SWEEPS = sorted(REPOSITORY.glob("experiments/*/sweep.py"))
name_of = lambda path: str(path.relative_to(REPOSITORY))


# Every head, and every sampler under one of them.
PATHS = [
  path
  for path in config.head_paths()
  if path.startswith(("sampled/", "spherical/"))
  or path.endswith("/pps")
  or "/" not in path
]


@pytest.mark.parametrize("head", PATHS)
@pytest.mark.parametrize("path", CONFIGS, ids=name_of)
def test_every_config_builds_with_every_head(path, head):
  for arg in (head, f"{head},runlocal"):
    exp = config.build(command_line.load(f"{path}:{arg}"))
    name, _, inner = head.partition("/")
    assert config.head_names()[name] is type(exp.head)
    if name in config.sampled_heads():
      assert config.sampled_heads()[name] is type(exp.head.loss)
    if inner:
      kind = "loss" if name == "spherical" else "sampler"
      assert config.REGISTRIES[kind][inner] is type(getattr(exp.head, kind))


@pytest.mark.long
@pytest.mark.parametrize("path", CONFIGS, ids=name_of)
def test_every_config_trains_locally(path, tmp_path):
  flags = [f"--config={path}:runlocal", f"--workdir={tmp_path}"]
  assert main.run(["main", *flags]) == 0
  assert json.loads((tmp_path / "result.json").read_text())["steps"] == 5
  # The workdir describes the same run.
  settings = command_line.load(f"{path}:runlocal")
  assert config.build(config.of_workdir(str(tmp_path))) == config.build(settings)


OF_TEXT = ("enwiki8", "europarl", "lm1b", "ngram", "ptb", "quickstart", "text")


@pytest.mark.parametrize("path", CONFIGS, ids=name_of)
@pytest.mark.parametrize(
  ("loss", "sgd", "adagrad"),
  [("taylor", 500.0, 100.0), ("spherical", 100.0, 20.0), ("squared", 0.003, 0.003)],
)
def test_factored_heads_have_the_same_rate_in_all_text_configs(
  path, loss, sgd, adagrad
):
  exp = config.build(command_line.load(f"{path}:spherical/{loss}"))
  assert (path.stem in OF_TEXT) == hasattr(exp.data, "words")
  if path.stem in OF_TEXT:
    rate = sgd if exp.optimizer == config.part("optimizer", "sgd") else adagrad
    assert exp.train.head_lr_factor * exp.train.lr == pytest.approx(rate)
  else:
    full = config.build(command_line.load(f"{path}:full"))
    assert exp.train.head_lr_factor == full.train.head_lr_factor


def command_lines():
  """(--config=..., its --config.KEY=VALUE) of each documented command."""
  pages = [REPOSITORY / "README.md", REPOSITORY / "docs" / "training.md"]
  for path in [*CONFIGS, *pages]:
    for line in path.read_text().replace("\\\n", " ").splitlines():
      if config_flag := re.search(r"--config=(configs/\S+)", line):
        keys = re.findall(r"--config\.([\w.]+)=", line)
        yield pytest.param(config_flag[1], keys, id=f"{path.name}:{line.strip()[:60]}")


@pytest.mark.parametrize(("argument", "keys"), list(command_lines()))
def test_keys_in_documented_commands_exist(argument, keys, monkeypatch):
  monkeypatch.chdir(REPOSITORY)
  settings = command_line.load(argument)
  for key in keys:
    block = settings
    for name in key.split("."):
      assert name in block, key
      block = block[name]


def test_keys_in_the_table_of_data_sets_exist(monkeypatch):
  monkeypatch.chdir(REPOSITORY)
  page = (REPOSITORY / "docs" / "training.md").read_text()
  rows = re.findall(r"^\| `(configs/[^`]+)` \|[^|]*\| `(\w+)` \|$", page, re.MULTILINE)
  assert len(rows) > 3
  for argument, key in rows:
    assert key in command_line.load(argument).data, argument


def test_configs_and_sweeps_are_found():
  assert CONFIGS
  assert sum(len(sweepfile.load(path).runs) for path in SWEEPS) > 1


@pytest.mark.parametrize("path", SWEEPS, ids=name_of)
def test_every_point_of_a_sweep_builds(path, monkeypatch):
  monkeypatch.chdir(REPOSITORY)
  is_seed = lambda flag: flag.startswith("--config.train.seed=")
  runs = [itertools.filterfalse(is_seed, r.flags()) for r in sweepfile.load(path).runs]
  for first, *overrides in dict.fromkeys(map(tuple, runs)):
    settings = command_line.load(first.removeprefix("--config="))
    command_line.override(settings, ["main", *overrides], known=[])
    exp = config.build(settings)
    assert exp.train.num_steps(1000) > 0, shlex.join([first, *overrides])


def test_blanc_rendle_has_the_settings_of_the_paper():
  """The "medium" network of Zaremba et al. 2014, section 4.1, but with 200 units.

  It has 2 layers, 35 steps, initial scale 0.05, dropout 50 %, 39 epochs, rate 1 for 6
  epochs and then divided by 1.2 after each, and clip norm 5. Its loss is a sum over
  steps, ours a mean, so our rate is multiplied and our norm divided by the steps.
  """
  build = lambda arg: config.build(
    command_line.load(f"{REPOSITORY}/configs/ptb.py:{arg}")
  )
  exp = build("blanc_rendle,head=sampled/uniform")
  model, train = exp.model, exp.train
  assert (model.layers, model.hidden, model.embed) == (2, 200, 200)
  assert (model.dropout, model.init_scale, exp.head.init_scale) == (0.5, 0.05, 0.05)
  assert (train.batch_size, train.unroll, train.epochs) == (20, 35, 39)
  rates = [train.learning_rate(epoch, 1) / train.unroll for epoch in range(39)]
  assert rates == pytest.approx([1.0] * 6 + [1.2**-k for k in range(1, 34)])
  assert train.clip_norm * train.unroll == pytest.approx(5)
  assert exp.head.sampler.per_example
  assert build("blanc_rendle,head=sampled/quadratic").head.absolute
  small = build("sampled/uniform")
  assert (small.model.dropout, small.train.epochs) == (0.0, 13)
  assert not small.head.sampler.per_example


@pytest.mark.long
def test_blanc_rendle_trains_locally(tmp_path):
  argument = f"{REPOSITORY}/configs/ptb.py:blanc_rendle,head=sampled/quadratic,runlocal"
  assert main.run(["main", f"--config={argument}", f"--workdir={tmp_path}"]) == 0
  assert json.loads((tmp_path / "result.json").read_text())["steps"] == 5


@pytest.mark.parametrize("name", ["enwiki8", "europarl"])
def test_weight_decay_of_grave_et_al_is_optional(name):
  """It applies to network, word rows and head rows, and changes nothing else."""
  build = lambda arg: config.build(
    command_line.load(f"{REPOSITORY}/configs/{name}.py:{arg}")
  )
  without, decayed = build("hierarchical"), build("hierarchical,weight_decay")
  assert without.optimizer.weight_decay == 0.0
  assert decayed.optimizer.weight_decay == decayed.head.optimizer.weight_decay == 1e-6
  same = dataclasses.replace(decayed.optimizer, weight_decay=0.0)
  head = dataclasses.replace(decayed.head, optimizer=same)
  assert dataclasses.replace(decayed, optimizer=same, head=head) == without


def test_europarl_has_the_batch_size_of_its_language():
  """Finnish has smaller batches, as in the paper."""
  danish, finnish = (
    config.build(command_line.load(f"{REPOSITORY}/configs/europarl.py:{arg}"))
    for arg in ("adaptive,lang=da", "lang=fi")
  )
  assert (danish.data.train, danish.train.batch_size) == ("europarl*.da", 128)
  assert type(danish.head) is config.HEADS["adaptive"]
  assert (finnish.data.train, finnish.train.batch_size) == ("europarl*.fi", 64)
  assert type(finnish.head) is config.HEADS["full"]


METRICS = {"perplexity": "test_ppl", "P@1": "test_p@1", "recall@20": "test_recall@20"}
EXPECTED = (
  r"Expect with `\S+` a test (\S+) of ([\d.]+) after ([\d,]+) steps"
  r'.* \(experiments/(\w+), "([^"]+)"'
)


@pytest.mark.parametrize("path", CONFIGS, ids=name_of)
def test_expected_results_in_docstrings_match_the_committed_rows(path):
  """Numbers in docstrings are means of committed rows over the seeds."""
  text = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split())
  if "Expect with" not in text:
    assert "No result" in text or "depends on" in text
    return
  found = re.search(EXPECTED, text)
  assert found, text
  metric, value, steps, place, name = found.groups()
  results = REPOSITORY / "experiments" / place / "results.jsonl"
  rows = map(json.loads, results.read_text().splitlines())
  rows = [row for row in rows if row["name"] == name]
  digits = len(value.partition(".")[2])
  mean = np.mean([row[METRICS[metric]] for row in rows])
  assert f"{mean:.{digits}f}" == value
  assert {row["steps"] for row in rows} == {int(steps.replace(",", ""))}


@pytest.mark.parametrize(("name", "rate"), [("adam", 0.001), ("rowwise_adagrad", 0.2)])
def test_text_config_sets_the_rate_of_its_optimiser(name, rate):
  build = lambda arg: config.build(
    command_line.load(f"{REPOSITORY}/configs/text.py:{arg}")
  )
  plain, other = build("full"), build(f"full,optimizer={name}")
  assert other.optimizer == config.part("optimizer", name)
  assert (plain.train.lr, other.train.lr) == (0.2, rate)
  with pytest.raises(UserError, match="optimizer is 'adm'; it must be one of"):
    build("full,optimizer=adm")
