"""An n-gram language model for any text, evaluated by word similarity.

--config=configs/ngram.py                      --config.data.train=FILE
--config=configs/ngram.py:full,data=text8      --config.data.train=FILE \
  --config.eval.word_pairs="('SimLex-999.txt', 'wordsim353.csv')"
--config=configs/ngram.py:sampled/pps,data=tfds --config.data.dataset=lm1b

The models of Vincent et al. 2015, section 6, are of this kind: they predict the next
word from the rows of the last few words. The word rows of inputs and of the head are
evaluated with the files of word pairs, if there are any.

Expect with `sampled/pps,data=text8` a test perplexity of 682.0 after 20,000 steps, with
`model.combine=average` and the small batches and held-out shares of that run
(experiments/lst, "sampled softmax"; one seed, first 20,000 steps). A counted bigram is
far ahead of this model there: these steps are only the beginning of training.
"""

from largevocab import config as c


def get_config(arg: str = ""):
  a = c.parse_arg(arg, head="full", data="text", context=4, hidden=300)
  return c.experiment(
    runlocal=a.runlocal,
    data=c.part("data", a.data, min_count=2),
    model=c.part("model", "ngram", context=a.context, embed=a.hidden, hidden=a.hidden),
    head=c.head(a.head, num_samples=1024, init_scale=0.1),
    optimizer=c.part("optimizer", "adagrad"),
    train=c.Training(epochs=5, batch_size=32, unroll=20, lr=1.0, clip_norm=1.0),
    eval=c.Evaluating(batch_size=32),
  )
