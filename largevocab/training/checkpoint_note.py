"""The note saved with a checkpoint, whose checksums verify it when it is read."""

import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

PyTree = Any
_ODD = np.uint32(0x9E3779B9)  # odd, so that i -> i * _ODD is injective mod 2^32


def checksums(tree: PyTree) -> list[jax.Array]:
  """The checksum of each array of a tree, u32[2], in the order of its leaves.

  The bits of an array are split into words b_i of at most 32 bits, separately for each
  entry. The checksum consists of the sum mod 2^32 and the xor, over all places i, of
  mix(b_i xor (i * odd)), where `mix` is a bijection. A change of one word therefore
  always changes the checksum. A change of several words, or a permutation, changes it
  except with a probability of about 2^-64.

  Neither part depends on the order of summation. A sharded array is summed on its
  devices and gets the same checksum as on one device. Arrays may have any dtype, and
  may be keys. 0.0 and -0.0 differ, and so do NaNs with different bits.

  Cost: reads each array once, and makes no array of its size.

  >>> one, other = checksums([jnp.float32([0, 1]), jnp.float32([-0.0, 1])])
  >>> one.shape, bool((one == other).all())
  ((2,), False)
  """
  return _checksums([_narrow(leaf) for leaf in jax.tree.leaves(tree)])


@jax.jit
def _checksums(leaves: list[jax.Array]) -> list[jax.Array]:
  return [_checksum(_words(leaf)) for leaf in leaves]


def _narrow(x: jax.Array | np.ndarray) -> jax.Array | np.ndarray:
  """Splits NumPy's 64-bit types into words of 32 bits, since JAX may not have them."""
  is_wide = isinstance(x, np.ndarray) and x.dtype.itemsize > 4
  return np.ascontiguousarray(x)[..., None].view(np.uint32) if is_wide else x


def _checksum(words: jax.Array) -> jax.Array:
  place = jnp.zeros(words.shape, jnp.uint32)
  for axis, size in enumerate(words.shape):
    place *= np.uint32(size % 2**32)
    place += jax.lax.broadcasted_iota(jnp.uint32, words.shape, axis)
  mixed = _mix(words ^ (place * _ODD))
  # One reduction with two results; otherwise XLA on CPU would write `mixed` to memory.
  both = jax.lax.reduce(
    (mixed, mixed),
    (np.uint32(0), np.uint32(0)),
    lambda a, b: (a[0] + b[0], a[1] ^ b[1]),
    tuple(range(words.ndim)),
  )
  return jnp.stack(both)


def _mix(x: jax.Array) -> jax.Array:
  """Finaliser of MurmurHash3: a bijection in which any bit changes half of all bits."""
  x = (x ^ (x >> 16)) * np.uint32(0x85EBCA6B)
  x = (x ^ (x >> 13)) * np.uint32(0xC2B2AE35)
  return x ^ (x >> 16)


def _words(x: jax.Array) -> jax.Array:
  """The bits of each entry, u32; the words of wider entries are on a new last axis."""
  if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
    x = jax.random.key_data(x)
  if jnp.iscomplexobj(x):
    x = jnp.stack([x.real, x.imag], -1)
  if x.dtype == jnp.bool_:
    return x.astype(jnp.uint32)
  word = {1: jnp.uint8, 2: jnp.uint16}.get(x.dtype.itemsize, jnp.uint32)
  return jax.lax.bitcast_convert_type(x, word).astype(jnp.uint32)


Clock = dict[str, float]


class SavedArray(NamedTuple):
  """Description of a saved array.

  Attributes:
    dtype: name of the dtype.
    shape: sizes of the axes.
    checksum: checksum of the array's bits; see `checksums`.
  """

  dtype: str
  shape: list[int]
  checksum: list[int]


class Damaged(Exception):
  """A checkpoint differs from what was saved; the message has the reason."""


def named_leaves(tree: PyTree) -> dict[str, Any]:
  """The arrays of a tree by name.

  >>> named_leaves({"a": [1, 2], "b": None})
  {'a/0': 1, 'a/1': 2}
  """
  name = functools.partial(jax.tree_util.keystr, simple=True, separator="/")
  leaves = jax.tree_util.tree_leaves_with_path(tree)
  return {name(path): leaf for path, leaf in leaves}


def data_of(leaf: Any) -> Any:
  """The array that is saved for a leaf; for PRNG keys, their data."""
  is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
  return jax.random.key_data(leaf) if is_key else leaf


def arrays_of(state: PyTree) -> dict[str, SavedArray]:
  """Descriptions of all arrays of a state. Blocks until they are computed."""
  leaves = {name: data_of(leaf) for name, leaf in named_leaves(state).items()}
  sums = jax.device_get(checksums(list(leaves.values())))
  return {
    name: SavedArray(str(leaf.dtype), list(leaf.shape), checksum.tolist())
    for (name, leaf), checksum in zip(leaves.items(), sums, strict=True)
  }


def note_of(
  step: int, clock: Clock, arrays: Mapping[str, SavedArray]
) -> dict[str, Any]:
  """Makes a note, which consists of JSON values, with its digest."""
  note = {"clock": clock, "step": step, "arrays": arrays}
  return json.loads(json.dumps({**note, "digest": _digest(note)}))


def read_note(
  note: Mapping[str, Any], step: int
) -> tuple[Clock, dict[str, SavedArray]]:
  """Reads the clock and the array descriptions of a note.

  Raises:
    Damaged: this is not the note of this step.

  >>> read_note(note_of(3, {"seconds": 1.5}, {}), 3)
  ({'seconds': 1.5}, {})
  >>> read_note(note_of(3, {"seconds": 1.5}, {}) | {"clock": {"seconds": 1.25}}, 3)
  Traceback (most recent call last):
  ...
  largevocab.training.checkpoint_note.Damaged: its clock or checksums are not as they
  were saved
  """
  content = {key: value for key, value in note.items() if key != "digest"}
  if note.get("digest") != _digest(content) or content["step"] != step:
    raise Damaged("its clock or checksums are not as they were saved")
  arrays = {name: SavedArray(*noted) for name, noted in content["arrays"].items()}
  return content["clock"], arrays


def as_saved(abstract: PyTree, arrays: Mapping[str, SavedArray]) -> PyTree:
  """Structs with the shapes and shardings of `abstract`, and the saved dtypes."""
  structs, structure = jax.tree.flatten(abstract)
  dtypes = [arrays[name].dtype for name in named_leaves(abstract)]
  return structure.unflatten(
    struct.update(dtype=dtype) for struct, dtype in zip(structs, dtypes, strict=True)
  )


def check_arrays(state: PyTree, arrays: Mapping[str, SavedArray]) -> None:
  """Raises Damaged if a state differs from the note."""
  for name, array in arrays_of(state).items():
    if array != arrays[name]:
      raise Damaged(f"array {name} is not as it was saved")


def _digest(content: Mapping[str, Any]) -> str:
  text = json.dumps(content, sort_keys=True)
  return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
