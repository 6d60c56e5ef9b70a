"""Extreme classification: sparse features, many labels, one hidden layer of 128.

--config=configs/xmlc.py:data=amazon670k                         --config.data.path=DIR
--config=configs/xmlc.py:sampled/lsh_label,data=wiki325k,active,adam \
                                                                 --config.data.path=DIR
--config=configs/xmlc.py:full,data=citeulike_t                   --config.data.path=DIR
--config=configs/xmlc.py:data=eurlex4k,tfds                  --config.data.data_dir=DIR
--config=configs/xmlc.py:full,data=own                           --config.data.path=DIR
--config=configs/xmlc.py:adam

- `data` is a key of `SETTINGS` below. The default is `stdlib_calls`, which needs no
  file. `own` is any set in the repository's format, with the files train.txt and
  test.txt.
- `active` uses Daghaghi et al.'s loss with classes from hash tables, which is the
  softmax over the active set. Without it, drawn classes have importance weights, and
  half of them are drawn by counts.
- `adam` trains with the paper's optimiser and rate, for 25 epochs. Without it, Adagrad
  trains, as in all our rows except those with Adam.
- `tfds` reads a set prepared by its builder in `largevocab.data.labels.tfds_xmlc`.

For the paper's own sets, batch, K and L are the paper's. The budget is not: the paper
uses 33 thousand classes for each example of Amazon-670K, where `num_samples` here is
128. Samplers whose draws are shared by a batch need more:
--config.head.num_samples=4096. Every twentieth training document is used for
validation, so propensities, which depend on counts, differ a little from published
ones.

Expect with `full,data=citeulike_t` a test P@1 of 0.5558 after 385 steps, two minutes on
one core of a CPU (experiments/xmlc_lns, "citeulike_t: full softmax"; mean of three
seeds, 5 epochs). The paper's sets are not available here.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from largevocab import config as c


@dataclass(frozen=True)
class Setting:
  """A data set with its training settings.

  Attributes:
    data: name and fields of the data set.
    builder: builder of the set for tensorflow-datasets; empty: the name of the set.
    codes, tables, slots: K, L and the bucket size of locality-sensitive hashing.
    rebuild_tables: number of tables to rebuild in every step, instead of rebuilding all
      every 50 steps and rehashing in between. This is for large sets, for which no step
      should rebuild all tables.
    batch_size, optimizer, lr, epochs: settings of training.
    propensity: the constants a and b of the labels' propensities.
  """

  data: dict[str, Any] = field(default_factory=lambda: {"name": "xmlc"})
  builder: str = ""
  codes: int = 4
  tables: int = 50
  slots: int = 16
  rebuild_tables: int = 0
  batch_size: int = 256
  # Not Adam, whose steps do not depend on the size of gradients. With few negatives,
  # which are rare and have large weights, it hardly lowers the logits that it raised.
  optimizer: dict[str, Any] = field(
    default_factory=lambda: {"name": "adagrad", "initial_accumulator": 1e-6}
  )
  lr: float = 0.1
  epochs: float = 5.0
  propensity: tuple[float, float] = (0.55, 1.5)


def of_files(prefix: str, **fields: Any) -> dict[str, Any]:
  """A data set of two files, PREFIX_train.txt and PREFIX_test.txt."""
  files = {split: f"{prefix}_{split}.txt" for split in ("train", "test")}
  return {"name": "xmlc", **files, **fields}


AMAZON, WIKIPEDIA = (0.6, 2.6), (0.5, 0.4)
# The paper's optimiser and rate; it does not give the number of epochs.
ADAM = {"optimizer": {"name": "adam"}, "lr": 1e-4, "epochs": 25.0}
SETTINGS = {
  # The paper's sets.
  "amazon670k": Setting(
    **{"codes": 6, "tables": 400, "slots": 8, "rebuild_tables": 8},
    **{"batch_size": 1024, "propensity": AMAZON},
  ),
  "wiki325k": Setting(
    **{"codes": 5, "tables": 300, "rebuild_tables": 6, "propensity": WIKIPEDIA},
  ),
  "odp105k": Setting(codes=5, tables=150, batch_size=128),
  # The paper does not give its counts: choose them for its 158 thousand labels.
  "amazon_uniform": Setting(
    {"name": "xmlc", "min_count": 4, "max_count": 8},
    builder="amazon670k",
    **{"codes": 6, "tables": 150, "propensity": AMAZON},
  ),
  # Other sets of the repository.
  "delicious200k": Setting(codes=5),
  "eurlex4k": Setting(codes=3),
  "bibtex": Setting(of_files("bibtex")),
  "delicious": Setting(of_files("delicious"), codes=2),
  "citeulike_t": Setting(of_files("citeulike-t")),
  "citeulike_t_uniform": Setting(
    of_files("citeulike-t", min_count=5, max_count=10), codes=3
  ),
  "own": Setting(),
  "gowalla": Setting({"name": "gowalla"}),
  "stdlib_calls": Setting({"name": "stdlib_calls"}, codes=3),
  "synthetic": Setting({"name": "zipf_labels"}),
  # Sets whose Bayes classifier is known.
  "topics": Setting({"name": "topic_labels"}),
}


def get_config(arg: str = ""):
  defaults = {"head": "sampled/lsh_embedding", "data": "stdlib_calls"}
  a = c.parse_arg(arg, **defaults, active=False, adam=False, tfds=False)
  if a.data not in SETTINGS:
    raise c.UserError(
      f"config argument data is {a.data!r}; it must be one of {c.listed(SETTINGS)}"
    )
  s = replace(SETTINGS[a.data], **ADAM) if a.adam else SETTINGS[a.data]
  prepared = {"name": "tfds_xmlc", "dataset": s.builder or a.data} if a.tfds else {}
  is_rebuilt = s.rebuild_tables > 0
  return c.experiment(
    runlocal=a.runlocal,
    data=c.part("data", **s.data | prepared),
    model=c.part("model", "bag", embed=128),
    head=c.head(
      a.head,
      num_samples=128,
      refresh_every=0 if is_rebuilt else 50,
      refresh_growth=1.2,
      loss={"corrected": not a.active},
      sampler={
        "codes": s.codes,
        "tables": s.tables,
        "slots": s.slots,
        "unigram_share": 0.0 if a.active else 0.5,
        "rebuild_tables": s.rebuild_tables,
        "rehash": not is_rebuilt,
      },
    ),
    optimizer=c.part("optimizer", **s.optimizer),
    train=c.Training(
      epochs=s.epochs, batch_size=s.batch_size, unroll=1, lr=s.lr, clip_norm=0.0
    ),
    eval=c.Evaluating(
      batch_size=s.batch_size,
      unroll=1,
      precision_k=(1, 3, 5),
      propensity_a=s.propensity[0],
      propensity_b=s.propensity[1],
    ),
    log=c.Logging(every_steps=50),
  )
