"""Cost models as files."""

import dataclasses
import hashlib
import json

import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.ops.adaptive import cost_model


def test_cost_model_is_the_same_after_saving_and_loading(tmp_path):
  model = cost_model.load("cpu-float32-2026-11")
  path = tmp_path / "mine.json"
  model.save(path)
  assert cost_model.load(str(path)) == model


def test_committed_models_never_change():
  digests = {
    path.stem: hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    for path in cost_model.FITTED.glob("*.json")
  }
  assert digests == {"cpu-float32-2026-11": "2b20238abeb9ff48"}, (
    "a new fit is a new file"
  )


@pytest.mark.parametrize("name", cost_model.names())
def test_times_of_committed_models_ascend(name):
  model = cost_model.load(name)
  sizes = 2.0 ** np.arange(20)
  assert (np.diff(model.product(sizes, 8)) >= 0).all()
  for i in range(3):
    at = [np.full(20, 64.0)] * 3
    at[i] = sizes
    assert (np.diff(model.step(*at)) > 0).all()


@pytest.mark.parametrize(
  ("change", "message"),
  [
    ({"step": {}}, "step must have the keys points, rms_error"),
    ({"extra": 1}, "must have the keys platform"),
    ({"device": 3}, "device is 3; it must be of type str"),
    (
      {"product": {"constant": -1.0}},
      "product: constant is -1.0; it must be at least 0",
    ),
    (
      {"product": {"rate": "fast"}},
      "product: rate is 'fast'; it must be of type float",
    ),
  ],
)
def test_damaged_files_are_named(tmp_path, change, message):
  content = dataclasses.asdict(cost_model.load("cpu-float32-2026-11"))
  for key, value in change.items():
    is_part = isinstance(value, dict) and value
    content[key] = {**content[key], **value} if is_part else value
  path = tmp_path / "mine.json"
  path.write_text(json.dumps(content))
  with pytest.raises(UserError, match=message):
    cost_model.load(str(path))


def test_missing_and_unreadable_models_are_named(tmp_path):
  with pytest.raises(UserError, match=r"no cost model 'abacus'.*cpu-float32.*fit_cost"):
    cost_model.load("abacus")
  (tmp_path / "mine").write_text("{}")
  message = r"/mine is a file whose name does not end in \.json"
  with pytest.raises(UserError, match=message):
    cost_model.load(str(tmp_path / "mine"))
  with pytest.raises(UserError, match=r"cannot be read.*fit_cost_model\.py writes one"):
    cost_model.load(str(tmp_path / "none.json"))
  path = tmp_path / "half.json"
  path.write_text('{"device": ')
  with pytest.raises(UserError, match=r"half\.json is not JSON"):
    cost_model.load(str(path))
