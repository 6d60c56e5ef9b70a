"""Configs and the dataclasses that they describe."""

import dataclasses
import json
import re

import pytest
from ml_collections import ConfigDict

from largevocab import command_line, config as c, losses
from largevocab.errors import UserError
from largevocab.heads import HEADS, Full
from largevocab.training.workdir import claim_workdir


def tiny(**parts):
  defaults = {
    "data": c.part("data", "zipf"),
    "model": c.part("model", "lstm", embed=4, hidden=4),
    "head": c.head("sampled/pps", num_samples=8),
    "optimizer": c.part("optimizer", "adagrad"),
  }
  return c.experiment(**{**defaults, **parts})


def test_build_restores_the_parts_of_a_config():
  exp = c.build(tiny(train=c.Training(lr=0.25), eval=c.Evaluating(unroll=7)))
  assert exp.data == c.part("data", "zipf")
  assert exp.head.sampler == c.part("sampler", "pps")
  assert exp.head.num_samples == 8
  assert exp.train == c.Training(lr=0.25, head_lr_factor=1.0)
  assert exp.eval == c.Evaluating(unroll=7)


def test_part_ignores_fields_of_other_parts_and_refuses_unknown_fields():
  assert c.part("model", "linear", embed=4, hidden=7) == c.part(
    "model", "linear", embed=4
  )
  with pytest.raises(c.UserError, match=r"model has a field 'hiden'.* mean 'hidden'"):
    c.part("model", "linear", hiden=7)


def test_explicit_head_rate_is_kept():
  """Even if it is 1, for a spherical loss of text, which has its own default."""
  parts = {
    "data": c.part("data", "ptb"),
    "head": c.head("spherical/taylor"),
    "optimizer": c.part("optimizer", "sgd"),
  }
  factor = lambda **given: tiny(train=c.Training(lr=0.2, **given), **parts).train
  assert factor().head_lr_factor == pytest.approx(500 / 0.2)
  assert factor(head_lr_factor=1.0).head_lr_factor == 1.0
  assert tiny().train.head_lr_factor == 1.0
  with pytest.raises(UserError, match=r"head_lr_factor is 0; it must be above 0"):
    c.Training(head_lr_factor=0)


def test_head_uses_the_optimizer_of_the_experiment():
  exp = c.build(tiny(optimizer=c.part("optimizer", "adam", b1=0.5)))
  assert exp.head.optimizer == exp.optimizer == c.part("optimizer", "adam", b1=0.5)


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (lambda s: s.train.update(epoch=3), "config.train.epoch .*'epochs'"),
    (lambda s: s.head.sampler.update(pwer=1.0), "config.head.sampler.pwer .*'power'"),
    (lambda s: s.update(trian={}), "config.trian .*'train'"),
    (lambda s: s.__delitem__("eval"), "config.eval is missing; set it"),
    (lambda s: s.train.__delitem__("lr"), "config.train.lr is missing; set it"),
    (lambda s: s.head.__delitem__("name"), "config.head.name is missing.*sampled"),
    (lambda s: s.head.update(name="samplde"), "config.head.name is 'samplde'.*sampled"),
  ],
)
def test_unknown_or_missing_key_is_named(change, message):
  settings = tiny()
  change(settings)
  with pytest.raises(UserError, match=message):
    c.build(settings)


@pytest.mark.parametrize(
  ("block", "key", "value"),
  [("train", "batch_size", 2.5), ("train", "lr", "1"), ("head", "bias", 1)],
)
def test_ill_typed_value_is_named(block, key, value):
  with tiny().unlocked() as settings:
    settings[block] = ConfigDict({**settings[block], key: value})
  with pytest.raises(UserError, match=rf"config\.{block}\.{key} is .* of type"):
    c.build(settings)


def test_flags_keep_the_types_of_values():
  settings = tiny(train=c.Training(epochs=13))
  flags = ["--config.train.epochs=0.5", "--config.model.layers", "3"]
  flags += ["--noconfig.head.bias", "--config.head.sampler.power=1"]
  command_line.override(settings, ["main", *flags], known=[])
  exp = c.build(settings)
  assert exp.train.epochs == 0.5
  assert exp.model.layers == 3
  assert exp.head.bias is False
  assert exp.head.sampler.power == 1.0


def test_values_after_a_blank_can_be_negative():
  settings = tiny()
  words = ["main", "--config.model.forget_bias", "-1.5", "--config.head.bias"]
  command_line.override(settings, words, known=[])
  exp = c.build(settings)
  assert (exp.model.forget_bias, exp.head.bias) == (-1.5, True)
  for last in ("--config.model.layers", "-x"):
    with pytest.raises(UserError):
      command_line.override(tiny(), ["main", last], known=[])


@pytest.mark.parametrize("words", ["('a.txt', 'b.csv')", "('a.txt',)", "a.txt", "()"])
def test_flags_set_tuples_in_new_and_saved_configs(words, tmp_path):
  settings = tiny(eval=c.Evaluating(precision_k=(1, 3)))
  (tmp_path / "config.json").write_text(json.dumps(settings.to_dict()))
  names = tuple(re.findall(r"\w\.\w+", words))
  for read in (settings, c.of_workdir(str(tmp_path))):
    flags = [f"--config.eval.word_pairs={words}", "--config.eval.precision_k=(5,)"]
    command_line.override(read, ["main", *flags], known=[])
    assert c.build(read).eval == c.Evaluating(precision_k=(5,), word_pairs=names)


