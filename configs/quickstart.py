"""A first run on the source text of Python's standard library, without a download.

--config=configs/quickstart.py:full
--config=configs/quickstart.py:sampled/pps

Expect a first result within two minutes on a CPU; the perplexity depends on the version
of Python, whose library is the text.
"""

from largevocab import config as c


def get_config(arg: str = ""):
  a = c.parse_arg(arg, head="sampled/pps", steps=800)
  return c.experiment(
    runlocal=a.runlocal,
    data=c.part("data", "stdlib"),
    model=c.part("model", "lstm", embed=64, hidden=64, layers=1),
    head=c.head(a.head, num_samples=512, init_scale=0.1),
    optimizer=c.part("optimizer", "adagrad"),
    train=c.Training(max_steps=a.steps, batch_size=20, unroll=20, lr=0.3),
    eval=c.Evaluating(every_epochs=0, batch_size=32, unroll=32),
    log=c.Logging(every_steps=100),
  )
