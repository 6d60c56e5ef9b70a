"""Reports how hard the negatives of samplers are for a trained model.

  python -m largevocab.tools.negatives_report --workdir=runs/citeulike \\
    --output=results.jsonl \\
    uniform:num_samples=256 unigram:num_samples=256 \\
    lsh_embedding:unigram_share=0:num_samples=256

Each argument is a sampler, with fields of the sampler or of the head `sampled`. Draws
negatives for examples spread over the validation data, as one batch. Reports these
values for the distinct classes that are drawn for an example, without its true classes:

  classes  number of these classes
  rank     their mean rank by score among all classes that are not true; 1 is the
           hardest negative
  mass     their share of the softmax over all classes that are not true
  top10    share of the 10 hardest negatives that are among these classes

These are means over examples and draws. Statistics of samplers are rebuilt from the
class table.
"""

import sys

import jax
import numpy as np
from scipy.special import softmax

from largevocab.heads.sampled import Sampled
from largevocab.labels import Counts
from largevocab.ops.softmax.chunks import product
from largevocab.ops.softmax.log_partition import score_of
from largevocab.tools import entry
from largevocab.tools.reports.drawn import drawn_classes
from largevocab.tools.reports.head_report import (
  DRAWS,
  LOSSES_TOO,
  POSITIONS,
  Model,
  examples,
  parse,
  report,
)
from largevocab.tools.reports.positions import Positions
from largevocab.tools.reports.specs import sampled_head
from largevocab.tools.reports.trained import fresh_state
from largevocab.tools.sweeps.records import Record

COLUMNS = ["classes", "rank", "mass", "top10"]
KEY = jax.random.key(0)


def figures(
  head: Sampled, counts: Counts, w_VD: jax.Array, positions: Positions, draws: int
) -> Record:
  """The measurements of one head; see the module docstring."""
  state = fresh_state(head, counts, w_VD)
  h_ND, y = positions
  o_NV = product("nd,vd->nv", head.features(h_ND), w_VD, head.dtype)
  o_NV = np.array(score_of(head.absolute)(o_NV), np.float64)
  is_true_NV = np.zeros((len(o_NV), len(w_VD) + 1), bool)
  is_true_NV[np.arange(len(o_NV))[:, None], np.asarray(y.ids_NP)] = True
  o_NV[is_true_NV[:, :-1]] = -np.inf
  rank_NV = 1 + np.argsort(np.argsort(-o_NV, axis=1), axis=1)
  p_NV = softmax(o_NV, axis=1)

  draw = jax.jit(lambda state, key: drawn_classes(head, state, h_ND, y, key)[0])
  seen = []
  for key in jax.random.split(KEY, draws):
    drawn_NV = np.asarray(draw(state, key))
    size_N = drawn_NV.sum(axis=1)
    total = lambda values_NV: np.sum(values_NV, axis=1, where=drawn_NV)  # noqa: B023
    some_N = np.maximum(size_N, 1)
    rank = (total(rank_NV) / some_N)[size_N > 0].mean() if size_N.any() else np.nan
    top10 = total(rank_NV <= 10).mean() / 10
    seen.append([size_N.mean(), rank, total(p_NV).mean(), top10])
  found = dict(zip(COLUMNS, np.nanmean(seen, axis=0).tolist(), strict=True))
  return {**found, "positions": len(h_ND)}


def main(argv: list[str] | None = None) -> int:
  args = parse(
    "negatives_report",
    __doc__,
    argv,
    LOSSES_TOO,
    positions=POSITIONS,
    draws=(10, DRAWS),
  )

  def measured(head: Sampled, model: Model) -> Record:
    return figures(head, *model, args.draws)

  report(args, sampled_head, examples, measured, COLUMNS)
  return 0


def cli() -> int:
  return entry.run("negatives_report", main)


if __name__ == "__main__":
  sys.exit(cli())
