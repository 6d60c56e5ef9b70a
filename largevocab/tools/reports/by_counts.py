"""Reads class counts from a file, and makes random batches whose labels follow them."""

import pathlib
import tokenize
import zipfile

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.errors import UserError
from largevocab.labels import Counts, Targets, as_counts, single_targets

# Errors that `numpy.load` raises for files that NumPy did not write.
_UNREADABLE = (OSError, EOFError, ValueError, zipfile.BadZipFile, tokenize.TokenError)


def counts_in(path: str) -> Counts:
  """Reads class counts from the .npy file of --counts.

  Raises:
    UserError: the file has other content, or no class occurs.
  """
  try:
    if pathlib.Path(path).exists() and not path.endswith((".npy", ".npz")):
      raise ValueError("it is not a .npy file")
    unigram_V = np.load(path)
    if not isinstance(unigram_V, np.ndarray):
      raise ValueError("it holds no array of numbers")
    counts = as_counts(unigram_V)
  except (*_UNREADABLE, MemoryError) as error:
    said = error.strerror or error if isinstance(error, OSError) else error
    raise UserError(f"--counts={path}: {said}; give a .npy file with int[V]") from None
  if not counts.unigram_V.any():
    raise UserError(f"--counts={path}: no class occurs; give the count of each class")
  return counts


def random_batch(counts: Counts, dim: int, num: int) -> tuple[jax.Array, Targets]:
  """Random activations f32[num, dim], and labels drawn in proportion to the counts."""
  rng = np.random.default_rng(0)
  p_V = counts.unigram_V / counts.unigram_V.sum()
  y = single_targets(rng.choice(counts.num_classes, num, p=p_V))
  return jnp.asarray(rng.standard_normal((num, dim)), jnp.float32), y
