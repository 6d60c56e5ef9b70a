"""Heads: output layers, from the last hidden activation to the loss."""

from largevocab.heads.adaptive import Adaptive
from largevocab.heads.autodiff import (
  head_loss,
  head_loss_and_grads,
  merge_state,
  split_state,
)
from largevocab.heads.base import Head, HeadStep
from largevocab.heads.d_softmax import DSoftmax
from largevocab.heads.full import Full
from largevocab.heads.hierarchical import Hierarchical
from largevocab.heads.huffman import Huffman
from largevocab.heads.logits import LOGITS, Cosine, Linear
from largevocab.heads.other_classes import carry_classes
from largevocab.heads.sampled import Sampled
from largevocab.heads.sampled_logits import sampled_logits
from largevocab.heads.sharded import ShardedHead, class_mesh
from largevocab.heads.spherical import Spherical

HEADS = {
  "full": Full,
  "sampled": Sampled,
  "adaptive": Adaptive,
  "d_softmax": DSoftmax,
  "hierarchical": Hierarchical,
  "huffman": Huffman,
  "spherical": Spherical,
}

__all__ = [
  "HEADS",
  "LOGITS",
  "Cosine",
  "Head",
  "HeadStep",
  "Linear",
  "ShardedHead",
  "carry_classes",
  "class_mesh",
  "head_loss",
  "head_loss_and_grads",
  "merge_state",
  "sampled_logits",
  "split_state",
  *(h.__name__ for h in HEADS.values()),
]
