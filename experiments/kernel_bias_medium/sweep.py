"""PTB: the bias of proposal distributions at the end, by the paper's own protocol.

After Blanc and Rendle 2018, figures 2 to 4. The model is the medium network of Zaremba
et al. 2014 with 200 units and dropout, trained for 39 epochs.
"""

LAWS = ["uniform", "unigram", "bigram", "quadratic", "quartic", "softmax"]
NUM_SAMPLES = [10 * 2**number for number in range(10)]
STEPS_PER_EPOCH = 1327  # 929,589 tokens, 20 * 35 in a step
FULL = ["full softmax", "full absolute softmax"]


def sweep(add):
  add("configs/ptb.py:blanc_rendle", name=FULL[0])
  add("configs/ptb.py:blanc_rendle", {"head.absolute": True}, name=FULL[1])
  for m in NUM_SAMPLES:
    for law in LAWS:
      config = f"configs/ptb.py:blanc_rendle,head=sampled/{law}"
      add(config, {"head.num_samples": m}, name=f"{law}, m={m}")


def metrics():
  return ["valid_ppl", "test_ppl", "train_seconds", "ms_per_step"]


def figures():
  over_epochs = {"x": "epoch", "y": "valid_ppl", "steps_per_epoch": STEPS_PER_EPOCH}
  over_epochs |= {"y_max": 500, "log": "y", "reference": FULL}
  samples = {"file": "samples", "x": "head.num_samples", "y": "test_ppl", "log": "xy"}
  return [
    {**samples, "y_max": 500, "where": {"method": LAWS}, "reference": FULL},
    {
      **{"file": "epochs", **over_epochs, "line": "head.num_samples"},
      **{"panel": "method", "where": {"method": LAWS}},
    },
    *(
      {"file": f"epochs_m{m}", **over_epochs, "where": {"head.num_samples": m}}
      for m in (80, 160, 320)
    ),
  ]
