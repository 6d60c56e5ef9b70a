"""Any text: files of your own, or a text set of tensorflow-datasets by name.

--config=configs/text.py                        --config.data.train=FILE
--config=configs/text.py:full,hidden=650        --config.data.train='DIR/*.txt.gz'
--config=configs/text.py:sampled/pps,data=tfds  --config.data.dataset=lm1b
--config=configs/text.py:full,model=transformer --config.data.tokenizer=tokenizer.json

`model` is the network. A transformer sees no more than its window, here of 20 tokens:
raise `train.unroll` and `eval.unroll`, up to `model.max_length`.

No result is committed: the perplexity depends on the text.
"""

from largevocab import config as c


def get_config(arg: str = ""):
  a = c.parse_arg(arg, head="sampled/pps", data="text", model="lstm", hidden=200)
  return c.experiment(
    runlocal=a.runlocal,
    data=c.part("data", a.data, min_count=2),
    model=c.part("model", a.model, embed=a.hidden, hidden=a.hidden, layers=1),
    head=c.head(a.head, num_samples=1024, init_scale=0.1),
    optimizer=c.part("optimizer", "adagrad"),
    train=c.Training(epochs=5, batch_size=32, unroll=20, lr=0.2, clip_norm=1.0),
    eval=c.Evaluating(batch_size=32),
  )
