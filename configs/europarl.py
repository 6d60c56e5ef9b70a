"""Europarl in any language, from one file, or from train, valid and test files.

--config=configs/europarl.py:adaptive     --config.data.train=europarl-v7.da
--config=configs/europarl.py:adaptive,lang=da
--config=configs/europarl.py:adaptive,lang=da,weight_decay

`lang` stands for the language's file in the working directory. The settings are those
of Grave et al. 2017, section 5. Its weight decay is used only with `weight_decay`. The
models of experiments/adaptive_english and experiments/adaptive_french do not use it.

Expect with `adaptive` a test perplexity of 190.5 after 500 steps, with a narrower
network and the smaller batches and held-out shares of that run
(experiments/adaptive_english, "adaptive softmax"; one seed, first 500 steps). A counted
bigram is still ahead of this model there, which has not been trained to the end.
"""

from largevocab import config as c

WEIGHT_DECAY = 1e-6  # as for text8; see configs/enwiki8.py


def get_config(arg: str = ""):
  defaults = {"head": "full", "lang": "", "weight_decay": False}
  a = c.parse_arg(arg, **defaults)
  text = f"europarl*.{a.lang}" if a.lang else ""
  return c.experiment(
    runlocal=a.runlocal,
    data=c.part("data", "europarl", train=text),
    model=c.part("model", "lstm", embed=256, hidden=512, layers=1),
    head=c.head(a.head, num_samples=4096, init_scale=0.1),
    # In Torch and the paper, this starts at 0. A small value makes first steps smaller.
    optimizer=c.part(
      "optimizer",
      "adagrad",
      weight_decay=WEIGHT_DECAY if a.weight_decay else 0.0,
      initial_accumulator=1e-8,
      eps=1e-9,
    ),
    train=c.Training(
      epochs=5,
      # As in the paper, since the Finnish vocabulary takes too much memory for 128.
      batch_size=64 if a.lang == "fi" else 128,
      unroll=20,
      lr=0.1,
      clip_norm=1.0,
    ),
    eval=c.Evaluating(batch_size=128),
  )
