"""Softmax regression on synthetic data with a known distribution: no network, no text.

--config=configs/softmax_regression.py:full
--config=configs/softmax_regression.py:sampled/unigram \
  --config.head.sampler.per_example=True

This is the setting of Barber & Botev 2016, section 4. `experiments/likelihood_toy`
makes the figures of that section. No result of this config is committed.
"""

from largevocab import config as c


def get_config(arg: str = ""):
  a = c.parse_arg(arg, head="sampled/unigram", dim=100)
  return c.experiment(
    runlocal=a.runlocal,
    data=c.part("data", "softmax_regression", dim=a.dim),
    model=c.part("model", "linear", embed=a.dim),
    head=c.head(a.head, num_samples=20, bias=False, init_scale=0.05),
    optimizer=c.part("optimizer", "momentum", momentum=0.99),
    train=c.Training(epochs=50, batch_size=50, unroll=1, lr=0.03, clip_norm=0.0),
    eval=c.Evaluating(every_epochs=5, batch_size=100, unroll=1),
  )
