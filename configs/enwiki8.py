"""A stream of lower-case Wikipedia text: text8, or a text prepared in the same way.

--config=configs/enwiki8.py:full                      --config.data.train=FILE
--config=configs/enwiki8.py:adaptive                  --config.data.train=FILE
--config=configs/enwiki8.py:adaptive,weight_decay     --config.data.train=FILE
--config=configs/enwiki8.py:sampled/pps,optimizer=sgd --config.data.train=FILE

The settings are those of Grave et al. 2017, section 5, for text8. Its weight decay is
used only with `weight_decay`. The models of experiments/adaptive do not use it. With
`sgd`, rate and clip are those of configs/ptb.py.

Expect with `adaptive` a test perplexity of 354.5 after 2,500 steps, with a narrower
network and the smaller batches and held-out shares of that run (experiments/adaptive,
"adaptive softmax"; one seed, first 2,500 steps). A counted bigram is still ahead of
this model there, which has not been trained to the end.
"""

from largevocab import config as c

UNROLL = 20
# In Torch and the paper, this starts at 0. A small value makes the first steps smaller.
ADAGRAD = {"initial_accumulator": 1e-8, "eps": 1e-9}
OPTIMIZERS = {  # fields, learning rate, clip
  "adagrad": (ADAGRAD, 0.1, 1.0),
  "rowwise_adagrad": (ADAGRAD, 0.1, 1.0),
  "sgd": ({}, 1.0 * UNROLL, 5.0 / UNROLL),
}
# Lambda in section 5, which does not say what decays. In the code that the authors
# released, biases decay, and the rows of input words do not. Here both decay.
WEIGHT_DECAY = 1e-6


def get_config(arg: str = ""):
  a = c.parse_arg(arg, head="full", optimizer="adagrad", weight_decay=False)
  if a.optimizer not in OPTIMIZERS:
    raise c.UserError(
      f"no settings for the optimizer {a.optimizer!r}"
      f"{c.nearest(a.optimizer, OPTIMIZERS)}"
    )
  fields, lr, clip_norm = OPTIMIZERS[a.optimizer]
  decay = WEIGHT_DECAY if a.weight_decay else 0.0
  return c.experiment(
    runlocal=a.runlocal,
    data=c.part("data", "text8", min_count=5),
    model=c.part("model", "lstm", embed=256, hidden=512, layers=1),
    head=c.head(a.head, num_samples=4096, init_scale=0.1),
    optimizer=c.part("optimizer", a.optimizer, weight_decay=decay, **fields),
    train=c.Training(
      epochs=5, batch_size=128, unroll=UNROLL, lr=lr, clip_norm=clip_norm
    ),
    eval=c.Evaluating(batch_size=128),
  )
