"""The list of a config's keys: every key has a description."""

import pathlib

import pytest

from largevocab import command_line, config
from largevocab.errors import UserError
from largevocab.fields import declared
from largevocab.tools import keys

REPOSITORY = pathlib.Path(keys.__file__).parents[2]
PARTS = [
  *(cls for registry in config.REGISTRIES.values() for cls in registry.values()),
  *config.SETTINGS.values(),
]


@pytest.mark.parametrize("cls", dict.fromkeys(PARTS), ids=lambda cls: cls.__name__)
def test_docstrings_have_a_text_for_each_key(cls):
  texts = keys.attributes(cls)
  assert all(texts.get(name) for name in declared(cls) if name != "optimizer")


def test_keys_match_the_config():
  settings = command_line.load(f"{REPOSITORY}/configs/text.py:sampled/pps")
  found = {key.path: key.value for key in keys.keys_of(settings)}
  assert found["config.head.sampler.name"] == "pps"
  flat = {}
  for key, block in settings.items():
    flat |= {f"config.{key}.{name}": value for name, value in block.items()}
  inner = {path for path in flat if isinstance(flat[path], config.ConfigDict)}
  assert {path for path in found if path.count(".") == 2} == flat.keys() - inner
  assert all(found[path] == flat[path] for path in flat.keys() - inner)


def test_words_select_keys(capsys):
  given = f"--config={REPOSITORY}/configs/ptb.py:sampled/pps"
  assert keys.main([given, "--config.train.lr=0.5", "min_count", "train.lr"]) == 0
  out = capsys.readouterr().out
  assert "config.train.lr = 0.5\n    learning rate" in out
  assert "seed" not in out
  with pytest.raises(UserError, match=r"no key of .* contains nothing: give other"):
    keys.main([given, "nothing"])


def test_choices_of_a_key_are_named(capsys):
  given = f"--config={REPOSITORY}/configs/ptb.py:sampled/pps"
  assert keys.main([given, "schedule", "head.loss.name"]) == 0
  out = capsys.readouterr().out
  assert "'cosine'" in out
  assert "blackout" in out
  assert "taylor" not in out  # a loss of another head
