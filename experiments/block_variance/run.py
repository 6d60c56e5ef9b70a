"""Do draws in blocks of classes estimate partition functions worse than one draw?

  python experiments/block_variance/run.py

`relvar` is Var(Z~) / Z^2 of a sampled softmax, as `monitor` reports it. It is measured
with the same number of negatives from 1, 8 and 64 blocks of the same model. The logits
of the model are normal with a standard deviation of 2 around the logarithms of counts
that follow Zipf's law. Each repetition has its own rows, activations, hash functions
and draws. The intervals of ratios to one block come from a paired bootstrap over
repetitions.
"""

import argparse
import json
import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np

from largevocab import config
from largevocab.heads import ShardedHead, class_mesh
from largevocab.labels import Counts, single_targets
from largevocab.tools import entry
from largevocab.tools.reports.measure import about_this_run
from largevocab.tools.sweeps import records

HERE = pathlib.Path(__file__).resolve().parent
V, D, N = 5000, 32, 32  # 64 blocks do not divide V
SCALE = 2.0  # standard deviation of the logits
BLOCKS = (1, 8, 64)
SAMPLERS = {"pps": 512, "quadratic": 128, "lsh_embedding": 128}
RESAMPLES = 10_000


def model(seed):
  """Counts, class rows with biases, activations and true classes."""
  rng = np.random.default_rng(seed)
  count_V = (1e6 / np.arange(1, V + 1)).astype(np.int64)
  bias_V = np.log(count_V / count_V[-1])  # so that rare classes have logits around 0
  w_VD = rng.normal(0, SCALE / np.sqrt(D), (V, D))
  h_ND = rng.standard_normal((N, D))
  gumbel_NV = rng.gumbel(size=(N, V))
  y_N = np.argmax(h_ND @ w_VD.T + bias_V + gumbel_NV, axis=1)
  return count_V, np.c_[w_VD, bias_V], h_ND.astype(np.float32), single_targets(y_N)


def relvars(name, num_blocks, repetitions, keys):
  """`relvar` of each repetition, the mean over 32 examples and 32 * `keys` draws."""
  inner = config.head(f"sampled/{name}", num_samples=SAMPLERS[name])
  head = ShardedHead(inner, class_mesh(jax.devices()[:1]), num_blocks)
  refresh = jax.jit(head.refresh)

  @jax.jit
  def mean(state, h_ND, y, key):
    of_key = lambda key: head.monitor(state, h_ND, y, key)["relvar"]
    return jnp.mean(jax.lax.map(of_key, jax.random.split(key, keys)))

  results = []
  for seed in range(repetitions):
    count_V, rows_VE, h_ND, y = model(seed)
    init, rebuild, draw = jax.random.split(jax.random.key(seed), 3)
    state = with_rows(head.init(init, Counts(count_V), D), rows_VE)
    results.append(float(mean(refresh(state, rebuild), h_ND, y, draw)))
  return results


def with_rows(state, rows_VE):
  """The state with these rows, in the order of its blocks."""
  table = state.parts.table
  class_L = state.blocks.class_of(np.arange(state.blocks.num_rows))
  rows_LE = jnp.asarray(rows_VE, jnp.float32).at[class_L].get(mode="fill", fill_value=0)
  fill = table.w_VD.shape[1] - rows_LE.shape[1]
  table = table._replace(w_VD=jnp.pad(rows_LE, [(0, 0), (0, fill)]))
  return state._replace(parts=state.parts._replace(table=table))


def ratios(one_R, other_R):
  """Two ratios of `other_R` to `one_R`, each with a 95 % bootstrap interval.

  They are the ratio of the means and the geometric mean of the ratios. The bootstrap
  resamples repetitions in pairs.
  """
  one_R, other_R = np.asarray(one_R), np.asarray(other_R)
  at = np.random.default_rng(0).integers(0, len(one_R), (RESAMPLES, len(one_R)))
  found = {}
  for name, ratio in {"ratio_to_one": _of_means, "typical_ratio": _typical}.items():
    low, high = np.quantile(ratio(one_R[at], other_R[at]), (0.025, 0.975)).tolist()
    found |= {name: float(ratio(one_R, other_R)), f"{name}_low": low}
    found[f"{name}_high"] = high
  return found


def _of_means(one_R, other_R):
  return other_R.mean(axis=-1) / one_R.mean(axis=-1)


def _typical(one_R, other_R):
  return np.exp(np.mean(np.log(other_R / one_R), axis=-1))


def main(argv=None):
  parser = entry.Parser(__doc__)
  parser.add_argument("--repetitions", type=int, default=30)
  parser.add_argument("--keys", type=int, default=20, help="of 32 draws each")
  parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=[*SAMPLERS])
  args: argparse.Namespace = parser.parse_args(argv)
  about, rows = about_this_run(), []
  for name in args.samplers:
    of_one = None
    for blocks in BLOCKS:
      relvar_R = relvars(name, blocks, args.repetitions, args.keys)
      of_one = of_one or relvar_R
      label = f"{name}, {SAMPLERS[name]} from {blocks} block{'s' * (blocks > 1)}"
      row = records.report_row(
        label,
        {"blocks": blocks, "relvar": float(np.mean(relvar_R))},
        ratios(of_one, relvar_R),
        {"repetitions": args.repetitions, "draws": 32 * args.keys},
        about,
      )
      rows.append(row)
      print(json.dumps(row), flush=True)
  records.merge(HERE / "results.jsonl", rows)
  return 0


if __name__ == "__main__":
  sys.exit(entry.run("run", main))
