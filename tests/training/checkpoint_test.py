"""Damaged checkpoints are detected, skipped, and never trained on."""

import json
import os
import re
import resource
import shutil
import tracemalloc  # noqa: F401  a warning would load it when no file can be opened
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.heads import HEADS
from largevocab.training.checkpoint import Checkpoints, shapes_of
from tests.long import others_long

# Tasks of a failed restore remain and find their event loop closed.
pytestmark = pytest.mark.filterwarnings(
  "ignore::pytest.PytestUnraisableExceptionWarning"
)
CLOCKS = {step: {"seconds": step + 0.123456789} for step in (1, 2, 3)}


class State(NamedTuple):
  step: jax.Array
  key: jax.Array
  table: jax.Array
  head: dict
  none: None


def state_of(step):
  k_table, k_half, key = jax.random.split(jax.random.key(step), 3)
  head = {
    "half_ND": jax.random.normal(k_half, (40, 3)).astype(jnp.bfloat16),
    "seen_N": jnp.arange(40) % (step + 1) == 0,
    "count": jnp.uint32(7 * step),
  }
  table = jax.random.normal(k_table, (300, 20))
  return State(jnp.int32(step), key, table, head, None)


def bits_of(state):
  leaves = jax.tree.leaves(state._replace(key=jax.random.key_data(state.key)))
  return [(leaf.dtype, leaf.shape, np.asarray(leaf).tobytes()) for leaf in leaves]


