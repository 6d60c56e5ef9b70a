"""No network: the head alone is the model."""

import flax.linen as nn

from largevocab.fields import InitScale, Width, settings


@settings
class Linear(nn.Module):
  """h = x, without parameters.

  With features as inputs the model is softmax regression, o_c = <w_c, x>. With ids it
  is a log-bilinear model of the current one, o_c = <w_c, r_x>: on text a bigram model
  of rank E. There is no recurrent state.

  Attributes:
    embed: E, width of the input, and D.
    init_scale: input rows, if there are any, are initialised uniformly in [-init_scale,
      init_scale].

  Source: Barber & Botev 2016, section 4.
  """

  embed: Width = 100
  init_scale: InitScale = 0.1

  @property
  def history(self) -> int:
    """Least number of input rows of an example; any number is accepted."""
    return 1

  @property
  def width(self) -> int:
    """D, the width of h."""
    return self.embed

  def initial_carry(self, batch_size: int):
    """No recurrent state."""
    return ()

  def __call__(self, x_BTE, carry, train: bool = False):
    return x_BTE, carry
