import functools
import itertools
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from largevocab.ops.softmax.full import softmax_loss
from largevocab.ops.softmax.log_partition import score_of
from largevocab.ops.softmax.parts import (
  Part,
  parts_loss_by_classes,
  parts_loss_by_examples,
  parts_loss_naive,
)
from largevocab.ops.softmax.plan import METHODS, plan
from tests.long import others_long


def of_one_table(loss):
  """A loss of classes in several tables, for a single one."""
  return lambda h_ND, w_VD, *of, **kind: loss((Part(h_ND, w_VD),), *of, **kind)


softmax_loss_naive = of_one_table(parts_loss_naive)
by_examples = of_one_table(parts_loss_by_examples)
by_classes = of_one_table(parts_loss_by_classes)
CHUNKED = {
  "examples": functools.partial(by_examples, examples=3),
  "one chunk": functools.partial(by_examples, examples=100),
  "tiles": functools.partial(by_examples, examples=3, classes=4),
  "classes": functools.partial(by_classes, classes=4),
  "each class": functools.partial(by_classes, classes=1),
}
chunked = pytest.mark.parametrize("loss", CHUNKED.values(), ids=CHUNKED)


def problem(N=7, V=11, D=5, P=1, dtype=np.float32, seed=0):
  rng = np.random.default_rng(seed)
  return (
    rng.standard_normal((N, D)).astype(dtype),
    rng.standard_normal((V, D)).astype(dtype),
    rng.integers(0, V, (N, P)).astype(np.int32),
    rng.uniform(0.1, 1.0, (N, P)).astype(dtype),
  )


@functools.partial(jax.jit, static_argnames=("loss", "score", "dtype"))
def value_and_gradients(loss, args, **options):
  h_ND, w_VD, ids_NP, w_NP = args
  f = lambda h_ND, w_VD, w_NP: loss(h_ND, w_VD, ids_NP, w_NP, **options)
  return jax.value_and_grad(f, (0, 1, 2))(h_ND, w_VD, w_NP)


def assert_equal_to_naive(loss, args, rtol=1e-5, **options):
  value, gradients = value_and_gradients(loss, args, **options)
  naive, naive_gradients = value_and_gradients(softmax_loss_naive, args, **options)
  np.testing.assert_allclose(value, naive, rtol=rtol, atol=rtol)
  for got, want in zip(gradients, naive_gradients, strict=True):
    assert got.dtype == want.dtype
    atol = rtol * max(1.0, float(jnp.abs(want).max()))
    np.testing.assert_allclose(got, want, rtol=0, atol=atol)


def with_(change, **sizes):
  args = problem(P=3, **sizes)
  change(*args)
  return args


def labels_of_all_sorts(h_ND, w_VD, ids_NP, w_NP):
  """One, two and three true classes, none, one named twice, and a weightless row."""
  V = len(w_VD)
  ids_NP[0] = [4, V, V]
  ids_NP[1] = [2, 2, 9]
  ids_NP[2] = [V, V, V]
  ids_NP[4] = [4, 8, V]
  w_NP *= ids_NP < V
  w_NP[3] = 0


def logits_of_1e4(h_ND, w_VD, ids_NP, w_NP):
  h_ND[:] = 0
  h_ND[:, 0] = [100, -100, 100, 100, -100, 100, 100]
  w_VD[:, 0] = np.linspace(-100, 100, len(w_VD))


def no_weight(h_ND, w_VD, ids_NP, w_NP):
  w_NP[:] = 0


def h_is_0(h_ND, w_VD, ids_NP, w_NP):
  h_ND[:] = 0


PROBLEMS = {
  "labels of all sorts": with_(labels_of_all_sorts),
  "logits of 1e4": with_(logits_of_1e4),
  "no weight": with_(no_weight),
  "h = 0": with_(h_is_0),
  "one example": problem(N=1),
  "one class": problem(V=1),
}


@pytest.mark.parametrize(
  ("name", "absolute"),
  others_long(
    itertools.product(PROBLEMS, [False, True]),
    [*((name, False) for name in PROBLEMS), ("labels of all sorts", True)],
  ),
)
@chunked
def test_chunked_equals_naive(loss, name, absolute):
  assert_equal_to_naive(loss, PROBLEMS[name], score=score_of(absolute))


@pytest.mark.parametrize("absolute", [False, True])
@chunked
def test_chunked_equals_naive_in_float64(loss, absolute):
  with jax.enable_x64(True):
    args = problem(N=7, V=13, D=6, P=2, dtype=np.float64)
    assert_equal_to_naive(loss, args, rtol=1e-12, score=score_of(absolute))


@pytest.mark.parametrize("args", PROBLEMS.values(), ids=PROBLEMS)
def test_naive_loss_equals_the_definition(args):
  h_ND, w_VD, ids_NP, w_NP = (np.asarray(x, np.float64) for x in args)
  ids_NP = ids_NP.astype(int)
  loss = 0.0
  for h_D, ids_P, w_P in zip(h_ND, ids_NP, w_NP, strict=True):
    o_V = w_VD @ h_D
    log_z = o_V.max() + np.log(np.exp(o_V - o_V.max()).sum())
    loss += sum(w * (log_z - o_V[i]) for i, w in zip(ids_P, w_P, strict=True) if w)
  np.testing.assert_allclose(softmax_loss_naive(*args), loss, rtol=2e-6, atol=1e-5)


