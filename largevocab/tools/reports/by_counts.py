"""Class counts from a file, and random batches whose labels follow them."""

import pathlib
import tokenize
import zipfile

import jax
import jax.numpy as jnp
import numpy as np

from largevocab.errors import UserError
from largevocab.labels import Counts, Targets, as_counts, single_targets

# Errors of `numpy.load` for files that NumPy did not write.
_UNREADABLE = (OSError, EOFError, ValueError, zipfile.BadZipFile, tokenize.TokenError)


def counts_in(path: str) -> Counts:
  """Reads class counts from the .npy file of --counts.

  Raises:
    UserError: the file has other content, or no class occurs.
  """
  try:
    if pathlib.Path(path).exists() and not path.endswith((".npy", ".npz")):
      raise ValueError("it is no .npy")
    unigram_V = np.load(path)
    if not isinstance(unigram_V, np.ndarray):
      raise ValueError("it holds no array of numbers")
    counts = as_counts(unigram_V)
  except (*_UNREADABLE, MemoryError) as error:
    said = error.strerror or error if isinstance(error, OSError) else error
    raise UserError(f"--counts={path}: {said}; give a .npy with int[V]") from None
  if not counts.unigram_V.any():
    raise UserError(f"--counts={path}: no class occurs; give how often each does")
  return counts


def random_batch(counts: Counts, dim: int, num: int) -> tuple[jax.Array, Targets]:
  """Activations f32[num, dim] and labels in proportion to the counts."""
  rng = np.random.default_rng(0)
  p_V = counts.unigram_V / counts.unigram_V.sum()
  y = single_targets(rng.choice(counts.num_classes, num, p=p_V))
  return jnp.asarray(rng.standard_normal((num, dim)), jnp.float32), y
