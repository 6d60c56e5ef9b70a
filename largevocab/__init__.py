"""Training with very large output spaces, in JAX.

Heads and samplers can be used in your own training code; they need nothing but jax,
flax, optax and numpy. `largevocab.main` trains whole models with them.

Shape letters. The part of an array's name after the last underscore has one letter per
axis (`h_ND`, `log_q_NM`):

  B batch              T time               N = B * T examples
  P true classes per example                E embedding width
  D width of h and of a class row           V classes
  M samples            S exactly summed;    R touched rows
                         slots of a cluster
  K blocks, nodes, clusters, strata         L hash tables
  C code bits          F features           G gates
  A tiles, blocks of a table                T places of a tile
"""

from largevocab.errors import UserError
from largevocab.fields import settings
from largevocab.heads import (
  HEADS,
  Head,
  HeadStep,
  head_loss,
  head_loss_and_grads,
  merge_state,
  sampled_logits,
  split_state,
)
from largevocab.labels import (
  Counts,
  Targets,
  check_targets,
  multi_targets,
  single_targets,
)
from largevocab.rows import accumulate
from largevocab.samplers import SAMPLERS, Draw, Sampler

__version__ = "0.2.0"

__all__ = [
  "HEADS",
  "SAMPLERS",
  "Counts",
  "Draw",
  "Head",
  "HeadStep",
  "Sampler",
  "Targets",
  "UserError",
  "accumulate",
  "check_targets",
  "head_loss",
  "head_loss_and_grads",
  "merge_state",
  "multi_targets",
  "sampled_logits",
  "settings",
  "single_targets",
  "split_state",
]
