"""Texts and item histories as class ids, and features with labels.

`DATASETS[name](**settings).load()` is a `Data`; the settings are plain values.
"""

from largevocab.data.base import Data
from largevocab.data.batches import Batch, EvaluationBatches, TokenBatches
from largevocab.data.corpus import Corpus
from largevocab.data.diginetica import Diginetica
from largevocab.data.gowalla import Gowalla
from largevocab.data.lm1b import Lm1b
from largevocab.data.prepared import Tfds
from largevocab.data.ptb import Ptb
from largevocab.data.softmax_regression import SoftmaxRegression
from largevocab.data.stdlib import Stdlib
from largevocab.data.stdlib_calls import StdlibCalls
from largevocab.data.text import Europarl, Text8, TextFiles
from largevocab.data.video_games import VideoGames
from largevocab.data.vocabulary import Vocabulary, build_vocabulary
from largevocab.data.xmlc import Xmlc
from largevocab.data.xmlc_prepared import XmlcTfds
from largevocab.data.zipf import Zipf
from largevocab.data.zipf_items import ZipfItems
from largevocab.data.zipf_labels import ZipfLabels

DATASETS = {
  "ptb": Ptb,
  "text8": Text8,
  "europarl": Europarl,
  "lm1b": Lm1b,
  "text": TextFiles,
  "stdlib": Stdlib,
  "zipf": Zipf,
  "tfds": Tfds,
  "diginetica": Diginetica,
  "video_games": VideoGames,
  "zipf_items": ZipfItems,
  "softmax_regression": SoftmaxRegression,
  "xmlc": Xmlc,
  "tfds_xmlc": XmlcTfds,
  "gowalla": Gowalla,
  "stdlib_calls": StdlibCalls,
  "zipf_labels": ZipfLabels,
}

__all__ = [
  "DATASETS",
  "Batch",
  "Corpus",
  "Data",
  "EvaluationBatches",
  "TokenBatches",
  "Vocabulary",
  "build_vocabulary",
]
