"""Heads: output layers, from the last hidden activation to the loss."""

from largevocab.heads.base import Head, HeadStep
from largevocab.heads.full import Full
from largevocab.heads.sampled import Sampled

HEADS = {
  "full": Full,
  "sampled": Sampled,
}

__all__ = ["HEADS", "Head", "HeadStep", *(h.__name__ for h in HEADS.values())]
