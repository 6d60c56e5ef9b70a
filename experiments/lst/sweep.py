"""Losses of the spherical family as language models: perplexity and word similarity.

There are two problems. On Penn Treebank, the LSTM of Zaremba et al. 2014 has its loss
replaced. On Wikipedia, 5-gram models have their word rows evaluated on SimLex-999 while
they train, as in figure 3 (right) of Vincent et al. 2015. Learning rates are the best
of the few that were tried.
"""

STEPS = 20_000
# A batch is 16 streams of 8 words: 128 examples, as in the paper. The validation set is
# small, because the softmax takes all outputs of its examples.
NGRAM = {
  "model.combine": "average",
  **{"train.batch_size": 16, "train.unroll": 8},
  **{"eval.batch_size": 16, "eval.unroll": 8, "eval.every_epochs": 0.01},
  **{"data.min_count": 5, "data.valid_share": 5e-4, "data.test_share": 5e-4},
}
# By name: the head and overrides, such as the head's learning rate relative to the
# network's. Factored heads learn by plain gradient descent, the others by Adagrad, as
# the network does.
MODELS = {
  "taylor": ("spherical/taylor", {"train.head_lr_factor": 100.0}),
  "sampled softmax": ("sampled/pps", {}),
  "spherical": (
    "spherical/spherical",
    {"train.head_lr_factor": 20.0, "head.loss.eps": 0.1},
  ),
  "squared": (
    "spherical/squared",
    {"train.head_lr_factor": 0.003, "head.init_scale": 0.001},
  ),
  "full softmax": ("full", {"eval.every_epochs": 0.001}),
}
SLOW = {"full softmax": STEPS // 16}


def sweep(add):
  rate = {"train.head_lr_factor": 25.0}
  add("configs/ptb.py:spherical/taylor", rate, name="PTB: taylor")
  spherical = {"head.loss.eps": 0.1, "train.head_lr_factor": 5.0}
  add("configs/ptb.py:spherical/spherical", spherical, name="PTB: spherical")
  for name, (head, overrides) in MODELS.items():
    length = {"train.max_steps": SLOW.get(name, STEPS)}
    overrides = NGRAM | length | overrides
    add(f"configs/ngram.py:{head},data=text8", overrides, name=name)


def metrics():
  pairs = [f"valid_SimLex-999_{rows}" for rows in ("input", "output")]
  return ["test_ppl", *pairs, "steps"]


def figures():
  return [
    {
      **{"file": f"simlex_{rows}", "x": "step", "y": f"curve_SimLex-999_{rows}"},
      "where": {"data": "", "method": list(MODELS)},
    }
    for rows in ("input", "output")
  ]
