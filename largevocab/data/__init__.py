"""Texts as class ids: corpora, vocabularies, batches.

`DATASETS[name](**settings).load()` is a `Corpus`; the settings are plain values.
"""

from largevocab.data.batches import (
  Batch,
  EvaluationBatches,
  TokenBatches,
  evaluation_batches,
)
from largevocab.data.corpus import Corpus
from largevocab.data.lm1b import Lm1b
from largevocab.data.prepared import Tfds
from largevocab.data.ptb import Ptb
from largevocab.data.stdlib import Stdlib
from largevocab.data.text import Europarl, Text8, TextFiles
from largevocab.data.vocabulary import Vocabulary, build_vocabulary
from largevocab.data.zipf import Zipf

DATASETS = {
  "ptb": Ptb,
  "text8": Text8,
  "europarl": Europarl,
  "lm1b": Lm1b,
  "text": TextFiles,
  "stdlib": Stdlib,
  "zipf": Zipf,
  "tfds": Tfds,
}

__all__ = [
  "DATASETS",
  "Batch",
  "Corpus",
  "EvaluationBatches",
  "TokenBatches",
  "Vocabulary",
  "build_vocabulary",
  "evaluation_batches",
]
