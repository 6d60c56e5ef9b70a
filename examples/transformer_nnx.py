"""A decoder-only transformer in flax.nnx, trained by optax.adamw.

The text is the source of Python's library. A single table holds the input embeddings
and the head's class rows.
"""

import argparse
import collections
import pathlib
import re

import jax
import numpy as np
import optax
from flax import nnx

from largevocab import head_loss, single_targets, split_state
from largevocab.heads import Sampled

T, B, D, V = 32, 16, 64, 5000


def text() -> np.ndarray:
  """The text as word ids, in order of frequency; the last id is for all other words."""
  paths = sorted(pathlib.Path(argparse.__file__).parent.glob("*.py"))
  words = re.findall(r"\w+|[^\w\s]", " ".join(p.read_text("utf8") for p in paths))
  known = [word for word, _ in collections.Counter(words).most_common(V - 1)]
  number = dict(zip(known, range(V), strict=False))
  return np.array([number.get(word, V - 1) for word in words])


class Block(nnx.Module):
  def __init__(self, rngs):
    self.norm = nnx.RMSNorm(D, rngs=rngs)
    self.attend = nnx.MultiHeadAttention(4, D, decode=False, rngs=rngs)
    up, down = (nnx.Linear(*n, rngs=rngs) for n in ((D, 4 * D), (4 * D, D)))
    self.mlp = nnx.Sequential(nnx.RMSNorm(D, rngs=rngs), up, nnx.gelu, down)

  def __call__(self, x_BTD):
    x_BTD += self.attend(self.norm(x_BTD), mask=nnx.make_causal_mask(x_BTD[..., 0]))
    return x_BTD + self.mlp(x_BTD)


class Transformer(nnx.Module):
  def __init__(self, w_VD, rngs):
    self.table, self.places = nnx.Param(w_VD), nnx.Embed(T, D, rngs=rngs)
    self.layers = nnx.Sequential(Block(rngs), Block(rngs), nnx.RMSNorm(D, rngs=rngs))

  def __call__(self, x_BT):
    return self.layers(self.table[...][x_BT] + self.places.embedding[...])


def main(steps):
  ids, head = text(), Sampled(num_samples=256, bias=False)
  counts = np.bincount(ids, minlength=V)
  params, rest = split_state(head.init(jax.random.key(0), counts, dim=D))
  model, loss_of = Transformer(params["table"], nnx.Rngs(1)), head_loss(head)
  optimizer = nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)

  @nnx.jit
  def train_step(model, optimizer, text_BT, key):
    def loss(model):
      h_ND = model(text_BT[:, :-1]).reshape(-1, D)
      y = single_targets(text_BT[:, 1:].ravel())
      return loss_of({"table": model.table[...]}, rest, h_ND, y, key)

    value, grads = nnx.value_and_grad(loss)(model)
    optimizer.update(model, grads)
    return value

  for step in range(steps):
    start_B1 = np.random.default_rng(step).integers(0, len(ids) - T, (B, 1))
    text_BT = ids[start_B1 + np.arange(T + 1)]
    loss = train_step(model, optimizer, text_BT, jax.random.key(step))
    if step in (0, steps - 1):
      print(f"step {step + 1}: loss {loss:.4f}")


if __name__ == "__main__":
  parser = argparse.ArgumentParser()
  parser.add_argument("--steps", type=int, default=300)
  main(parser.parse_args().steps)
