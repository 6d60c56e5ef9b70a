"""The One Billion Word benchmark, about 800,000 words.

--config=configs/lm1b.py:sampled/pps  --config.data.path=1-billion-word-...-output
--config=configs/lm1b.py:adaptive     --config.data.path=1-billion-word-...-output

`path` is the directory as unpacked, or any directory with shards of the same names. The
settings are those of Grave et al. 2017, section 5.

No result is committed, since the data is not available here.
"""

from largevocab import config as c


def get_config(arg: str = ""):
  a = c.parse_arg(arg, head="sampled/pps")
  return c.experiment(
    runlocal=a.runlocal,
    data=c.part("data", "lm1b"),
    model=c.part("model", "lstm", embed=256, hidden=2048, layers=1),
    head=c.head(a.head, num_samples=8192, init_scale=0.1),
    # In Torch and the paper, this starts at 0. A small value makes first steps smaller.
    optimizer=c.part("optimizer", "adagrad", initial_accumulator=1e-8, eps=1e-9),
    train=c.Training(epochs=5, batch_size=128, unroll=20, lr=0.1, clip_norm=1.0),
    eval=c.Evaluating(every_epochs=0.1, batch_size=128),
    checkpoint=c.Checkpointing(every_steps=10_000),
    log=c.Logging(every_steps=500),
  )
