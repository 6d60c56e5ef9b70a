"""Next-item recommendation: the last 3 items through a small network.

--config=configs/next_item.py:full                          --config.data.path=DIR
--config=configs/next_item.py:sampled/pps,data=video_games  --config.data.path=DIR
--config=configs/next_item.py:sampled/pps,model=gru         --config.data.path=DIR
--config=configs/next_item.py:negative_sampling/uniform,own,negatives=256,calibration=0.75

The last command trains with gBCE, with own negatives for each example (Petrov and
Macdonald 2023). With `calibration=0`, the loss is BCE with the same negatives.

Expect with `full` a test recall@20 of 0.1932 after 800 steps, three minutes on one core
of a CPU (experiments/next_item, "diginetica: full softmax"; one seed, first 800 steps).
"""

from largevocab import config as c


def get_config(arg: str = ""):
  a = c.parse_arg(
    arg,
    head="sampled/pps",
    data="diginetica",
    model="mlp",
    negatives=512,
    own=False,
    calibration=0.0,
  )
  history = 3
  own = {"history": history} if a.model == "mlp" else {}
  return c.experiment(
    runlocal=a.runlocal,
    data=c.part("data", a.data, history=history),
    model=c.part("model", a.model, embed=64, hidden=64, dropout=0.1, **own),
    head=c.head(
      a.head,
      num_samples=a.negatives,
      init_scale=0.1,
      loss={"calibration": a.calibration},
      sampler={"per_example": a.own},
    ),
    # Gradients are means over the batch, in which each item is rare. With an initial
    # accumulator of 0.1, they would hardly move the item's row.
    optimizer=c.part("optimizer", "adagrad", initial_accumulator=1e-6),
    train=c.Training(
      epochs=4,
      batch_size=256,
      unroll=1,
      lr=0.1,
      hold_epochs=1,
      decay=0.5,
      clip_norm=1.0,
    ),
    eval=c.Evaluating(batch_size=256, unroll=1, ranking_k=20),
  )
