"""The network for extreme classification: one hidden layer over sparse features."""

import flax.linen as nn
import jax

from largevocab.errors import UserError
from largevocab.fields import Dropout, InputScale, Width, settings
from largevocab.models.base import Stateless


@settings
class Bag(Stateless):
  """h = max(0, sum over the features f of an example of v_f r_f + b).

  The rows r_f are in the table of inputs. A step therefore reads and updates only the
  rows of the features in its batch. Dropout acts on h. There is no recurrent state.

  Attributes:
    embed: E = D, the width of the rows and of the hidden layer.
    dropout: probability of dropping a unit.
    init_scale: rows are initialised uniformly in [-init_scale, init_scale], b to 0.

  Source: Daghaghi et al. 2021, section 3.3.
  """

  history = 1  # number of inputs of an example: one sum of rows

  embed: Width = 128
  dropout: Dropout = 0.0
  init_scale: InputScale = 0.1

  @property
  def width(self) -> int:
    """D, the width of h."""
    return self.embed

  @nn.compact
  def __call__(self, x_B1E, carry, train: bool = False):
    if x_B1E.shape[1] != 1:
      raise UserError(
        f"the data has {x_B1E.shape[1]} inputs per example, but this model reads one "
        "bag of features: set model.name to 'mlp' for items, or to 'lstm' for text, as "
        "in --config=FILE:model=lstm"
      )
    b_E = self.param("b", nn.initializers.zeros, (self.embed,))
    h_B1E = jax.nn.relu(x_B1E + b_E[None, None, :])
    return nn.Dropout(self.dropout, deterministic=not train)(h_B1E), carry
