"""The GRU of session-based recommendation."""

import flax.linen as nn
import jax.numpy as jnp

from largevocab.fields import settings
from largevocab.models.recurrent import Recurrent


@settings
class GRU(Recurrent):
  """Stacked GRU: rows, carry -> h, carry; see `Recurrent` for the fields.

  a = split(x_t W + b), e = split(h_{t-1} U), each in three;  r = s(a_1 + e_1);  z =
  s(a_2 + e_2);  n = tanh(a_3 + r e_3);  h_t = (1 - z) n + z h_{t-1}.

  Source: Cho et al. 2014; Hidasi et al. 2016, section 3 (GRU4Rec), where the input is
    the last item and a session begins at state 0. Both papers use U (r h) in place of
    r (U h), which needs a second product in each time step; cuDNN and flax also compute
    r (U h). GRU4Rec reads a session item by item, in batches of parallel sessions; here
    a session is read as a whole. The losses of GRU4Rec and its negatives from the batch
    belong to a head, such as `sampled/in_batch`.
  """

  gates = 3

  def cell(self, state, x_BG, h_BG):
    (h_BD,) = state
    (a_r, a_z, a_n), (e_r, e_z, e_n) = (jnp.split(v, 3, axis=-1) for v in (x_BG, h_BG))
    r_BD, z_BD = nn.sigmoid(a_r + e_r), nn.sigmoid(a_z + e_z)
    n_BD = jnp.tanh(a_n + r_BD * e_n)
    return ((1 - z_BD) * n_BD + z_BD * h_BD,)
