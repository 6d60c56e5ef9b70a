"""What is noted of a checkpoint when it is saved, and is checked when it is read."""

import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from largevocab.ops.checksum import checksums

PyTree = Any
Clock = dict[str, float]


class SavedArray(NamedTuple):
  """What is noted of an array.

  Attributes:
    dtype: its name.
    shape: its sizes.
    checksum: of its bits, see `checksums`.
  """

  dtype: str
  shape: list[int]
  checksum: list[int]


class Damaged(Exception):
  """A checkpoint is not as it was saved; the message says why."""


def named_leaves(tree: PyTree) -> dict[str, Any]:
  """Each array by its name.

  >>> named_leaves({"a": [1, 2], "b": None})
  {'a/0': 1, 'a/1': 2}
  """
  name = functools.partial(jax.tree_util.keystr, simple=True, separator="/")
  leaves = jax.tree_util.tree_leaves_with_path(tree)
  return {name(path): leaf for path, leaf in leaves}


def data_of(leaf: Any) -> Any:
  """What is saved of an array: of keys their data."""
  is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
  return jax.random.key_data(leaf) if is_key else leaf


def arrays_of(state: PyTree) -> dict[str, SavedArray]:
  """What is to be noted of the arrays of a state. Waits until it is computed."""
  leaves = {name: data_of(leaf) for name, leaf in named_leaves(state).items()}
  sums = jax.device_get(checksums(list(leaves.values())))
  return {
    name: SavedArray(str(leaf.dtype), list(leaf.shape), checksum.tolist())
    for (name, leaf), checksum in zip(leaves.items(), sums, strict=True)
  }


def note_of(
  step: int, clock: Clock, arrays: Mapping[str, SavedArray]
) -> dict[str, Any]:
  """A note, of JSON values, with a digest of itself."""
  note = {"clock": clock, "step": step, "arrays": arrays}
  return json.loads(json.dumps({**note, "digest": _digest(note)}))


def read_note(
  note: Mapping[str, Any], step: int
) -> tuple[Clock, dict[str, SavedArray]]:
  """The clock, and what was noted of the arrays; versions before 2 noted nothing.

  Raises:
    Damaged: it is not what was noted for this step.

  >>> read_note(note_of(3, {"seconds": 1.5}, {}), 3)
  ({'seconds': 1.5}, {})
  >>> read_note(note_of(3, {"seconds": 1.5}, {}) | {"clock": {"seconds": 1.25}}, 3)
  Traceback (most recent call last):
  ...
  largevocab.checkpoint_note.Damaged: its clock or checksums are not as they were saved
  """
  if note.keys() == {"seconds"}:
    return dict(note), {}
  content = {key: value for key, value in note.items() if key != "digest"}
  if note.get("digest") != _digest(content) or content["step"] != step:
    raise Damaged("its clock or checksums are not as they were saved")
  arrays = {name: SavedArray(*noted) for name, noted in content["arrays"].items()}
  return content["clock"], arrays


def as_saved(abstract: PyTree, arrays: Mapping[str, SavedArray]) -> PyTree:
  """Structs of the shapes and places of `abstract`, and the dtypes that were saved."""
  structs, structure = jax.tree.flatten(abstract)
  dtypes = [arrays[name].dtype if arrays else None for name in named_leaves(abstract)]
  return structure.unflatten(
    struct.update(dtype=dtype or struct.dtype)
    for struct, dtype in zip(structs, dtypes, strict=True)
  )


def check_arrays(state: PyTree, arrays: Mapping[str, SavedArray]) -> None:
  """Raises Damaged unless this was noted of a state; no check where nothing was."""
  if not arrays:
    return
  for name, array in arrays_of(state).items():
    if array != arrays[name]:
      raise Damaged(f"array {name} is not as it was saved")


def _digest(content: Mapping[str, Any]) -> str:
  text = json.dumps(content, sort_keys=True)
  return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
