"""Samplers: proposal distributions over classes from which losses draw negatives."""

from largevocab.samplers.base import Draw, NoUpkeep, Sampler, Size, log_expected_at
from largevocab.samplers.bernoulli import Bernoulli
from largevocab.samplers.bigram import Bigram
from largevocab.samplers.block import Block
from largevocab.samplers.cbns import CBNS
from largevocab.samplers.in_batch import InBatch
from largevocab.samplers.ivf import IVF
from largevocab.samplers.kernel_tree import Quadratic, QuadraticPrior, Quartic
from largevocab.samplers.lsh import LSHEmbedding, LSHLabel
from largevocab.samplers.midx import MIDX
from largevocab.samplers.mixture import Mixture
from largevocab.samplers.pps import PPS
from largevocab.samplers.rece import RECE
from largevocab.samplers.rf_softmax import RFSoftmax
from largevocab.samplers.sce import SCE
from largevocab.samplers.softmax import Softmax
from largevocab.samplers.static import LogUniform, StaticLaw, Uniform, Unigram
from largevocab.samplers.top_k import TopK

SAMPLERS = {
  "uniform": Uniform,
  "log_uniform": LogUniform,
  "unigram": Unigram,
  "bigram": Bigram,
  "pps": PPS,
  "bernoulli": Bernoulli,
  "ivf": IVF,
  "midx": MIDX,
  "softmax": Softmax,
  "quadratic": Quadratic,
  "quartic": Quartic,
  "quadratic_prior": QuadraticPrior,
  "rf_softmax": RFSoftmax,
  "block": Block,
  "lsh_embedding": LSHEmbedding,
  "lsh_label": LSHLabel,
  "top_k": TopK,
  "sce": SCE,
  "rece": RECE,
  "in_batch": InBatch,
  "cbns": CBNS,
  "mixture": Mixture,
}

_CLASSES = [sampler.__name__ for sampler in SAMPLERS.values()]
__all__ = [
  "SAMPLERS",
  "Draw",
  "NoUpkeep",
  "Sampler",
  "Size",
  "StaticLaw",
  "log_expected_at",
  *_CLASSES,
]
