"""Any text: your own files, or a text set of tensorflow-datasets by name.

--config=configs/text.py                        --config.data.train=FILE
--config=configs/text.py:full,hidden=650        --config.data.train='DIR/*.txt.gz'
--config=configs/text.py:sampled/pps,data=tfds  --config.data.dataset=lm1b
--config=configs/text.py:full,model=transformer --config.data.tokenizer=tokenizer.json
--config=configs/text.py:full,optimizer=adam    --config.data.train=FILE

`model` is the network. A transformer sees only its window, which is 20 tokens here. To
widen it, raise `train.unroll` and `eval.unroll`, up to `model.max_length`. `optimizer`
is `adagrad`, `rowwise_adagrad`, `adam` or `adamw`, each with a usual rate.

No result is committed: the perplexity depends on the text.
"""

from largevocab import config as c

RATES = {"adagrad": 0.2, "rowwise_adagrad": 0.2, "adam": 0.001, "adamw": 0.001}


def get_config(arg: str = ""):
  a = c.parse_arg(
    arg,
    head="sampled/pps",
    data="text",
    model="lstm",
    hidden=200,
    optimizer="adagrad",
  )
  if a.optimizer not in RATES:
    raise c.UserError(
      f"config argument optimizer is {a.optimizer!r}; it must be one of "
      f"{c.listed(RATES)}"
    )
  return c.experiment(
    runlocal=a.runlocal,
    data=c.part("data", a.data, min_count=2),
    model=c.part("model", a.model, embed=a.hidden, hidden=a.hidden, layers=1),
    head=c.head(a.head, num_samples=1024, init_scale=0.1),
    optimizer=c.part("optimizer", a.optimizer),
    train=c.Training(
      epochs=5, batch_size=32, unroll=20, lr=RATES[a.optimizer], clip_norm=1.0
    ),
    eval=c.Evaluating(batch_size=32),
  )