def test_empty_word_pairs_file_is_refused():
  with pytest.raises(
    UserError, match=r"^Evaluating\.word_pairs is \('',\); each must not"
  ):
    c.Evaluating(word_pairs=("",))


def test_runlocal_shortens_training_and_data():
  exp = c.build(tiny(runlocal=True, train=c.Training(epochs=100)))
  assert exp.train.max_steps == 5
  assert len(exp.data.load().train) == 1000


@pytest.mark.parametrize(
  ("path", "message"),
  [
    ("fulll", "head is 'fulll'; it must be one of adaptive, blackout, "),
    ("full/pps", "takes neither sampler nor loss"),
    ("sampled/nothing", "sampler is 'nothing'"),
  ],
)
def test_unknown_head_is_named(path, message):
  with pytest.raises(UserError, match=message):
    c.head(path)


def test_block_in_place_of_a_name_is_refused():
  settings = tiny()
  settings.head = {**settings.head.to_dict(), "name": {"w": 1}}
  with pytest.raises(UserError, match=r"(?s)config.head.name is .*must be one of adap"):
    c.build(settings)


SAMPLERS = c.REGISTRIES["sampler"]
ABSOLUTE = [name for name in SAMPLERS if c.head(f"sampled/{name}").absolute]


def test_sampler_of_absolute_logits_makes_the_head_absolute():
  assert ABSOLUTE == ["quadratic", "quartic"]
  exp = c.build(tiny(head=c.head("sampled/quadratic")))
  assert exp.head.absolute
  assert exp.head.sampler.absolute
  assert not c.head("sampled/block").absolute


@pytest.mark.parametrize("sampler", ABSOLUTE)
@pytest.mark.parametrize("key", ["head.absolute", "head.sampler.absolute"])
def test_head_and_sampler_must_agree_on_absolute(sampler, key):
  flags = ["--config.head.absolute=false", "--config.head.sampler.absolute=false"]
  settings = tiny(head=c.head(f"sampled/{sampler}"))
  command_line.override(settings, ["main", f"--config.{key}=false"], known=[])
  message = r"head\.absolute is .* misses likely classes or draws unlikely ones"
  with pytest.raises(UserError, match=message):
    c.build(settings)
  command_line.override(settings, ["main", *flags], known=[])
  assert not c.build(settings).head.absolute


def test_learning_rate_halves_after_the_fourth_epoch():
  """Zaremba et al. 2014, the small network: 4 epochs at 1, then halved each epoch."""
  settings = c.Training(epochs=13, lr=1.0, hold_epochs=4, decay=0.5)
  steps = settings.num_steps(steps_per_epoch=10)
  assert steps == 130
  rates = [settings.learning_rate(step, 10) for step in range(steps)]
  assert rates == [0.5 ** max(0, step // 10 - 3) for step in range(steps)]


def test_number_of_steps_of_a_run():
  assert c.Training(epochs=2).num_steps(10) == 20
  assert c.Training(epochs=2, max_steps=7).num_steps(10) == 7
  assert c.Training(epochs=1e-6).num_steps(10) == 1
  assert c.Evaluating(every_epochs=0).every_steps(10) == 0
  assert c.Evaluating(every_epochs=1e-6).every_steps(10) == 1


def test_no_key_shadows_a_method_of_configdict():
  for registry in c.REGISTRIES.values():
    for cls in registry.values():
      for f in dataclasses.fields(cls):
        assert f.name == "name" or not hasattr(ConfigDict, f.name), (cls, f.name)


def test_keys_missing_from_an_older_run_get_their_defaults(tmp_path):
  """Nested parts, too. Present keys are kept, and wrong values are still errors."""
  settings = tiny()
  old = settings.to_dict()
  del old["log"]["monitor_every_steps"], old["head"]["exact_ids"]
  del old["head"]["sampler"]["power"]
  path = tmp_path / "config.json"
  path.write_text(json.dumps(old))
  assert c.build(c.of_workdir(str(tmp_path))) == c.build(settings)
  c.bring_up_to_date(str(tmp_path))
  claim_workdir(str(tmp_path), settings.to_dict())  # it is the same run
  assert json.loads(path.read_text()) == json.loads(json.dumps(settings.to_dict()))
  path.write_text(json.dumps(old | {"log": 3}))
  with pytest.raises(UserError, match=r"config\.log is 3; it must be a block"):
    c.build(c.of_workdir(str(tmp_path)))
  path.write_text(json.dumps(old | {"head": {"name": "sampeld"}}))
  with pytest.raises(UserError, match="sampeld"):
    c.build(c.of_workdir(str(tmp_path)))


def test_loss_registered_by_a_config_file_is_known(monkeypatch):
  class Twice(losses.SampledSoftmax):
    pass

  monkeypatch.setitem(losses.SAMPLED_LOSSES, "twice", Twice)
  settings = tiny()
  settings.head.loss.name = "twice"
  assert type(c.build(settings).head.loss) is Twice
  head = c.head("twice/unigram", sampler={"power": 0.5})
  assert type(head.loss) is Twice
  assert head.sampler.power == 0.5
  assert "twice/unigram" in c.head_paths()
  with pytest.raises(UserError, match=r"must be one of .*, twice"):
    c.head("twcie/unigram")


def test_head_registered_by_a_config_file_is_known(monkeypatch):
  class Other(Full):
    pass

  monkeypatch.setitem(HEADS, "other", Other)
  assert type(c.head("other")) is Other
