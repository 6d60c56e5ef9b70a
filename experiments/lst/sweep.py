"""Losses of the spherical family as language models: perplexity, and words' meaning.

Penn Treebank with the LSTM of Zaremba et al. 2014, its loss replaced; and 5-gram models
of Wikipedia, whose rows of words are measured by SimLex-999 while they train, as in
figure 3 (right) of Vincent et al. 2015. The rates are the best of those that were tried.
"""

STEPS = 40_000
# Of 16 streams of 8 words: 128 examples, as in the paper. Little is kept for validation,
# which takes all outputs of the softmax.
NGRAM = {
  **{"train.batch_size": 16, "train.unroll": 8, "train.epochs": 1.0},
  **{"eval.batch_size": 16, "eval.unroll": 8, "data.min_count": 5},
  **{"data.valid_share": 0.0005, "data.test_share": 0.0005},
}
# Rate of the head, over that of the network; steps; steps between evaluations. Full and
# sampled softmax learn by Adagrad, and the factored heads by plain gradient descent.
MODELS = {
  "taylor": ("spherical/taylor", {"train.head_lr_factor": 100.0}, STEPS),
  "spherical": ("spherical/spherical", {"train.head_lr_factor": 10.0}, STEPS),
  "squared": ("spherical/squared", {"train.head_lr_factor": 0.01}, STEPS),
  "sampled softmax": ("sampled/pps", {}, STEPS),
  "full softmax": ("full", {}, STEPS // 16),
}


def sweep(add):
  rate = {"train.head_lr_factor": 25.0}
  add("configs/ptb.py:spherical/taylor", rate, name="PTB: taylor")
  spherical = {"head.loss.eps": 0.1, "train.head_lr_factor": 5.0}
  add("configs/ptb.py:spherical/spherical", spherical, name="PTB: spherical")


def metrics():
  return ["test_ppl", "ms_per_step"]
