"""No network: the head alone is the model."""

from largevocab.fields import InputScale, Width, settings
from largevocab.models.base import Stateless


@settings
class Linear(Stateless):
  """h = x, without parameters.

  With features as inputs, the model is softmax regression, o_c = <w_c, x>. With ids, it
  is a log-bilinear model of the current input, o_c = <w_c, r_x>; on text, this is a
  bigram model of rank E. There is no recurrent state.

  Attributes:
    embed: E = D, the width of the input and of h.
    init_scale: input rows, if there are any, are initialised uniformly in [-init_scale,
      init_scale].

  Source: Barber & Botev 2016, section 4.
  """

  history = 1  # minimum number of input rows of an example; any number is accepted

  embed: Width = 100
  init_scale: InputScale = 0.1

  @property
  def width(self) -> int:
    """D, the width of h."""
    return self.embed

  def __call__(self, x_BTE, carry, train: bool = False):
    return x_BTE, carry
