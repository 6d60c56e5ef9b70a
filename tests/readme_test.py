"""README: its example runs, and what it names exists."""

import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def test_the_example_trains():
  (example,) = re.findall(r"<!-- example -->\n```python\n(.*?)```", README, re.DOTALL)
  num_classes = 1000
  names = {
    "counts": np.arange(num_classes, 0, -1),
    "network": lambda params, x: jnp.tanh(x @ params["w"]),
  }
  exec(example, names)
  params = {"w": 0.1 * jax.random.normal(jax.random.key(0), (8, 64))}
  x = jax.random.normal(jax.random.key(1), (32, 8))
  labels = np.random.default_rng(0).integers(0, num_classes, 32)
  state, losses = names["head_state"], []
  for step in range(200):
    key = jax.random.key(step)
    params, state, loss = names["train_step"](params, state, x, labels, key)
    losses.append(float(loss))
  assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])


def test_what_it_names_exists():
  for path in re.findall(
    r"(?:configs|scripts|tests|experiments|docs)/[\w/.]+\w", README
  ):
    assert (ROOT / path).exists(), path
