"""Benchmarks against peers: both sides give the same answers, and what differs is
refused. At tiny sizes; peers that are not installed are left out."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import bench_peers
import bench_peers_optax
import bench_peers_softmax
import measure
import numpy as np
import peer_process
import pytest
from bench_peers_optax import DenseStep
from bench_rows import dense_step

from largevocab.errors import UserError
from largevocab.heads import NCE
from largevocab.rows import SGD

SCRIPTS = pathlib.Path(bench_peers.__file__).parent
V, D, N = 3_000, 8, 16
AT = f"V={V:,} D={D} N={N}"
BATCH = bench_peers.rows_and_batch(V, D, N)

needs = lambda name: pytest.mark.skipif(
  not importlib.util.find_spec(name), reason=f"{name} is missing"
)


@pytest.fixture(autouse=True)
def short_turns(monkeypatch):
  monkeypatch.setattr(bench_peers, "SECONDS", 0.0)
  monkeypatch.setattr(measure, "TURN_SECONDS", 0.0)


def check(cases, names, error=1e-3):
  cases = list(cases)
  assert [case.name for case in cases] == [f"{name}, {AT}" for name in names]
  for case in cases:
    assert case.sizes["error"] < error
    assert {"ratio", "at_least"} <= set(case.figures)


def by_optax(head, lr):
  """The rival that needs no peer, and our step with plain SGD at a rate of 0.1."""
  state = bench_peers.state_of(head, BATCH[0])
  opt = head.optimizer.transformation().init(state.table.w_VD)
  theirs = DenseStep(dense_step(head, lr), state, opt, *BATCH[1:])
  ours = bench_peers.our_step(bench_peers.sampled("sgd"), 0.1, *BATCH)
  return theirs, ours, BATCH[0]


def test_a_peer_is_timed_in_a_process_of_its_own(monkeypatch, capfd):
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


def test_peers_that_are_not_there_are_told(monkeypatch, capsys):
  monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
  assert not list(bench_peers.peers_sampled([(V, D)], N))
  assert not list(bench_peers.peers_nce([(V, D)], N))
  assert not list(bench_peers_softmax.peers_softmax(V, N, [D]))
  assert not list(bench_peers_softmax.peers_top_k([V], D, N))
  told = capsys.readouterr().err
  assert "torch is missing" in told
  assert "tensorflow is missing" in told


def test_no_two_peers_share_a_process():
  """Nor does one share it with JAX: each brings a compiler and threads of its own."""
  ours = "import bench, sys; print({'torch', 'tensorflow'} & set(sys.modules))"
  own = "import peers, sys; print({'jax', 'largevocab'} & set(sys.modules))"
  for code in (ours, own):
    environment = {**os.environ, "PYTHONPATH": f"{SCRIPTS}:{SCRIPTS.parent}"}
    done = subprocess.run(
      [sys.executable, "-c", code],
      **{"env": environment, "capture_output": True, "text": True, "check": False},
    )
    assert done.stdout.strip() == "set()", done.stderr


def test_optax_makes_our_sampled_steps():
  names = [f"sampled step, {name}: jax + optax / rows" for name in bench_peers.RATES]
  check(bench_peers_optax.peers_optax(V, D, [N]), names)


def test_optax_makes_our_exact_step():
  names = ["exact step, sgd: chunks + optax / full head"]
  check(bench_peers_optax.peers_exact_step(V, D, N), names)


@pytest.mark.parametrize("other", ["loss", "rate"])
def test_another_step_is_refused(other):
  head, lr = bench_peers.sampled("sgd"), 0.1
  bench_peers.check_first_step(*by_optax(head, lr))
  if other == "loss":
    drawn = {"num_samples": bench_peers.M, "sampler": bench_peers.Given()}
    head = NCE(bias=False, **drawn, optimizer=SGD())
  else:
    lr = 0.103
  with pytest.raises(AssertionError, match="the answers differ"):
    bench_peers.check_first_step(*by_optax(head, lr))


@pytest.mark.parametrize(
  "peer", [pytest.param(name, marks=needs(name)) for name in bench_peers.PEERS]
)
def test_peers_make_our_sampled_steps(peer, monkeypatch):
  monkeypatch.setattr(bench_peers, "PEERS", {peer: bench_peers.PEERS[peer]})
  names = [f"sampled step, {name}: {peer} / rows" for name in bench_peers.RATES]
  check(bench_peers.peers_sampled([(V, D)], N), names)


@needs("tensorflow")
def test_the_nce_loss_of_tensorflow_is_ours():
  check(bench_peers.peers_nce([(V, D)], N), ["nce step, sgd: tensorflow / rows"])


@needs("torch")
@needs("tensorflow")
def test_peers_have_our_exact_softmax():
  names = ["torch cross_entropy, float32", "torch cross_entropy, bfloat16"]
  names += ["tensorflow, float32"]
  cases = bench_peers_softmax.peers_softmax(V, N, [D])
  cases = [case for case in cases if "linear_cross_entropy" not in case.name]
  check(cases, [f"exact softmax: {name} / chunks" for name in names], error=0.02)


@needs("torch")
def test_torch_finds_our_best_classes():
  check(bench_peers_softmax.peers_top_k([V], D, N), ["top 5: torch / streamed"])
