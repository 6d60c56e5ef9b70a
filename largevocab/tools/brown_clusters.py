"""Computes Brown clusters of a text's words, for the head `hierarchical`.

  python -m largevocab.tools.brown_clusters --config=configs/enwiki8.py \\
    --config.data.train=FILE --out=clusters.npy
  python -m largevocab.main --config=configs/enwiki8.py:hierarchical \\
    --config.data.train=FILE --config.head.clusters=clusters.npy --workdir=RUN

Words with similar neighbours share a cluster (see largevocab/ops/tree/exchange.py). The
text is the training data of the config. Writes i32[V]. Prints the perplexity of a
bigram model of clusters on this text, for these clusters and for clusters by count.
"""

import functools
import pathlib
import sys

import numpy as np

from largevocab import atomic, command_line, config
from largevocab.errors import UserError
from largevocab.heads import Hierarchical
from largevocab.labels import Counts
from largevocab.ops.tree.exchange import log_likelihood
from largevocab.samplers.bigram import count_pairs
from largevocab.tools import entry


def perplexity(counts: Counts, cluster_V: np.ndarray) -> float:
  """Perplexity of the text under the bigram model of its own clusters."""
  assert counts.tokens is not None
  pairs = count_pairs(counts.tokens, counts.num_classes)
  return float(np.exp(-log_likelihood(*pairs, cluster_V) / pairs[1].sum()))


def main(argv: list[str] | None = None) -> int:
  parser = entry.Parser(__doc__)
  add = parser.add_argument
  add(
    "--config",
    required=True,
    metavar="FILE[:ARG]",
    help="set keys with --config.KEY=VALUE",
  )
  add("--out", required=True, type=pathlib.Path, help=".npy file to write")
  add("--num_clusters", type=int, default=0, help="default: the square root of V")
  more = "size of the largest cluster over the mean, 1 to 64: see `Hierarchical`"
  add("--slack", type=float, default=Hierarchical.slack, help=more)
  args, rest = parser.parse_known_args(argv)
  if args.out.suffix != ".npy":
    raise UserError(f"--out={args.out}: name a file that ends in .npy")
  settings = command_line.load(args.config)
  known = ["config", "out", "num_clusters", "slack"]
  command_line.override(settings, ["brown_clusters", *rest], known=known)
  exp = config.build(settings)
  entry.check_file(args.out, "--out", ".npy")
  counts = exp.data.load().counts
  sizes = {"num_clusters": args.num_clusters, "slack": args.slack}
  head = functools.partial(Hierarchical, **sizes)
  cluster_V = head(binning="brown").cluster_of(counts)
  with atomic.replacing(args.out) as file:
    np.save(file, cluster_V.astype(np.int32))
  size_K = np.bincount(cluster_V)
  print(f"{len(size_K)} clusters of {size_K.min()} to {size_K.max()} words: {args.out}")
  print(f"perplexity {perplexity(counts, cluster_V):.1f}")
  for binning in ("equal", "frequency", "sqrt"):
    of_counts_V = head(binning=binning).cluster_of(counts)
    print(f"{binning} {perplexity(counts, of_counts_V):.1f}")
  return 0


def cli() -> int:
  return entry.run("brown_clusters", main)


if __name__ == "__main__":
  sys.exit(cli())
