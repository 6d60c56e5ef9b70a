"""Item sequences: losses with one transformer of SASRec's shape, three seeds.

The data are two sets of Amazon reviews. All losses train with one schedule. All metrics
are computed from full rankings without the items that the user has seen. The files are
those of S3-Rec (Zhou et al. 2020) and SASRec (Kang and McAuley 2018), in one directory.
"""

SEEDS = (0, 1, 2)
SETS = {
  "Beauty": {
    "data.file": "s3rec_Beauty.txt*",
    "data.lines": "histories",
    "train.epochs": 20.0,
  },
  "Video Games": {
    "data.file": "sasrec_Video.txt*",
    "train.epochs": 12.0,  # about as many labels as in 20 epochs of Beauty
    "eval.every_epochs": 4.0,
  },
}
LENGTH = {
  "train.schedule": "cosine",
  "train.batch_size": 16,
  "eval.every_epochs": 5.0,
  "data.packed": True,
  "train.tied": True,
  "model.dropout": 0.5,
}
OWN = {"head.sampler.per_example": True}
LOSSES = {
  "full softmax": ("full", {}),
  "pps, 512": ("sampled/pps", {"head.num_samples": 512}),
  "in-batch, logQ": ("sampled/in_batch", {"head.num_samples": 1024}),
  "SCE, 64": ("sampled/sce", {"head.num_samples": 64}),
  "gBCE, 16 own": (
    "negative_sampling/uniform",
    {"head.num_samples": 16, "head.loss.calibration": 0.75, **OWN},
  ),
  "BCE, 1 own": ("negative_sampling/uniform", {"head.num_samples": 1, **OWN}),
}
CHEAP = ("pps, 512", "in-batch, logQ", "BCE, 1 own")  # also with three times the steps


def sweep(add):
  for seed in SEEDS:
    for data, files in SETS.items():
      for name, (head, fields) in LOSSES.items():
        overrides = {**LENGTH, **files, **fields, "train.seed": seed}
        add(f"configs/sequences.py:{head}", overrides, name=f"{data}: {name}")
  for seed in SEEDS:
    for data, files in SETS.items():
      for name in CHEAP:
        head, fields = LOSSES[name]
        overrides = {**LENGTH, **files, **fields, "train.seed": seed}
        overrides["train.epochs"] *= 3
        add(
          f"configs/sequences.py:{head}", overrides, name=f"{data}: {name}, 3 x steps"
        )


def search():
  # Adam moves a row by the learning rate in each step in which the row has a gradient.
  # With sampled classes such steps are rare.
  grid = {"train.head_lr_factor": [16.0, 64.0, 256.0]}
  return {"steps": 2060, "grid": grid, "metric": "valid_ndcg@10"}


def paper():
  # Rajput et al. 2023, table 1, for this file and split, trained as in SASRec.
  figures = {"test_hr@5": 0.0387, "test_hr@10": 0.0605, "test_ndcg@10": 0.0318}
  return {"Beauty: BCE, 1 own": figures}


def comparison():
  return {"to": "full softmax", "metric": "test_ndcg@10"}


def metrics():
  return ["test_ndcg@10", "test_hr@10", "test_hr@5", "valid_ndcg@10", "steps"]
