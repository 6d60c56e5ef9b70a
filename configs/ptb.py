"""Penn Treebank: the small LSTM of Zaremba et al. 2014, with any head.

--config=configs/ptb.py:full         --config.data.path=DIR
--config=configs/ptb.py:sampled/pps  --config.data.path=DIR
"""

from largevocab import config as c


def get_config(arg: str = ""):
  a = c.parse_arg(arg, head="full")
  unroll = 20
  return c.experiment(
    runlocal=a.runlocal,
    data=c.part("data", "ptb"),
    model=c.part("model", "lstm", embed=200, hidden=200, layers=2, init_scale=0.1),
    head=c.head(a.head, init_scale=0.1),
    optimizer=c.part("optimizer", "sgd"),
    # The paper's loss is summed over the unrolled steps; ours is the mean. So its rate
    # of 1 is ours of `unroll`, and its clip of 5 ours of 5 / unroll.
    train=c.Training(
      epochs=13,
      batch_size=20,
      unroll=unroll,
      lr=1.0 * unroll,
      hold_epochs=4,
      decay=0.5,
      clip_norm=5.0 / unroll,
    ),
  )
