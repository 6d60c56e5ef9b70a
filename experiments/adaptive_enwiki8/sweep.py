"""Table 1 of Grave et al. 2017 at its own size, on Wikipedia made by text8's recipe: an
LSTM of 512, 128 streams of 20 words, five epochs, weight decay. For a GPU.
"""

import pathlib
import runpy

shared = runpy.run_path(str(pathlib.Path(__file__).parents[1] / "adaptive/sweep.py"))
paper, figures = shared["paper"], shared["figures"]

FIFTH = 13_570  # of the words: negatives of "sampling" in the paper
PLAN = {"head.batch_examples": 128 * 20, "head.min_head_mass": 0.8}
# Bins as unequal as the rule makes them, as in the paper.
UNCUT = {"head.slack": 4.0}
FULL, FULL_SGD, ADAPTIVE = "full softmax", "full softmax (SGD)", "adaptive softmax"
# Heads in the order of the paper's table. Under its Adagrad from near 0 rows that are
# drawn diverge (see ../adaptive), and so these learn by SGD, beside a full softmax that
# does so, too.
RIVALS = {
  "HSM (sim)": ("hierarchical", UNCUT | {"head.binning": "brown"}),
  "HSM (freq)": ("hierarchical", UNCUT | {"head.binning": "sqrt"}),
  "D-softmax": ("d_softmax", PLAN),
  "D-softmax [*]": ("d_softmax", PLAN | {"head.projected": True}),
  ADAPTIVE: ("adaptive", PLAN),
  "sampling": ("sampled/pps,optimizer=sgd", {"head.num_samples": FIFTH}),
  "sampling (unigram)": ("sampled/unigram,optimizer=sgd", {"head.num_samples": FIFTH}),
  FULL: ("full", {}),
  FULL_SGD: ("full,optimizer=sgd", {}),
}


def sweep(add):
  for name, (head, overrides) in RIVALS.items():
    add(f"configs/enwiki8.py:{head},weight_decay", overrides, name=name)


def metrics():
  return ["test_ppl", "to_full", "train_seconds", "ms_per_step", "steps"]


def derived(record, records):
  """Perplexity over that of the full softmax under the same optimiser."""
  by_name = {r["name"]: r for r in records}
  full = by_name.get(FULL_SGD if "optimizer=sgd" in record["config"] else FULL)
  return {"to_full": record["test_ppl"] / full["test_ppl"]} if full else {}
