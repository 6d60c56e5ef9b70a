"""Losses of the spherical family as language models: perplexity, and words' meaning.

Penn Treebank with the LSTM of Zaremba et al. 2014, its loss replaced; and 5-gram models
of Wikipedia, whose rows of words are measured by SimLex-999 while they train, as in
figure 3 (right) of Vincent et al. 2015. Rates are the best of the few that were tried.
"""

STEPS = 20_000
# Of 16 streams of 8 words: 128 examples, as in the paper. Little is kept for
# validation, of which the softmax takes all outputs.
NGRAM = {
  "model.combine": "average",
  **{"train.batch_size": 16, "train.unroll": 8},
  **{"eval.batch_size": 16, "eval.unroll": 8, "eval.every_epochs": 0.01},
  **{"data.min_count": 5, "data.valid_share": 5e-4, "data.test_share": 5e-4},
}
# Head, its rate over that of the network and other overrides. The factored ones learn
# by plain gradient descent, the others by Adagrad as the network.
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
