"""Losses of the spherical family on Wikipedia for two epochs, beside the full softmax.

After section 6 of Vincent et al. 2015, with the models of ../lst/sweep.py trained for
longer. `train.head_lr_factor` of the factored heads is the best by validation
perplexity after 20,000 steps: of 6, 25, 100, 400 and 1,600 for Taylor, and of 5, 20, 80
and 320 for spherical. The learning rate of the network is the better of 1 and 0.1,
tried with the sampled and with the Taylor softmax. The full softmax needs a GPU.
"""

MODEL = {
  "model.combine": "average",
  **{"train.batch_size": 16, "train.unroll": 8, "train.epochs": 2},
  **{"eval.batch_size": 16, "eval.unroll": 8, "eval.every_epochs": 0.25},
  **{"data.min_count": 5, "data.valid_share": 5e-4, "data.test_share": 5e-4},
}
SEEDS = (0, 1, 2)
ON_GPU = "full softmax"  # only with the first seed
MODELS = {
  "taylor": ("spherical/taylor", {"train.head_lr_factor": 25.0}),
  "spherical": (
    "spherical/spherical",
    {"train.head_lr_factor": 20.0, "head.loss.eps": 0.1},
  ),
  "sampled softmax": ("sampled/pps", {}),
}
# Files of word pairs, by the prefix of their figures' names.
FILES = {"simlex": "SimLex-999", "wordsim": "wordsim353_combined"}
ROWS = ("input", "output")


def sweep(add):
  config = lambda head: f"configs/ngram.py:{head},data=text8"
  for seed in SEEDS:
    of_seed = {"train.seed": seed} if seed else {}
    for name, (head, overrides) in MODELS.items():
      add(config(head), MODEL | overrides | of_seed, name=name)
  add(config("full"), MODEL, name=ON_GPU)  # the last one, as it takes longest


def metrics():
  pairs = [f"valid_{pairs}_{rows}" for pairs in FILES.values() for rows in ROWS]
  return ["test_ppl", *pairs, "steps"]


def figures():
  return [
    {
      **{"file": f"{file}_{rows}", "x": "step", "y": f"curve_{pairs}_{rows}"},
      "band": True,
    }
    for file, pairs in FILES.items()
    for rows in ROWS
  ]
