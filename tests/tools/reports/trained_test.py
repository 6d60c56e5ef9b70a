"""Head states made from the rows of a trained model."""

import jax.numpy as jnp
import numpy as np
import pytest

from largevocab import Counts, command_line
from largevocab.errors import UserError
from largevocab.heads import Sampled
from largevocab.rows import AdamW
from largevocab.samplers import Block
from largevocab.tools.reports.trained import experiment, fresh_state
from largevocab.training.json_files import write_json


def test_statistics_are_built_from_the_rows_for_any_optimizer():
  """Including an optimiser that settles rows before statistics are rebuilt."""
  w_VD = jnp.asarray(np.random.default_rng(0).standard_normal((30, 8)), jnp.float32)
  heads = [
    Sampled(sampler=Block(leaf_size=5), num_samples=4, optimizer=optimizer)
    for optimizer in (Sampled().optimizer, AdamW(average=0.9))
  ]
  one, other = (fresh_state(head, Counts(np.ones(30, int)), w_VD) for head in heads)
  np.testing.assert_array_equal(one.table.w_VD, w_VD)
  for x, z in zip(one.stats[:-1], other.stats[:-1], strict=True):
    np.testing.assert_array_equal(x, z)


@pytest.mark.parametrize(
  ("head", "message"),
  [
    ("adaptive", "has a head without one row for each class"),
    ("full/cosine", "has cosines as logits"),
  ],
)
def test_other_heads_are_refused(head, message, tmp_path):
  settings = command_line.load(f"quickstart:{head}")
  write_json(str(tmp_path / "config.json"), settings.to_dict())
  with pytest.raises(UserError, match=message):
    experiment(str(tmp_path))
