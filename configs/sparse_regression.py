"""Regression on sparse targets by squared error.

There are sparse features, one hidden layer, and a target of 1 or 0 for each of very
many outputs, as in a sparse autoencoder.

--config=configs/sparse_regression.py
--config=configs/sparse_regression.py:data=gowalla          --config.data.path=DIR
--config=configs/sparse_regression.py:data=xmlc             --config.data.path=DIR
--config=configs/sparse_regression.py:spherical/z,data=xmlc --config.data.path=DIR

This is the first setting of Vincent et al. 2015. All outputs are trained in every step,
at a cost independent of their number. The head's step size must be small compared with
1 / |h|^2. No result is committed.
"""

from largevocab import config as c


def get_config(arg: str = ""):
  a = c.parse_arg(arg, head="spherical/squared", data="stdlib_calls", hidden=128)
  return c.experiment(
    runlocal=a.runlocal,
    data=c.part("data", a.data),
    model=c.part("model", "bag", embed=a.hidden),
    head=c.head(a.head, num_samples=128, init_scale=0.01, loss={"binary": True}),
    optimizer=c.part("optimizer", "adagrad", initial_accumulator=1e-6),
    train=c.Training(
      epochs=10, batch_size=256, unroll=1, lr=0.1, head_lr_factor=0.1, clip_norm=0.0
    ),
    eval=c.Evaluating(batch_size=256, unroll=1, precision_k=(1, 3, 5)),
    log=c.Logging(every_steps=50),
  )
