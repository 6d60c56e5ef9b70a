"""PTB, small LSTM: the exact softmax against 512 shared negatives, at equal epochs."""


def sweep(add):
  add("configs/ptb.py:full", name="full softmax")
  add("configs/ptb.py:sampled/pps", {"head.num_samples": 512}, name="sampled, pps, 512")


def metrics():
  return ["valid_ppl", "test_ppl", "train_seconds", "tokens_per_second"]


def paper():
  # Zaremba et al. 2014, table 1: the non-regularized LSTM, which is this network.
  return {"full softmax": {"valid_ppl": 120.7, "test_ppl": 114.5}}
