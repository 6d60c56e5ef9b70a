"""Every head, sampler and loss on one, two, four and eight devices: the same numbers up
to rounding, and little is sent."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from largevocab import config
from largevocab.errors import UserError
from largevocab.losses import SAMPLED_LOSSES
from largevocab.ops.class_blocks import check_devices
from tests.heads.on_devices import ADDED, FEW, READ, K

pytestmark = pytest.mark.long

N, D, P, MOST = 24, 8, 2, 8  # N as it is divided by 8 devices
PROPERTIES = {"in_place", "equal", "sent", "sent to read"}


def of_registries():
  """Paths with every head, sampler and loss; of losses that draw with one sampler."""
  for path in config.head_paths():
    name, _, inner = path.partition("/")
    loss = SAMPLED_LOSSES.get(name)
    if loss is None or inner == ("pps" if loss.needs_sets else "unigram"):
      yield path


PATHS = [
  *of_registries(),
  *("full/cosine", "sampled/unigram/cosine"),
  *("full@bfloat16", "adaptive@bfloat16"),  # of the rows
  'sampled/pps {"exact_frequent": 5, "exact_ids": [200, 8]}',
]


@pytest.fixture(scope="module")
def trained(on_devices):
  """Results of each head by the number of devices, from processes with eight."""

  def run(paths):
    args = "-m", "tests.heads.on_devices", "1,2,4,8", *paths
    return map(json.loads, on_devices(8, *args, timeout=1800).splitlines())

  with ThreadPoolExecutor() as pool:
    rows = [row for part in pool.map(run, (PATHS[::2], PATHS[1::2])) for row in part]
  return {row["head"]: row["results"] for row in rows}


@pytest.mark.parametrize("path", PATHS)
def test_number_of_devices_changes_nothing(trained, path):
  one, *others = trained[path].values()
  # Of rows of bfloat16 a sum that is rounded otherwise may change a last digit.
  close = {"rtol": 1e-4, "atol": 1e-3 if "@" in path else 1e-5}
  assert others
  assert np.ptp(one["loss"]) > 1e-3  # it is trained
  for got in others:
    np.testing.assert_allclose(got["loss"], one["loss"], rtol=1e-5)
    np.testing.assert_allclose(got["norm"], one["norm"], **close)
    for name in one.keys() - {"loss", "norm", "rows", "top_k", *PROPERTIES}:
      np.testing.assert_allclose(got[name], one[name], **close, err_msg=name)
    for got_rows, rows in zip(got["rows"], one["rows"], strict=True):
      np.testing.assert_allclose(got_rows, rows, **close)


@pytest.mark.parametrize("path", READ)
def test_best_classes_are_the_same_on_any_number_of_devices(trained, path):
  """Except for classes with equal scores."""
  one, *others = trained[path].values()
  gaps = np.abs(np.diff(one["scores"], axis=1))
  is_tie = np.pad(gaps, ((0, 0), (0, 1)), constant_values=1) < 1e-5
  is_tie |= np.pad(gaps, ((0, 0), (1, 0)), constant_values=1) < 1e-5
  for got in others:
    assert ((np.array(got["top_k"]) == one["top_k"]) | is_tie).all()


@pytest.mark.parametrize("path", ADDED)
def test_gradients_of_parts_add_up_to_those_of_the_batch(trained, path):
  for got in trained[path].values():
    np.testing.assert_allclose(got["by parts"], got["at once"], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(got["sum"], got["scaled sum"], rtol=1e-6, atol=1e-7)
    assert not np.allclose(got["part"], got["at once"], atol=1e-4)


@pytest.mark.parametrize("path", PATHS)
def test_step_sends_no_rows_and_keeps_tables_in_place(trained, path):
  for got in trained[path].values():
    rows = P * 2 * D if path == "sampled/lsh_label" else 0  # of the true classes
    assert got["in_place"]
    assert got["equal"]  # what all devices have
    assert 0 < got["sent"] <= N * max(D, P * MOST, rows)


@pytest.mark.parametrize("path", READ)
def test_reading_a_model_sends_only_the_rows_asked_for(trained, path):
  for devices, got in trained[path].items():
    sent = got["sent to read"]
    assert 0 < sent["evaluate"] <= N * max(D, P * MOST)
    assert sent["top_k"] <= N * (K + 2) * int(devices)  # two may be clusters
    assert sent["class_rows"] <= FEW * 2 * D


def test_data_sent_by_a_step_does_not_grow_with_the_classes(on_devices):
  """Of 203 classes a vector over all would be less than the activations."""
  printed = on_devices(8, "-m", "tests.heads.on_devices", "sent", *READ)
  for row in map(json.loads, printed.splitlines()):
    few, many = row["sent"]
    assert 0 < many == few, row["head"]


@pytest.mark.parametrize(
  ("blocks", "devices", "remedy"),
  [
    (8, 3, r"mesh\.blocks to 6 or 9, or mesh\.num to 2$"),
    (1, 2, r"mesh\.blocks to 2, or mesh\.num to 1"),
  ],
)
def test_devices_that_do_not_divide_the_blocks_are_named(blocks, devices, remedy):
  with pytest.raises(UserError, match=remedy):
    check_devices(blocks, devices)
