"""README: its example runs, its tables are those of the committed results."""

import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import records
import tabulate

ROOT = pathlib.Path(__file__).parents[1]
RUNS = ("full softmax", "sampled, pps, 512")
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


def test_tables_are_those_of_the_committed_results():
  assert tabulate.main(["--check", str(ROOT / "README.md")]) == 0


def test_what_it_names_exists():
  for path in re.findall(r"(?:configs|scripts|tests|experiments)/[\w/.]+\w", README):
    assert (ROOT / path).exists(), path


def test_the_claims_of_ptb_sampled_hold_in_its_results():
  rows = records.load(ROOT / "experiments" / "ptb_sampled" / "results.jsonl")
  full, sampled = ({row["name"]: row for row in rows}[name] for name in RUNS)
  assert full["test_ppl"] <= 117
  assert sampled["test_ppl"] <= 1.03 * full["test_ppl"]
  assert sampled["train_seconds"] <= full["train_seconds"] / 3


def ppl_of(name: str) -> float:
  """Test perplexity in kernel_bias, mean over seeds."""
  rows = records.load(ROOT / "experiments" / "kernel_bias" / "results.jsonl")
  return float(np.mean([row["test_ppl"] for row in rows if row["name"] == name]))


def test_the_claims_of_kernel_bias_hold_in_its_results():
  num_samples = (10, 20, 40, 80, 160, 320)
  softmax = [ppl_of(f"softmax, m={m}") for m in num_samples]
  assert max(softmax) <= 1.06 * min(softmax)
  assert ppl_of("quadratic, m=10") < ppl_of("uniform, m=320")
  first = [ppl_of(f"{name}, m=10") for name in ("quadratic", "quartic", "softmax")]
  assert first == sorted(first, reverse=True)
  assert ppl_of("quadratic_prior, m=32") <= 1.02 * ppl_of("full softmax")
  assert ppl_of("pps, shared, m=512") <= 1.02 * ppl_of("full softmax")


@pytest.mark.parametrize("data", ["diginetica", "video_games"])
def test_the_claims_of_next_item_hold_in_its_results(data):
  rows = records.load(ROOT / "experiments" / "next_item" / "results.jsonl")
  nll = {row["name"]: row["test_nll"] for row in rows}
  full = nll[f"{data}: full softmax"]
  for name in ("quadratic", "quartic", "softmax", "quadratic_prior", "block"):
    assert nll[f"{data}: {name}, m=20"] < nll[f"{data}: unigram, m=20"] - 0.25
    assert abs(nll[f"{data}: {name}, m=160"] - full) < 0.05
  assert nll[f"{data}: unigram, m=20"] < nll[f"{data}: uniform, m=20"]
