"""Methods of samplers, each compiled as a whole: one by one, their small operations
take several times as long. A method is compiled once for each sampler and shape,
whatever the test."""

import jax

sample = jax.jit(lambda sampler, *args: sampler.sample(*args), static_argnums=0)
log_expected = jax.jit(
  lambda sampler, *args: sampler.log_expected(*args), static_argnums=0
)
update = jax.jit(lambda sampler, *args: sampler.update(*args), static_argnums=0)
refresh = jax.jit(lambda sampler, *args: sampler.refresh(*args), static_argnums=0)


def init(sampler, counts, w_VD, m):
  """For large tables and trees: other samplers share the operations of `sampler.init`
  if it is called directly."""
  return jax.jit(lambda w_VD: sampler.init(counts, w_VD, m))(w_VD)
