import jax
import pytest

from largevocab.ops.softmax.plan import METHODS, budget_bytes, plan

MIB = 2**20


@pytest.mark.parametrize("N", [1, 100, 1024, 20_000])
@pytest.mark.parametrize("V", [1, 1000, 100_000, 1_000_000])
@pytest.mark.parametrize("D", [8, 512])
@pytest.mark.parametrize("compute_bytes", [2, 4])
def test_budget_is_kept(N, V, D, compute_bytes):
  for budget in (128 * MIB, 1024 * MIB):
    how = plan(N, V, D, budget, compute_bytes=compute_bytes)
    assert 1 <= how.examples <= N
    assert 1 <= how.classes <= V
    # Beyond the budget only not to take more than 128 steps over the classes.
    few_steps = N == 20_000 and V == 1_000_000 and how.num_chunks == 128
    assert how.temp_bytes <= budget or few_steps


@pytest.mark.parametrize(
  ("N", "V", "D", "temp_mib"),
  [
    (8192, 1_000_000, 1032, 584),  # h and dh alone are more than the budget
    (2560, 793_471, 2056, 210),
  ],
)
def test_budget_that_is_too_small_is_exceeded_instead_of_using_tiny_chunks(
  N, V, D, temp_mib
):
  how = plan(N, V, D, 64 * MIB)
  assert how.num_chunks <= 128
  assert how.temp_bytes // MIB == temp_mib
  kept, per_class = N * (2 * D + 16) * 4, (2 * N + D) * 4
  assert how.temp_bytes == kept + how.classes * per_class
  assert f"about {how.temp_bytes / MIB:.1f} MiB of temporary memory" in str(how)


@pytest.mark.parametrize("method", ["tiles", "examples"])
def test_budget_of_zero_still_gives_whole_chunks(method):
  how = plan(8192, 1_000_000, 1032, 1, method=method)
  assert how.examples == 64
  assert how.classes >= 1_000_000 / 128


@pytest.mark.parametrize(
  ("budget", "method"), [(1, "classes"), (64, "classes"), (256, "tiles")]
)
def test_auto_keeps_the_logits_of_enough_examples_or_none(budget, method):
  assert plan(1024, 800_000, 64, budget * MIB).method == method


def test_single_chunk_is_used_if_all_fits():
  how = plan(128, 1000, 64, 64 * MIB)
  assert (how.method, how.num_chunks) == ("tiles", 1)
  assert str(how).startswith(
    "exact softmax by tiles: 128 x 1000 logits at a time, once"
  )


@pytest.mark.parametrize("method", METHODS[1:])
def test_larger_budgets_give_fewer_chunks(method):
  few, many = (plan(4096, 50_000, 64, b * MIB, method=method) for b in (1024, 64))
  assert few.method == many.method == method
  assert few.num_chunks <= many.num_chunks


@pytest.mark.parametrize("method", ["tiles", "classes"])
def test_chunks_fill_the_budget_on_a_gpu(monkeypatch, method):
  def chunks(budget):
    return plan(1024, 100_000, 128, budget * MIB, method=method)

  for_cache = chunks(1024)
  monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
  small, large = chunks(64), chunks(1024)
  assert 0.75 * 64 * MIB < small.temp_bytes <= 64 * MIB
  assert large.temp_bytes <= 1024 * MIB
  assert large.num_chunks < small.num_chunks
  assert 4 * large.num_chunks < for_cache.num_chunks


@pytest.mark.parametrize(
  ("backend", "mib"), [("cpu", 64), ("gpu", 1024), ("tpu", 1024)]
)
def test_default_budget_is_larger_off_the_cpu(monkeypatch, backend, mib):
  monkeypatch.setattr(jax, "default_backend", lambda: backend)
  assert budget_bytes(0) == mib * MIB
  assert budget_bytes(0.5) == MIB // 2
