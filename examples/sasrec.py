"""gSASRec in your own training loop: a transformer over item sequences, with gBCE.

python examples/sasrec.py --steps=300

optax trains the network and its input rows. A largevocab head trains the class rows:
a step reads and writes only the rows of the true items and of the negatives. Sequences
end in padding, and labels that are padding do not count.

Source: Kang and McAuley 2018 (SASRec); Petrov and Macdonald 2023 (gBCE).
"""

import argparse
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from largevocab import single_targets
from largevocab.heads import Sampled
from largevocab.losses import NegativeSampling
from largevocab.models import Transformer
from largevocab.rows import Adam
from largevocab.samplers import Uniform

NUM_ITEMS, LENGTH, WIDTH, BATCH = 200, 20, 32, 64
PADDING = NUM_ITEMS  # its input row is zero, and the transformer ignores it


def sequences(rng: np.random.Generator, num: int) -> np.ndarray:
  """Items of `num` users, [num, LENGTH + 1]; an item's successor mostly follows it."""
  jump = rng.integers(NUM_ITEMS, size=(num, LENGTH + 1))
  is_jump = (rng.random(jump.shape) < 0.1) | (np.arange(LENGTH + 1) == 0)
  items = np.cumsum(np.where(is_jump, jump, 1), axis=1) % NUM_ITEMS
  ends = rng.integers(3, LENGTH + 2, size=(num, 1))
  return np.where(np.arange(LENGTH + 1) < ends, items, PADDING)


network = Transformer(WIDTH, WIDTH, heads=1, max_length=LENGTH, activation="relu")
head = Sampled(
  loss=NegativeSampling(calibration=0.75),
  sampler=Uniform(per_example=True),
  num_samples=32,
  optimizer=Adam(),
)
adam = optax.adam(3e-2)


def activations(params, x_BT):
  rows_BTE = jnp.take(params["items"], x_BT, axis=0, mode="fill", fill_value=0)
  h_BTD, _ = network.apply({"params": params["network"]}, rows_BTE, ())
  return h_BTD.reshape(-1, WIDTH)


@functools.partial(jax.jit, donate_argnums=(0, 1, 2))
def train_step(params, opt, head_state, items_BT, key):
  x_BT, next_N = items_BT[:, :-1], items_BT[:, 1:].reshape(-1)
  y = single_targets(next_N, next_N != PADDING)
  h_ND, pull_back = jax.vjp(lambda params: activations(params, x_BT), params)
  step = head.backward(head_state, h_ND, y, key)
  updates, opt = adam.update(*pull_back(step.dh_ND), opt)
  head_state = head.update(head_state, step.grads, lr=3e-2, scale=1.0)
  return optax.apply_updates(params, updates), opt, head_state, step.loss


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=300)
num_steps = parser.parse_args().steps
rng, key = np.random.default_rng(0), jax.random.key(0)
params = {"items": 0.1 * jax.random.normal(key, (NUM_ITEMS, WIDTH))}
params["network"] = jax.jit(network.init)(key, jnp.zeros((1, 1, WIDTH)), ())["params"]
opt, head_state = adam.init(params), head.init(key, np.ones(NUM_ITEMS, int), WIDTH)
losses = []
for i in range(num_steps):
  batch, key_i = sequences(rng, BATCH), jax.random.fold_in(key, i)
  params, opt, head_state, loss = train_step(params, opt, head_state, batch, key_i)
  losses.append(float(loss))
print(f"loss {losses[0]:.4f} in the first step, loss {losses[-1]:.4f} in the last")
