"""Data sets as class ids: texts, item histories, and features with labels.

`DATASETS[name](**settings).load()` returns a `Data`. The settings are plain values.
"""

from largevocab.data.base import Data, DataSet
from largevocab.data.batches import Batch, EvaluationBatches, TokenBatches
from largevocab.data.items.diginetica import Diginetica
from largevocab.data.items.gowalla import Gowalla
from largevocab.data.items.interactions import Interactions
from largevocab.data.items.video_games import VideoGames
from largevocab.data.labels.stdlib_calls import StdlibCalls
from largevocab.data.labels.xmlc import Xmlc
from largevocab.data.labels.xmlc_prepared import XmlcTfds
from largevocab.data.synthetic.softmax_regression import SoftmaxRegression
from largevocab.data.synthetic.topic_labels import TopicLabels
from largevocab.data.synthetic.zipf import Zipf
from largevocab.data.synthetic.zipf_items import ZipfItems
from largevocab.data.synthetic.zipf_labels import ZipfLabels
from largevocab.data.synthetic.zipf_sequences import ZipfSequences
from largevocab.data.text.corpus import Corpus
from largevocab.data.text.lm1b import Lm1b
from largevocab.data.text.plain import Europarl, Text8, TextFiles
from largevocab.data.text.prepared import Tfds
from largevocab.data.text.ptb import Ptb
from largevocab.data.text.stdlib import Stdlib
from largevocab.data.text.vocabulary import Vocabulary, build_vocabulary

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
  "interactions": Interactions,
  "zipf_sequences": ZipfSequences,
  "softmax_regression": SoftmaxRegression,
  "xmlc": Xmlc,
  "tfds_xmlc": XmlcTfds,
  "gowalla": Gowalla,
  "stdlib_calls": StdlibCalls,
  "zipf_labels": ZipfLabels,
  "topic_labels": TopicLabels,
}

__all__ = [
  "DATASETS",
  "Batch",
  "Corpus",
  "Data",
  "DataSet",
  "EvaluationBatches",
  "TokenBatches",
  "Vocabulary",
  "build_vocabulary",
]
