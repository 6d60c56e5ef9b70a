"""Sequential recommendation: predicts a user's next item at every step.

--config=configs/sequences.py                --config.data.path=ml-1m.inter
--config=configs/sequences.py:full,model=gru --config.data.path='DIR/*.csv.gz'

`--config.data.lines=histories` reads lines with a user and all items of the user. The
network is a transformer of SASRec's shape. As in SASRec, `--config.train.tied=True`
makes its input rows the rows of the classes.

The hit rate depends on the data; `experiments/sequences/README.md` has the hit rates on
Beauty and Video Games, with its own settings.
"""

from largevocab import config as c

SASREC = {"heads": 1, "activation": "relu"}


def get_config(arg: str = ""):
  a = c.parse_arg(
    arg,
    head="sampled/pps",
    data="interactions",
    model="transformer",
    optimizer="adam",
  )
  steps = 50
  own = {**SASREC, "max_length": steps} if a.model == "transformer" else {}
  return c.experiment(
    runlocal=a.runlocal,
    data=c.part("data", a.data),
    model=c.part("model", a.model, embed=64, hidden=64, layers=2, dropout=0.2, **own),
    head=c.head(a.head, num_samples=512, init_scale=0.1),
    optimizer=c.part("optimizer", a.optimizer),
    train=c.Training(
      epochs=20, batch_size=128, unroll=steps, lr=0.001, hold_epochs=20, clip_norm=1.0
    ),
    eval=c.Evaluating(batch_size=256, unroll=steps, hit_k=(5, 10), best="ndcg@10"),
  )
