"""Small face recognition: ArcFace over a sample of the identities, as in PartialFC.

Each image belongs to one of 2,000 identities. Training has a few noisy images of each.
The loss compares an image with its own identity and with 512 uniformly drawn ones. It
uses cosines, with a margin for the image's own identity (Deng et al. 2019; An et al.
2021, 2022). Optax trains the network, and the head trains the rows of the identities.

  python examples/face_margin.py --steps=300
"""

import argparse
import functools

import jax
import numpy as np
import optax

from largevocab import single_targets
from largevocab.heads import Cosine, Sampled
from largevocab.samplers import Uniform

IDENTITIES, PIXELS, HIDDEN, WIDTH, BATCH = 2_000, 32, 128, 64, 256
RATE = 0.5  # learning rate of the rows; a step updates only those of its batch


def images(key, labels):
  """Noisy images of these identities: [N, PIXELS]."""
  of_identity = jax.random.normal(jax.random.key(0), (IDENTITIES, PIXELS))[labels]
  return of_identity + 0.3 * jax.random.normal(key, of_identity.shape)


def network(params, x_NP):
  return jax.nn.relu(x_NP @ params["first"]) @ params["second"]


def initial(key):
  first, second = jax.random.split(key)
  return {
    "first": jax.random.normal(first, (PIXELS, HIDDEN)) / PIXELS**0.5,
    "second": jax.random.normal(second, (HIDDEN, WIDTH)) / HIDDEN**0.5,
  }


def main(steps):
  head = Sampled(
    logits=Cosine(scale=16.0, angular=0.2),  # for real faces: 64 and 0.5
    sampler=Uniform(),
    num_samples=512,
    bias=False,
  )
  optimizer = optax.adam(1e-3)
  params = initial(jax.random.key(1))
  head_state = head.init(jax.random.key(2), np.ones(IDENTITIES, int), dim=WIDTH)

  @functools.partial(jax.jit, donate_argnums=(0, 1, 2))
  def train_step(params, slots, head_state, key):
    of_labels, of_images, of_draw = jax.random.split(key, 3)
    labels = jax.random.randint(of_labels, (BATCH,), 0, IDENTITIES)
    x_NP = images(of_images, labels)
    h_ND, pull_back = jax.vjp(lambda params: network(params, x_NP), params)
    step = head.backward(head_state, h_ND, single_targets(labels), of_draw)
    (grads,) = pull_back(step.dh_ND)
    updates, slots = optimizer.update(grads, slots, params)
    head_state = head.update(head_state, step.grads, lr=RATE, scale=1.0)
    return optax.apply_updates(params, updates), slots, head_state, step.loss

  slots, losses = optimizer.init(params), []
  for key in jax.random.split(jax.random.key(3), steps):
    params, slots, head_state, loss = train_step(params, slots, head_state, key)
    losses.append(float(loss))
  print(f"first loss {losses[0]:.3f}")
  print(f"last loss {losses[-1]:.3f}")


if __name__ == "__main__":
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--steps", type=int, default=300)
  main(parser.parse_args().steps)
