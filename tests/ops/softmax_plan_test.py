import pytest

from largevocab.ops.softmax_plan import plan

MIB = 2**20


@pytest.mark.parametrize("N", [1, 100, 1024, 20_000])
@pytest.mark.parametrize("V", [1, 1000, 100_000, 1_000_000])
@pytest.mark.parametrize("D", [8, 512])
@pytest.mark.parametrize("compute_bytes", [2, 4])
def test_budget_is_kept_and_chunks_cover_all(N, V, D, compute_bytes):
  for budget in (128 * MIB, 1024 * MIB):
    how = plan(N, V, D, budget, compute_bytes=compute_bytes)
    total = V if how.method == "classes" else N
    assert (how.num_chunks - 1) * how.size < total <= how.num_chunks * how.size
    assert how.temp_bytes <= budget


def test_one_chunk_if_all_fits():
  how = plan(128, 1000, 64, 64 * MIB)
  assert (how.method, how.num_chunks) == ("examples", 1)


def test_larger_budgets_give_fewer_chunks():
  nums = [plan(4096, 50_000, 64, b * MIB, method="examples") for b in (64, 128, 512)]
  assert nums[0].num_chunks > nums[1].num_chunks > nums[2].num_chunks


@pytest.mark.parametrize("method", ["reference", "examples", "classes"])
def test_method_can_be_chosen(method):
  assert plan(512, 100_000, 64, MIB, method=method).method == method
