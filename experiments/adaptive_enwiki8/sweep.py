"""Table 1 of Grave et al. 2017 at its own size, for a GPU.

The text is Wikipedia, prepared by text8's recipe. The model is an LSTM of 512, trained
with 128 streams of 20 words for five epochs, with weight decay.
"""

import pathlib
import runpy

shared = runpy.run_path(str(pathlib.Path(__file__).parents[1] / "adaptive/sweep.py"))
paper, figures = shared["paper"], shared["figures"]

FIFTH = 13_570  # a fifth of the words: the negatives of "sampling" in the paper
PLAN = {"head.batch_examples": 128 * 20, "head.min_head_mass": 0.8}
# Bins stay as unequal as the rule makes them, as in the paper.
UNCUT = {"head.slack": 4.0}
FULL, FULL_SGD, ADAPTIVE = "full softmax", "full softmax (SGD)", "adaptive softmax"
# Heads in the order of the paper's table. The paper's Adagrad starts near 0, with which
# sampled rows diverge (see ../adaptive). Heads with sampled rows therefore use SGD, and
# are compared with a full softmax that also uses SGD.
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
  """The perplexity divided by that of the full softmax with the same optimiser."""
  by_name = {r["name"]: r for r in records}
  full = by_name.get(FULL_SGD if "optimizer=sgd" in record["config"] else FULL)
  return {"to_full": record["test_ppl"] / full["test_ppl"]} if full else {}
