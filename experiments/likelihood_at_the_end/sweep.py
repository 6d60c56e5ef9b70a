"""PTB: likelihood, discrimination or ranking, trained to the end at searched rates.

The heads of Barber and Botev 2016; each token has K negatives of its own.
"""

NUM_SAMPLES = (20, 100)
LENGTH = {"eval.every_epochs": 0.5, "eval.ranking_k": 10, "train.seed": 0}
OWN = {"head.sampler.per_example": True}
# Name: head and sampler, overrides.
METHODS = {
  "importance, unigram": ("sampled/unigram", {}),
  "blackout": ("blackout/unigram", {"head.sampler.power": 0.5}),
  "bernoulli, capped": ("sampled/bernoulli", {}),
  "nce, z = 1": ("nce/unigram", {}),
  "nce, a learned z": ("nce/unigram", {"head.loss.normalizer": "global"}),
  "negative sampling": ("negative_sampling/unigram", {}),
  "ranking, log(V-1)": ("ranking/uniform", {}),
}


def sweep(add):
  add("configs/ptb.py:full", LENGTH, name="full softmax")
  for m in NUM_SAMPLES:
    for name, (head, overrides) in METHODS.items():
      overrides = {"head.num_samples": m, **LENGTH, **OWN, **overrides}
      add(f"configs/ptb.py:{head}", overrides, name=f"{name}, K={m}")


def search():
  return {"steps": 2000, "grid": {"train.lr": [1.25, 5.0, 20.0]}}


def comparison():
  return {"to": "full softmax", "metric": "test_ppl"}


def metrics():
  return ["test_ppl", "test_recall@10", "test_self_normalised_nll", "steps"]
