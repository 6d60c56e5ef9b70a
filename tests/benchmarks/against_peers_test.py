"""Benchmarks against peers: both sides agree, and differing sides are refused.

Sizes are tiny. Peers that are not installed are left out.
"""

import importlib.util
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import (
  against_optax,
  against_peers,
  against_softmax,
  peer_process,
)
from benchmarks.against_optax import DenseStep
from benchmarks.rows import dense_step
from largevocab.errors import UserError
from largevocab.heads import Sampled
from largevocab.losses import NCE
from largevocab.rows import SGD
from largevocab.tools.reports import measure

ROOT = pathlib.Path(against_peers.__file__).parents[1]
V, D, N = 3_000, 8, 16
AT = f"V={V:,} D={D} N={N}"
BATCH = against_peers.rows_and_batch(V, D, N)

needs = lambda name: pytest.mark.skipif(
  not importlib.util.find_spec(name), reason=f"{name} is missing"
)


@pytest.fixture(autouse=True)
def short_turns(monkeypatch):
  monkeypatch.setattr(against_peers, "SECONDS", 0.0)
  monkeypatch.setattr(measure, "TURN_SECONDS", 0.0)


def check(cases, names, error=1e-3):
  cases = list(cases)
  assert [case.name for case in cases] == [f"{name}, {AT}" for name in names]
  for case in cases:
    assert case.sizes["error"] < error
    assert {"ratio", "at_least"} <= set(case.figures)


def by_optax(head, lr):
  """The optax step, which needs no peer, and our step with plain SGD at rate 0.1."""
  state = against_peers.state_of(head, BATCH[0])
  opt = head.optimizer.transformation().init(state.table.w_VD)
  theirs = DenseStep(dense_step(head, lr), state, opt, *BATCH[1:])
  ours = against_peers.our_step(against_peers.sampled("sgd"), 0.1, *BATCH)
  return theirs, ours, BATCH[0]


def test_peer_is_timed_in_its_own_process(monkeypatch, capfd):
  monkeypatch.setattr(measure, "TURN_SECONDS", 0.01)
  h_ND, w_VD = np.ones((4, 3), np.float32), np.ones((5, 3), np.float32)
  with peer_process.PeerProcess(
    "numpy product", {"h_ND": h_ND, "w_VD": w_VD}
  ) as theirs:
    theirs()
    np.testing.assert_array_equal(theirs.results()[0], np.full((4, 5), 3.0))
    figures = measure.compare(theirs, lambda: h_ND @ w_VD.T, seconds=0.0, min_turns=2)
    assert figures["ratio"] > 0
    assert figures["cpu_ratio"] > 0
    process, directory = theirs._process, theirs._answers.parent
    assert process.pid != os.getpid()
  assert process.returncode == 0
  assert not directory.exists()
  with pytest.raises(UserError, match="numpy product ended with status 1"):
    peer_process.PeerProcess("numpy product", {"h_ND": h_ND})
  assert "KeyError" in capfd.readouterr().err


def test_missing_peers_are_reported(monkeypatch, capsys):
  monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
  assert not list(against_peers.peers_sampled([(V, D)], N))
  assert not list(against_peers.peers_nce([(V, D)], N))
  assert not list(against_softmax.peers_softmax(V, N, [D]))
  assert not list(against_softmax.peers_top_k([V], D, N))
  told = capsys.readouterr().err
  assert "torch is missing" in told
  assert "tensorflow is missing" in told


@pytest.mark.long
def test_no_two_peers_share_a_process():
  """Nor does a peer share one with JAX: each has its own compiler and threads."""
  ours = (
    "import benchmarks.bench, sys; print({'torch', 'tensorflow'} & set(sys.modules))"
  )
  own = "from benchmarks import peers; print({'jax', 'largevocab'} & set(sys.modules))"
  for code in (ours, own):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
      [sys.executable, "-c", f"import sys; {code}"],
      **{"env": environment, "capture_output": True, "text": True, "check": False},
    )
    assert done.stdout.strip() == "set()", done.stderr


def test_optax_makes_the_same_sampled_steps():
  names = [f"sampled step, {name}: jax + optax / rows" for name in against_peers.RATES]
  check(against_optax.peers_optax(V, D, [N]), names)


def test_optax_makes_the_same_exact_step():
  names = ["exact step, sgd: chunks + optax / full head"]
  check(against_optax.peers_exact_step(V, D, N), names)


@pytest.mark.parametrize("other", ["loss", "rate"])
def test_different_step_is_refused(other):
  head, lr = against_peers.sampled("sgd"), 0.1
  against_peers.check_first_step(*by_optax(head, lr))
  if other == "loss":
    drawn = {"num_samples": against_peers.M, "sampler": against_peers.Given()}
    head = Sampled(loss=NCE(), bias=False, **drawn, optimizer=SGD())
  else:
    lr = 0.103
  with pytest.raises(AssertionError, match="the answers differ"):
    against_peers.check_first_step(*by_optax(head, lr))


@pytest.mark.parametrize(
  "peer", [pytest.param(name, marks=needs(name)) for name in against_peers.PEERS]
)
def test_peers_make_the_same_sampled_steps(peer, monkeypatch):
  monkeypatch.setattr(against_peers, "PEERS", {peer: against_peers.PEERS[peer]})
  names = [f"sampled step, {name}: {peer} / rows" for name in against_peers.RATES]
  check(against_peers.peers_sampled([(V, D)], N), names)


@needs("tensorflow")
def test_tensorflow_nce_loss_equals_ours():
  check(against_peers.peers_nce([(V, D)], N), ["nce step, sgd: tensorflow / rows"])


@needs("torch")
@needs("tensorflow")
def test_exact_softmax_of_peers_equals_ours():
  names = ["torch cross_entropy, float32", "torch cross_entropy, bfloat16"]
  names += ["tensorflow, float32"]
  cases = against_softmax.peers_softmax(V, N, [D])
  cases = [case for case in cases if "linear_cross_entropy" not in case.name]
  check(cases, [f"exact softmax: {name} / chunks" for name in names], error=0.02)


@needs("torch")
def test_torch_finds_the_same_best_classes():
  check(against_softmax.peers_top_k([V], D, N), ["top 5: torch / streamed"])