@pytest.mark.parametrize("name", ["naive", "tiles", "classes"])
def test_gradient_equals_that_of_the_loss(name):
  loss = CHUNKED.get(name, softmax_loss_naive)
  with jax.enable_x64(True):
    h_ND, w_VD, ids_NP, w_NP = problem(N=3, V=6, D=2, P=2, dtype=np.float64)
    f = lambda h_ND, w_VD, w_NP: loss(h_ND, w_VD, ids_NP, w_NP)
    check_grads(jax.jit(f), (h_ND, w_VD, w_NP), order=1, modes=["rev"])


@chunked
def test_weightless_examples_change_nothing(loss):
  h_ND, w_VD, ids_NP, w_NP = problem()
  w_NP[4:] = 0
  other_ND = h_ND.copy()
  other_ND[4:] = 1e3
  for got, want in zip(
    jax.tree.leaves(value_and_gradients(loss, (other_ND, w_VD, ids_NP, w_NP))[1][:2]),
    jax.tree.leaves(value_and_gradients(loss, (h_ND, w_VD, ids_NP, w_NP))[1][:2]),
    strict=True,
  ):
    np.testing.assert_array_equal(got, want)


@chunked
def test_bfloat16_rounds_the_operands_only(loss):
  """With operands that bfloat16 holds exactly, the loss is that of float32: the softmax
  and its sums are not rounded. The gradient's operand is, to 2^-9."""
  h_ND, w_VD, ids_NP, w_NP = problem(N=7, V=300, D=8)
  h_ND, w_VD = (np.asarray(jnp.bfloat16(x), np.float32) for x in (h_ND, w_VD))
  args = h_ND, w_VD, ids_NP, w_NP
  value, gradients = value_and_gradients(loss, args, dtype="bfloat16")
  want, want_gradients = value_and_gradients(softmax_loss_naive, args)
  np.testing.assert_allclose(value, want, rtol=1e-6)
  for got, want in zip(gradients, want_gradients, strict=True):
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=0, atol=2**-8 * np.abs(want).max())


@chunked
def test_bfloat16_tables_are_accepted(loss):
  h_ND, w_VD, ids_NP, w_NP = problem()
  args = jnp.bfloat16(h_ND), jnp.bfloat16(w_VD), ids_NP, w_NP
  _, (dh_ND, dw_VD, _) = value_and_gradients(loss, args)
  assert dh_ND.dtype == dw_VD.dtype == jnp.bfloat16
  _, (want_ND, want_VD, _) = value_and_gradients(softmax_loss_naive, args)
  for got, want in ((dh_ND, want_ND), (dw_VD, want_VD)):
    want = np.asarray(want, np.float32)
    atol = 2**-6 * np.abs(want).max()
    np.testing.assert_allclose(np.asarray(got, np.float32), want, rtol=0, atol=atol)


@chunked
def test_nan_in_the_table_makes_the_loss_nan(loss):
  """A diverged model must be visible in the loss."""
  h_ND, w_VD, ids_NP, w_NP = problem()
  w_VD[3] = np.nan
  assert np.isnan(value_and_gradients(loss, (h_ND, w_VD, ids_NP, w_NP))[0])


@pytest.mark.parametrize("method", METHODS[1:])
def test_softmax_loss_follows_the_plan(method):
  args = problem(N=6, V=40)
  how = plan(6, 40, 5, 2000, method=method)
  assert how.method == method
  value, gradients = value_and_gradients(
    lambda *args: softmax_loss(*args[:4], how), args
  )
  want, want_gradients = value_and_gradients(softmax_loss_naive, args)
  np.testing.assert_allclose(value, want, rtol=1e-5)
  for got, want in zip(gradients, want_gradients, strict=True):
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)


def temp_bytes(loss, args):
  """Of the program that users run: conftest.py has others made, fused otherwise."""
  f = lambda *args: jax.value_and_grad(loss, (0, 1))(*args)
  fusion = "xla_cpu_use_fusion_emitters"
  as_users = {fusion: True} if fusion in os.environ["XLA_FLAGS"] else {}
  compiled = jax.jit(f).lower(*args).compile(compiler_options=as_users)
  return compiled.memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize(
  ("method", "dtype"),
  others_long(
    itertools.product(["tiles", "examples", "classes"], ["float32", "bfloat16"]),
    [("tiles", "bfloat16"), ("examples", "float32"), ("classes", "float32")],
  ),
)
def test_memory_keeps_to_the_plan(method, dtype):
  N, V, D = 256, 20_000, 16
  args = problem(N=N, V=V, D=D)
  naive = temp_bytes(softmax_loss_naive, args)
  how = plan(
    N, V, D, naive // 8, method=method, compute_bytes=jnp.dtype(dtype).itemsize
  )
  loss = lambda *args: softmax_loss(*args, how, dtype=dtype)
  assert how.num_chunks > 1
  assert temp_bytes(loss, args) <= how.temp_bytes <= naive // 8


@chunked
def test_compiles_once(loss):
  traces = 0

  @jax.jit
  def f(*args):
    nonlocal traces
    traces += 1
    return jax.grad(lambda *a: loss(*a))(*args)

  f(*problem(seed=0))
  f(*problem(seed=1))
  assert traces == 1


def test_shapes_are_checked():
  h_ND, w_VD, ids_NP, w_NP = problem()
  with pytest.raises(ValueError, match="w_VD has shape"):
    by_classes(h_ND, w_VD[:, 1:], ids_NP, w_NP, classes=2)
