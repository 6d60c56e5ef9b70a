"""Penn Treebank: the small LSTM of Zaremba et al. 2014, with any head.

--config=configs/ptb.py:full         --config.data.path=DIR
--config=configs/ptb.py:sampled/pps  --config.data.path=DIR
--config=configs/ptb.py:blanc_rendle,head=sampled/quadratic --config.data.path=DIR

`blanc_rendle` is the protocol of Blanc & Rendle 2018, section 4.1: the medium network
of Zaremba et al., with 200 units per layer instead of 650, and separate negatives for
each token. Beyond that, the paper only mentions "dropout", so that steps,
initialisation, length, rates and clip are those of Zaremba et al. TensorFlow's
tutorial, cited in a footnote, multiplies rates by 0.8 where Zaremba et al. divide them
by 1.2.

Expect with `full` a test perplexity of 114.8 after 30,199 steps, some forty
minutes on one idle core of a CPU (experiments/ptb_sampled, "full softmax").
"""

from largevocab import config as c


def training(unroll: int, epochs: int, hold_epochs: int, decay: float) -> c.Training:
  """Converts settings for a loss summed over the unrolled steps to our mean loss.

  A rate of 1 for the sum is a rate of `unroll` for the mean, and a clip of 5 is a clip
  of 5 / unroll.
  """
  return c.Training(
    epochs=epochs,
    batch_size=20,
    unroll=unroll,
    lr=1.0 * unroll,
    hold_epochs=hold_epochs,
    decay=decay,
    clip_norm=5.0 / unroll,
  )


def get_config(arg: str = ""):
  a = c.parse_arg(arg, head="full", blanc_rendle=False)
  small = training(unroll=20, epochs=13, hold_epochs=4, decay=0.5)
  scale, dropout, train, own = 0.1, 0.0, small, {}
  if a.blanc_rendle:
    medium = training(unroll=35, epochs=39, hold_epochs=6, decay=1 / 1.2)
    scale, dropout, train, own = 0.05, 0.5, medium, {"per_example": True}
  size = {"embed": 200, "hidden": 200, "layers": 2}
  return c.experiment(
    runlocal=a.runlocal,
    data=c.part("data", "ptb"),
    model=c.part("model", "lstm", dropout=dropout, init_scale=scale, **size),
    head=c.head(a.head, init_scale=scale, sampler=own),
    optimizer=c.part("optimizer", "sgd"),
    train=train,
  )
