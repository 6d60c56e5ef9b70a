"""Methods of heads, each compiled as a whole: one by one, their small operations take
several times as long. A method is compiled once for each head and shape, whatever the
test."""

import jax

backward = jax.jit(lambda head, *args: head.backward(*args), static_argnums=0)
update = jax.jit(lambda head, *args: head.update(*args), static_argnums=0)
evaluate = jax.jit(lambda head, *args: head.evaluate(*args), static_argnums=0)
top_k = jax.jit(lambda head, *args: head.top_k(*args), static_argnums=(0, 3))
monitor = jax.jit(lambda head, *args: head.monitor(*args), static_argnums=0)
class_rows = jax.jit(lambda head, *args: head.class_rows(*args), static_argnums=0)


def init(head, key, counts, dim):
  """For heads of several kinds: the operations of heads that are alike are compiled
  once for all of them if `head.init` is called directly."""
  return jax.jit(lambda key: head.init(key, counts, dim))(key)
