"""PTB: likelihood, discrimination or ranking, with K negatives for each token.

The losses are those of Barber and Botev 2016; the protocol is that of
experiments/kernel_bias.
"""

STEPS = 600
NUM_SAMPLES = (100, 20, 500)
LENGTH = {"train.max_steps": STEPS, "eval.every_epochs": 0.0, "eval.ranking_k": 10}
# Replaces the config's 20, at which these made no progress in 200 steps with K = 100.
SLOWER = {"train.lr": 5.0}

# By name: head and sampler, overrides. Each token has its own negatives.
OWN = {"head.sampler.per_example": True}
METHODS = {
  "importance, unigram": ("sampled/unigram", {}),
  "bernoulli, capped": ("sampled/bernoulli", {}),
  "blackout": ("blackout/unigram", {"head.sampler.power": 0.5}),
  "nce, z = 1": ("nce/unigram", {}),
  "nce, a learned z": ("nce/unigram", {"head.loss.normalizer": "global"}),
  "negative sampling": ("negative_sampling/unigram", SLOWER),
  "ranking, log(V-1)": ("ranking/uniform", SLOWER),
}
# Variants, run with one K.
VARIANTS = {
  "bernoulli, f^alpha": ("sampled/bernoulli", {"head.sampler.inclusion": "power"}),
  "nce, z = 1, rate 5": ("nce/unigram", SLOWER),
  "nce, z of each word before": ("nce/unigram", {"head.loss.normalizer": "context"}),
  "ranking, alpha = 1": ("ranking/uniform", {"head.loss.alpha": "1", **SLOWER}),
}
# With few negatives, does BlackOut itself help, or its proposal distribution?
FEWEST = {"importance, f^0.5": ("sampled/unigram", {"head.sampler.power": 0.5})}
# The true class is not treated exactly.
PLAIN = {"plain importance, unigram": ("importance/unigram", {})}
# One draw serves the batch.
SHARED = {
  "pps, shared": ("sampled/pps", {}),
  "bernoulli, capped, shared": ("sampled/bernoulli", {}),
  "blackout, shared": ("blackout/unigram", {"head.sampler.power": 0.5}),
  "nce, a learned z, shared": ("nce/unigram", {"head.loss.normalizer": "global"}),
}


def sweep(add):
  add("configs/ptb.py:full", LENGTH, name="full softmax")
  for m in NUM_SAMPLES:
    add_all(add, METHODS, m, OWN)
    if m == NUM_SAMPLES[0]:
      add_all(add, VARIANTS, m, OWN)
    if m == min(NUM_SAMPLES):
      add_all(add, FEWEST, m, OWN)
    add_all(add, SHARED, m, {})
  for m in NUM_SAMPLES:
    add_all(add, PLAIN, m, OWN)


def add_all(add, methods, m, more):
  for name, (head, overrides) in methods.items():
    overrides = {"head.num_samples": m, **LENGTH, **more, **overrides}
    add(f"configs/ptb.py:{head}", overrides, name=f"{name}, K={m}")


def comparison():
  return {"to": "full softmax", "metric": "test_ppl"}


def metrics():
  return ["test_ppl", "test_recall@10", "test_self_normalised_nll", "ms_per_step"]
