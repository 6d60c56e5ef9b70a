"""Extreme multi-label classification with negatives from hash tables, in your own loop.

optax trains the network with a schedule. A step touches few of the label rows; another
optax transformation trains them through `OptaxRows`.

  python examples/xmlc_lsh.py --steps=300
"""

import argparse
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from largevocab import multi_targets
from largevocab.heads import Sampled
from largevocab.rows import OptaxRows
from largevocab.samplers import LSHEmbedding

LABELS, FEATURES, WIDTH, BATCH, PER_DOCUMENT = 5000, 64, 32, 64, 3
WORDS = np.random.default_rng(0).standard_normal((LABELS, FEATURES)) / FEATURES**0.5
FREQUENCY_V = np.arange(1.0, LABELS + 1) ** -1.2
FREQUENCY_V /= FREQUENCY_V.sum()


def documents(step):
  """Features and labels of a batch; a document is the sum of its labels' words."""
  rng = np.random.default_rng(step)
  draw = functools.partial(rng.choice, LABELS, PER_DOCUMENT, replace=False)
  ids_NP = np.array([draw(p=FREQUENCY_V) for _ in range(BATCH)])
  x_NF = WORDS[ids_NP].sum(axis=1) + 0.05 * rng.standard_normal((BATCH, FEATURES))
  return x_NF.astype(np.float32), multi_targets(ids_NP)


def main(num_steps):
  rate = optax.warmup_cosine_decay_schedule(0.0, 0.01, num_steps // 10, num_steps)
  tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate))
  network = lambda params, x_NF: jax.nn.relu(x_NF @ params["w"] + params["b"])
  normal = jax.random.normal(jax.random.key(0), (FEATURES, WIDTH))
  params = {"w": normal * (2 / FEATURES) ** 0.5, "b": jnp.zeros(WIDTH)}
  opt_state = tx.init(params)

  rows = OptaxRows(optax.rmsprop(1.0, decay=0.9, eps=1e-6), decoupled_decay=0.01)
  sampler = LSHEmbedding(codes=3, tables=8, slots=64)
  head = Sampled(sampler=sampler, num_samples=64, exact_batch=True, optimizer=rows)
  head_state = head.init(jax.random.key(1), np.ones(LABELS, int), dim=WIDTH)

  @functools.partial(jax.jit, donate_argnums=(0, 1, 2))
  def train_step(params, opt_state, head_state, x_NF, y, step):
    h_ND, pull_back = jax.vjp(lambda params: network(params, x_NF), params)
    out = head.backward(head_state, h_ND, y, jax.random.key(step))
    (grads,) = pull_back(out.dh_ND)
    updates, opt_state = tx.update(grads, opt_state, params)
    params = optax.apply_updates(params, updates)
    head_state = head.update(head_state, out.grads, lr=rate(step), scale=1.0)
    return params, opt_state, head_state, out.loss

  refresh = jax.jit(head.refresh, donate_argnums=0)
  losses = []
  for step in range(num_steps):
    params, opt_state, head_state, loss = train_step(
      params, opt_state, head_state, *documents(step), step
    )
    losses.append(loss)
    if head.refreshes(step + 1):  # draws new hash functions, decays rows up to now
      head_state = refresh(head_state, jax.random.key(num_steps + step))
  print(f"first loss {losses[0]:.3f}")
  print(f"last loss {losses[-1]:.3f}")
  x_NF, y = documents(num_steps)
  best_NK, _ = head.top_k(head_state, network(params, x_NF), 3)
  hits = (np.asarray(best_NK)[:, :, None] == y.ids_NP[:, None]).any(axis=2)
  print(f"precision@3 of new documents {hits.mean():.3f}")


if __name__ == "__main__":
  parser = argparse.ArgumentParser()
  parser.add_argument("--steps", type=int, default=300)
  main(parser.parse_args().steps)
