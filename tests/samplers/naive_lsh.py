"""Hash tables as dictionaries, filled one class at a time: the definition."""

import jax
import numpy as np

from largevocab.ops.lsh.hashing import MIPS, SimHash


def digits(functions, number, x_D, codes, is_row):
  """The codes of one vector in one table."""
  x_D = np.float64(x_D)
  if isinstance(functions, (SimHash, MIPS)):
    projection_C = np.float64(functions.normal_LCD[number]) @ x_D
    if isinstance(functions, MIPS) and is_row:
      rest = max(np.float64(functions.limit_L[number]) ** 2 - x_D @ x_D, 0)
      projection_C += np.float64(functions.last_LC[number]) * np.sqrt(rest)
    return [int(value >= 0) for value in projection_C]
  bins = [
    [int(d) for d in coord if d < len(x_D)] for coord in functions.coord_LKE[number]
  ]
  winner = lambda coord: max(
    (place for place, d in enumerate(coord) if x_D[d] != 0),
    key=lambda place: (x_D[coord[place]], -place),
    default=None,
  )
  own = [winner(coord) for coord in bins]
  if all(digit is None for digit in own):
    return [0] * codes
  found = []
  for k in range(codes):
    near = [(min(s, len(bins) - s), s > len(bins) - s, s) for s in range(len(bins))]
    shifts = [s for *_, s in sorted(near)]
    places = [own[(k + s) % len(bins)] for s in shifts]
    found.append(next(place for place in places if place is not None))
  return found


def code(functions, number, x_D, codes, is_row=True):
  """All the codes of a vector in a table, as they are compared: a tuple."""
  return tuple(digits(functions, number, x_D, codes, is_row))


def slot(factor, class_id, slots):
  """Two multiplications in 32 bits."""
  mixed = (int(class_id) * int(factor)) % 2**32 >> 16
  return mixed * slots >> 16


def order(factor, num_classes):
  """The order in which classes enter a table."""
  return [(int(factor) + i) % num_classes for i in range(num_classes)]


def fill(functions, factor_L, w_VD, codes, slots):
  """For each table {code: {slot: class}}; who comes last has a slot."""
  tables = []
  functions = jax.tree.map(np.asarray, functions)
  for number, factor in enumerate(np.asarray(factor_L)):
    table: dict = {}
    for c in order(factor, len(w_VD)):
      bucket = table.setdefault(code(functions, number, w_VD[c], codes), {})
      bucket[slot(factor, c, slots)] = c
    tables.append(table)
  return tables


def look_up(tables, functions, x_D, codes):
  """The classes in the buckets of a query, a list for each table."""
  functions = jax.tree.map(np.asarray, functions)
  found = []
  for number, table in enumerate(tables):
    bucket = table.get(code(functions, number, x_D, codes, is_row=False), {})
    found.append([bucket[place] for place in sorted(bucket)])
  return found


def filled(buckets, true, num):
  """The first distinct classes of the buckets that are not true, up to so many."""
  taken: list[int] = []
  for bucket in buckets:
    for c in bucket:
      if len(taken) < num and c not in taken and c not in true:
        taken.append(c)
  return taken


def law(buckets, num_classes):
  """The law of a draw from one of the non-empty buckets: f64[V], or None."""
  buckets = [bucket for bucket in buckets if bucket]
  if not buckets:
    return None
  law_V = np.zeros(num_classes)
  for bucket in buckets:
    law_V[bucket] += 1 / len(buckets) / len(bucket)
  return law_V


def mixture(sampler, law_V, unigram_V):
  """The law, mixed with the law by counts."""
  if law_V is None:
    return unigram_V
  share = sampler.unigram_share
  return share * unigram_V + (1 - share) * law_V
