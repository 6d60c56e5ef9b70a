"""Sequential recommendation: the next item after those of a user, at every step.

--config=configs/sequences.py                  --config.data.path=ml-1m.inter
--config=configs/sequences.py:full,model=lstm  --config.data.path='DIR/*.csv.gz'

`--config.data.lines=histories` reads lines of a user and all items.

No result is committed: the hit rate depends on the data.
"""

from largevocab import config as c


def get_config(arg: str = ""):
  a = c.parse_arg(arg, head="sampled/pps", data="interactions", model="lstm")
  steps = 50
  return c.experiment(
    runlocal=a.runlocal,
    data=c.part("data", a.data),
    model=c.part("model", a.model, embed=64, hidden=64, layers=1, dropout=0.2),
    head=c.head(a.head, num_samples=512, init_scale=0.1),
    optimizer=c.part("optimizer", "adam"),
    train=c.Training(
      epochs=20, batch_size=128, unroll=steps, lr=0.001, hold_epochs=20, clip_norm=1.0
    ),
    eval=c.Evaluating(batch_size=256, unroll=steps, hit_k=(5, 10)),
  )
