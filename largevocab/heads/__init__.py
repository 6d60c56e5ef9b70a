"""Heads: output layers, from the last hidden activation to the loss."""

from largevocab.heads.adaptive import Adaptive
from largevocab.heads.base import Head, HeadStep
from largevocab.heads.blackout import BlackOut
from largevocab.heads.d_softmax import DSoftmax
from largevocab.heads.full import Full
from largevocab.heads.hierarchical import Hierarchical
from largevocab.heads.huffman import Huffman
from largevocab.heads.nce import NCE
from largevocab.heads.negative_sampling import NegativeSampling
from largevocab.heads.ranking import Ranking
from largevocab.heads.sampled import Sampled
from largevocab.heads.spherical import Spherical
from largevocab.heads.upper_bound import UpperBound

HEADS = {
  "full": Full,
  "sampled": Sampled,
  "nce": NCE,
  "negative_sampling": NegativeSampling,
  "ranking": Ranking,
  "blackout": BlackOut,
  "upper_bound": UpperBound,
  "adaptive": Adaptive,
  "d_softmax": DSoftmax,
  "hierarchical": Hierarchical,
  "huffman": Huffman,
  "spherical": Spherical,
}

__all__ = ["HEADS", "Head", "HeadStep", *(h.__name__ for h in HEADS.values())]
