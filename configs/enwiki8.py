"""A stream of lower-case Wikipedia: text8, or a text made by its recipe.

--config=configs/enwiki8.py:full      --config.data.train=FILE
--config=configs/enwiki8.py:adaptive  --config.data.train=FILE

Settings of paper 004, section 5, for text8. Left out: its weight decay.
"""

from largevocab import config as c


def get_config(arg: str = ""):
  a = c.parse_arg(arg, head="full")
  return c.experiment(
    runlocal=a.runlocal,
    data=c.part("data", "text8", min_count=5),
    model=c.part("model", "lstm", embed=256, hidden=512, layers=1),
    head=c.head(a.head, num_samples=4096, init_scale=0.1),
    # Torch's starts at 0, as the paper's; a little above, first steps are less wild.
    optimizer=c.part("optimizer", "adagrad", initial_accumulator=1e-8, eps=1e-9),
    train=c.Training(epochs=5, batch_size=128, unroll=20, lr=0.1, clip_norm=1.0),
    eval=c.Evaluating(batch_size=128),
  )
