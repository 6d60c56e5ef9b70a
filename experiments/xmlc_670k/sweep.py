"""670,091 labels: data of Amazon-670K's shape whose Bayes classifier is known."""

SEEDS = (0, 1, 2)
# A document has 76 distinct features and 5.5 labels; a label has four documents.
SHAPE = {
  "data.num_classes": 670_091,
  "data.num_features": 135_909,
  "data.num_examples": 490_449,
  "data.num_topics": 100_000,
  "data.labels_per_topic": 10,
  "data.label_share": 0.55,
  "data.features_per_topic": 60,
  "data.features_per_example": 130.0,
  "data.exponent": 0.5,
  "data.held_out_share": 0.01,  # small, as an evaluation computes all logits
}
LENGTH = {
  "train.batch_size": 1024,
  "train.epochs": 10.0,
  "eval.batch_size": 256,
  "eval.every_epochs": 2.0,
  "log.monitor_every_steps": 0,
}
# One of the 50 tables is rebuilt in every step.
LSH = {
  "head.num_samples": 128,
  "head.refresh_every": 0,
  "head.sampler.codes": 6,
  "head.sampler.slots": 8,
  "head.sampler.rehash": False,
  "head.sampler.rebuild_tables": 1,
}
REFERENCE = "pps, m=4096"
METHODS = {
  REFERENCE: ("sampled/pps", {"head.num_samples": 4096}),
  # As long as LSH takes for 10 epochs, at the rate that was found for 10 epochs.
  "pps, m=4096, 24 epochs": (
    "sampled/pps",
    {
      "head.num_samples": 4096,
      "train.epochs": 24.0,
      "train.lr": 0.3,
      "eval.every_epochs": 6.0,
    },
  ),
  "LSH embedding weighted, m=128": ("sampled/lsh_embedding", LSH),
  "NCE, m=4096": ("nce/unigram", {"head.num_samples": 4096}),
  "adaptive": ("adaptive", {}),
  "full softmax": ("full", {}),
}


def sweep(add):
  for seed in SEEDS:
    for name, (head, fields) in METHODS.items():
      overrides = {**SHAPE, **LENGTH, **fields, "train.seed": seed}
      add(f"configs/xmlc.py:{head},data=topics", overrides, name=name)


def search():
  return {"steps": 478, "grid": {"train.lr": [0.1, 0.3, 1.0]}, "metric": "valid_p@1"}


def comparison():
  return {"to": REFERENCE, "metric": "test_p@1"}


def figures():
  curves = {"file": "precision_over_time", "x": "idle_time", "y": "curve_p@1"}
  return [curves | {"line": "name", "band": True}]


def metrics():
  return ["test_p@1", "test_p@5", "valid_p@1", "steps", "ms_per_step"]