def contents(directory):
  files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
  return {path.relative_to(directory): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  directory = tmp_path_factory.mktemp("whole") / "checkpoints"
  with Checkpoints(str(directory), keep=3) as saved:
    for step, loss in ((1, 5.0), (2, 4.0), (3, 4.5)):
      saved.save(step, state_of(step), CLOCKS[step])
      saved.note_cost(step, loss)
  return directory


@pytest.fixture
def directory(whole, tmp_path):
  return shutil.copytree(whole, tmp_path / "run" / "checkpoints")


@pytest.fixture
def restore(caplog):
  """Returns the restored step and the log lines; compares the state bit by bit."""

  def call(directory, which="latest", **kwargs):
    caplog.clear()
    with Checkpoints(str(directory)) as saved:
      state, clock = saved.restore(state_of(0), which, **kwargs)
    step = int(state.step)
    assert bits_of(state) == bits_of(state_of(step))
    assert clock == CLOCKS[step]
    ours = [record for record in caplog.records if record.name == "largevocab"]
    return step, [record.getMessage() for record in ours]

  return call


def test_state_can_be_restored_from_shapes(directory):
  with Checkpoints(str(directory)) as saved:
    state, _ = saved.restore(shapes_of(state_of(0)))
  assert bits_of(state) == bits_of(state_of(int(state.step)))


def test_only_the_owner_removes_saves_that_were_cut_off(directory):
  remains = directory / "70.orbax-checkpoint-tmp"
  (remains / "state").mkdir(parents=True)
  with Checkpoints(str(directory)) as saved:
    assert saved.latest_step == 3
  assert remains.exists()
  with Checkpoints(str(directory), is_owner=True) as saved:
    saved.save(4, state_of(4), CLOCKS[3])  # waits until they are removed
  assert not remains.exists()


def test_costs_of_steps_that_training_takes_again_are_forgotten(directory):
  (directory / "valid_cost.json").write_text('{"2": 4.0, "3": 4.5, "100": 1.0}')
  with Checkpoints(str(directory)) as saved:
    saved.forget_costs(after=3)
    assert saved.best_of([2, 3, 100]) == 2
    saved.note_cost(4, 3.0)
    saved.note_cost(120, 3.5)
    assert saved.since_best(120) == 1
  assert "100" not in json.loads((directory / "valid_cost.json").read_text())


def flip(path, bit):
  data = bytearray(path.read_bytes())
  data[bit // 8 % len(data)] ^= 1 << (bit % 8)
  path.write_bytes(data)


def half(path):
  path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def zeros(path):
  size = path.stat().st_size
  path.write_bytes(path.read_bytes()[: size // 2] + bytes(size - size // 2))


DAMAGES = {
  "half": half,
  "zeros": zeros,
  "empty": lambda path: path.write_bytes(b""),
  "gone": lambda path: path.unlink(),
  "text": lambda path: path.write_text('{"a": ["b", 3]}'),
}


@pytest.mark.parametrize("damage", others_long(DAMAGES, ["half", "gone"]))
def test_damaged_files_never_change_the_restored_state(directory, restore, damage):
  """Each file of a checkpoint is damaged in turn."""
  found = []
  before = contents(directory / "3")
  for name, content in before.items():
    DAMAGES[damage](directory / "3" / name)
    step, lines = restore(directory)
    assert len(lines) == (step == 2)
    assert step in (2, 3)
    found.append(step)
    (directory / "3" / name).write_bytes(content)
  assert 2 in found


@pytest.mark.long
def test_flipped_bits_are_never_restored(directory, restore):
  rng = np.random.default_rng(0)
  before = contents(directory / "3")
  found = []
  for name, content in before.items():
    for bit in rng.integers(0, 8 * len(content), 3):
      flip(directory / "3" / name, int(bit))
      found.append(restore(directory)[0])
      (directory / "3" / name).write_bytes(content)
  assert set(found) == {2, 3}


def test_flipped_bits_of_arrays_are_found(directory, restore):
  """In the largest file, with the table, only checksums can find them."""
  data = max((directory / "3").rglob("d/*"), key=lambda path: path.stat().st_size)
  whole = data.read_bytes()
  rng = np.random.default_rng(0)
  for bit in rng.integers(8 * 2000, 8 * (len(whole) - 2000), 20):
    flip(data, int(bit))
    step, (line,) = restore(directory)
    assert step == 2
    assert "taking that of step 2 instead" in line
    data.write_bytes(whole)


def test_flipped_bits_of_the_clock_are_found(directory, restore):
  path = directory / "3" / "clock" / "metadata"
  whole = path.read_bytes()
  for bit in range(0, 8 * len(whole), 101):
    flip(path, bit)
    assert restore(directory)[0] == 2
    path.write_bytes(whole)


def test_checkpoint_renamed_to_another_step_is_damaged(directory, restore):
  (directory / "3").rename(directory / "4")
  step, (line,) = restore(directory)
  assert step == 2
  assert "/4 is damaged" in line


def test_damaged_checkpoint_is_moved_aside_on_request(directory, restore):
  half(directory / "3" / "clock" / "metadata")
  step, (line,) = restore(directory)
  assert (step, (directory / "3").is_dir()) == (2, True)
  damaged = contents(directory / "3")
  for place in ("damaged-3", "damaged-3-2"):
    step, (line,) = restore(directory, set_aside=True)
    assert step == 2
    assert line.startswith(f"checkpoint {directory}/3 is damaged (")
    moved = directory.parent / place
    assert f"which is now in {moved}; taking that of step 2 instead" in line
    assert contents(moved) == damaged
    assert restore(directory) == (2, [])
    shutil.copytree(moved, directory / "3")
  shutil.rmtree(directory / "3")
  with Checkpoints(str(directory)) as saved:
    saved.save(3, state_of(3), CLOCKS[3])
  assert restore(directory) == (3, [])


def test_step_can_be_saved_again_after_it_was_moved_aside(directory, restore):
  half(directory / "3" / "clock" / "metadata")
  with Checkpoints(str(directory)) as saved:
    saved.restore(state_of(0), set_aside=True)
    assert saved.latest_step == 2
    saved.save(3, state_of(3), CLOCKS[3])
  assert restore(directory) == (3, [])


def test_costs_are_read_from_a_file_with_the_old_name(directory, restore):
  (directory / "valid_cost.json").rename(directory / "valid_nll.json")
  assert restore(directory, "best") == (2, [])
  (directory / "valid_nll.json").unlink()
  assert restore(directory, "best")[0] != 2


@pytest.mark.parametrize(
  ("costs", "expected"),
  [
    ("{}", 3),
    ('{"7": 1.0}', 3),
    ('{"1": NaN}', 3),
    ('{"1": NaN, "2": 4.0, "3": 5.0}', 2),
    ('{"1": -Infinity, "2": 4.0, "3": 5.0}', 2),
  ],
)
def test_useless_losses_do_not_choose_the_best_checkpoint(
  directory, restore, costs, expected
):
  (directory / "valid_cost.json").write_text(costs)
  step, lines = restore(directory, "best")
  assert step == expected
  told = "the best checkpoint is unknown, as .*valid_cost.json has no loss for the exis"
  assert [bool(re.match(told, line)) for line in lines] == [True] * (expected == 3)
  assert all("taking the latest, of step 3; restore that" in line for line in lines)


def test_next_best_checkpoint_replaces_a_damaged_best_one(directory, restore):
  assert restore(directory, "best") == (2, [])
  (directory / "2" / "clock" / "metadata").unlink()
  step, (line,) = restore(directory, "best")
  assert step == 3
  assert "/2 is damaged" in line
  assert restore(directory) == (3, [])


def test_all_damaged_checkpoints_are_reported_in_one_line_and_kept(directory):
  for path in directory.glob("*/clock/metadata"):
    half(path)
  before = contents(directory.parent)
  for aside in (False, True):
    with Checkpoints(str(directory)) as saved, pytest.raises(UserError) as error:
      saved.restore(state_of(0), set_aside=aside)
    assert str(error.value).startswith(f"all checkpoints in {directory} are damaged (")
    assert "delete that directory to train from the start" in str(error.value)
    assert "\n" not in str(error.value)
  assert contents(directory.parent) == before


def test_checkpoint_of_another_model_is_not_damaged(directory):
  like = state_of(0)
  with Checkpoints(str(directory)) as saved:
    for other in (like._replace(table=jnp.zeros((2, 3))), like._replace(none=like.key)):
      with pytest.raises(UserError, match="is intact, but of another model: its array"):
        saved.restore(other, set_aside=True)
  assert (directory / "3").is_dir()


def test_other_dtype_is_converted_after_the_check(directory):
  like = state_of(0)
  half = like._replace(table=like.table.astype(jnp.bfloat16))
  with Checkpoints(str(directory)) as saved:
    state, _ = saved.restore(half)
  expected = state_of(3).table.astype(jnp.bfloat16)
  np.testing.assert_array_equal(state.table, expected)
  assert state.table.dtype == jnp.bfloat16


def test_too_many_open_files_are_not_damage(directory):
  soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
  lines = []
  with Checkpoints(str(directory)) as saved:
    saved.restore(state_of(0))
    in_use = len(os.listdir("/dev/fd"))
    for more in range(3):
      resource.setrlimit(resource.RLIMIT_NOFILE, (in_use + more, hard))
      try:
        saved.restore(state_of(0), set_aside=True)
      except UserError as error:
        lines.append(str(error))
      finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
  assert lines
  for line in lines:
    assert "Too many open files" in line
    assert "raise `ulimit -n`" in line
  assert (directory / "3").is_dir()


@pytest.mark.parametrize(
  "name", others_long(["full", "sampled", "huffman", "hierarchical"], ["hierarchical"])
)
def test_head_state_without_activation_width_can_be_restored(name, tmp_path):
  """The width is static and is not saved."""
  state = HEADS[name]().init(jax.random.key(0), [3, 2, 1, 1], 5)
  fields = [field for field in state._fields if field != "activations"]
  before = NamedTuple(type(state).__name__, [(field, object) for field in fields])
  former = before(*(getattr(state, field) for field in fields))
  with Checkpoints(str(tmp_path)) as saved:
    saved.save(1, former, CLOCKS[1])
    saved.save(2, state, CLOCKS[2])
    saved.wait()
    assert jax.tree.all(
      jax.tree.map(np.array_equal, saved.restore(shapes_of(former))[0], former)
    )
    shutil.rmtree(tmp_path / "2")
  with Checkpoints(str(tmp_path)) as saved:
    restored, _ = saved.restore(shapes_of(state))
  assert restored.activations.dim == 5
  assert jax.tree.all(jax.tree.map(np.array_equal, restored, state))
