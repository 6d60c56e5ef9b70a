"""A two-tower recommender: in-batch negatives with a streaming logQ correction.

One tower maps the features of a user to a vector of length one, and another tower does
so for items. The product of the two vectors, over a temperature, is the logit. There is
no table of item rows: the items of a batch are negatives for all its users. `InBatch`
estimates from the stream how often an item is in a batch. The logarithm of the estimate
corrects the logits, including those of true items, as in Yi et al. 2019.
"""

import argparse

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from largevocab import Counts, single_targets
from largevocab.labels import batch_classes
from largevocab.losses import sampled_softmax_loss
from largevocab.samplers import InBatch

NUM_ITEMS, BATCH, FEATURES, TEMPERATURE = 2000, 128, 16, 0.1
rng = np.random.default_rng(0)
item_VF = rng.normal(size=(NUM_ITEMS, FEATURES)).astype(np.float32)
log_popularity_V = -np.log1p(np.arange(NUM_ITEMS))


def interactions(num):
  """Features of users, and the item that each user chose by taste and popularity."""
  user_NF = rng.normal(size=(num, FEATURES)).astype(np.float32)
  gumbel_NV = rng.gumbel(size=(num, NUM_ITEMS))
  return user_NF, np.argmax(user_NF @ item_VF.T + log_popularity_V + gumbel_NV, axis=1)


class Tower(nn.Module):
  @nn.compact
  def __call__(self, x_NF):
    h_ND = nn.Dense(32)(nn.relu(nn.Dense(64)(x_NF)))
    return h_ND / jnp.linalg.norm(h_ND, axis=1, keepdims=True)


sampler, tower, tx = InBatch(rate=0.05), Tower(), optax.adam(2e-3)
no_rows_V0 = jnp.zeros((NUM_ITEMS, 0))  # stands in for the table that samplers expect


@jax.jit
def train_step(params, opt, stats, user_NF, label_N, key):
  y = single_targets(label_N)
  draw = sampler.sample(stats, no_rows_V0, key, user_NF, y)  # the batch's items, once
  own_N = jnp.argmax(draw.ids == label_N[:, None], axis=1)
  is_other_NM = draw.mask & (draw.ids != label_N[:, None])

  def loss(params):
    w_MD = tower.apply(params["item"], jnp.asarray(item_VF)[draw.ids])
    o_NM = tower.apply(params["user"], user_NF) @ w_MD.T / TEMPERATURE
    o_N1 = jnp.take_along_axis(o_NM, own_N[:, None], axis=1)
    corrected_N1 = o_N1 - draw.log_expected[own_N][:, None]
    true = corrected_N1, y.w_NP / len(label_N), y.w_NP > 0
    return sampled_softmax_loss(*true, o_NM, draw.log_expected[None], is_other_NM)

  value, grads = jax.value_and_grad(loss)(params)
  updates, opt = tx.update(grads, opt)
  seen_R = batch_classes(y, NUM_ITEMS)
  stats = sampler.update(stats, no_rows_V0, seen_R, None, None)
  return optax.apply_updates(params, updates), opt, stats, value


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=300)
params = {name: tower.init(jax.random.key(0), item_VF[:1]) for name in ("user", "item")}
opt, counts = tx.init(params), Counts(np.ones(NUM_ITEMS, np.int64))
stats, losses = sampler.init(counts, no_rows_V0, BATCH), []
for step in range(parser.parse_args().steps):
  batch = interactions(BATCH)
  params, opt, stats, loss = train_step(
    params, opt, stats, *batch, jax.random.key(step)
  )
  losses.append(float(loss))
print(f"loss {losses[0]:.4f} in the first step, loss {losses[-1]:.4f} in the last")
