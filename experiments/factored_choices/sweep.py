"""Tags: clusters and widths of the adaptive softmax, and bins of two-level softmaxes.

Methods are compared at the end of training, with three seeds. After Grave et al. 2017,
sections 4.2, 4.3 and 5, on other data.
"""

CONFIG = "configs/xmlc.py:{},data=citeulike_t"
SEEDS = (0, 1, 2)
# The rate that the search of tags_at_the_end chose for each of these heads.
LENGTH = {
  **{"train.epochs": 5.0, "train.lr": 0.1},
  **{"eval.every_epochs": 1.0, "log.monitor_every_steps": 0},
}
PLANNED = {"head.batch_examples": 256}
# A bound on the largest bin: otherwise a few bins would hold all tags that occur never
# or once.
LARGEST = {"head.slack": 4.0}
ROWS = {
  "full softmax": ("full", {}),
  **{
    f"adaptive, {num} clusters": ("adaptive", PLANNED | {"head.num_clusters": num})
    for num in (2, 3, 4, 5)
  },
  **{
    f"adaptive, 5 clusters, rows narrower by {factor}": (
      "adaptive",
      PLANNED | {"head.num_clusters": 5, "head.factor": factor},
    )
    for factor in (1, 2)
  },
  **{
    f"two levels, {binning}": ("hierarchical", LARGEST | {"head.binning": binning})
    for binning in ("equal", "frequency", "sqrt")
  },
}


def sweep(add):
  for seed in SEEDS:
    for name, (head, own) in ROWS.items():
      add(CONFIG.format(head), {**own, **LENGTH, "train.seed": seed}, name=name)


def comparison():
  return {"to": "full softmax", "metric": "test_p@1"}


def metrics():
  scores = ["valid_p@1", "test_p@1", "test_p@5", "test_nll", "test_psp@1"]
  return [*scores, "peak_mib", "steps"]
