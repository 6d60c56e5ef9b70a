"""Words of Wikipedia by losses of the spherical family: five passes over 17 M words.

5-gram models as those of Vincent et al. 2015, section 6, whose rows of words are
measured by SimLex-999 and WordSim-353 while they train, as in figure 3 (right). The
full softmax is for a GPU: a pass takes a core more than a day.
"""

NGRAM = {
  "model.combine": "average",
  **{"train.batch_size": 16, "train.unroll": 8, "train.epochs": 5.0},
  **{"eval.batch_size": 16, "eval.unroll": 8, "eval.every_epochs": 0.25},
  **{"data.min_count": 5, "data.valid_share": 5e-4, "data.test_share": 5e-4},
}
# As those of experiments/lst, whose comment says how the rates were found.
MODELS = {
  "taylor": ("spherical/taylor", {"train.head_lr_factor": 100.0}),
  "spherical": (
    "spherical/spherical",
    {"train.head_lr_factor": 20.0, "head.loss.eps": 0.1},
  ),
  "sampled softmax": ("sampled/pps", {}),
  "full softmax": ("full", {}),
}


def sweep(add):
  for name, (head, overrides) in MODELS.items():
    add(f"configs/ngram.py:{head},data=text8", NGRAM | overrides, name=name)


def metrics():
  pairs = ("SimLex-999", "wordsim353_combined")
  measured = [f"valid_{each}_{rows}" for each in pairs for rows in ("input", "output")]
  return ["test_ppl", *measured, "steps"]


def figures():
  return [
    {"file": f"simlex_{rows}", "x": "step", "y": f"curve_SimLex-999_{rows}"}
    for rows in ("input", "output")
  ]
