"""Layouts hold all classes, fit in memory, and their cost grows slowly."""

import math

import pytest

from largevocab.errors import UserError
from largevocab.samplers import block_layout
from largevocab.samplers.block_layout import (
  MEMORY,
  RATES,
  BlockLayout,
  choose_layout,
  make_layout,
  seconds,
)

SIZES = [1, 2, 3, 37, 64, 1000, 100_003]
DIM, WIDTH, M = 16, 137, 32
ROWS = sorted(RATES)
# D and F: a quadratic kernel, wider rows, a quartic kernel, moments.
WIDTHS = [(16, 137), (64, 2081), (16, 3877), (64, 128)]


def stored(layout, width):
  """Number of floats in a forest of this layout, counted level by level."""
  return sum(width * (layout.num_top << level) for level in range(layout.levels + 1))


@pytest.mark.parametrize("num_classes", SIZES)
@pytest.mark.parametrize("leaf_size", [1, 2, 7, 64, 1000])
@pytest.mark.parametrize("dense_levels", [0, 1, 3, 99])
def test_blocks_hold_all_classes(num_classes, leaf_size, dense_levels):
  layout = make_layout(num_classes, leaf_size, dense_levels)
  size, blocks = layout.size(num_classes), math.ceil(num_classes / leaf_size)
  assert size * layout.num_blocks >= num_classes > (size - 1) * layout.num_blocks
  assert 1 <= size <= leaf_size
  # No more blocks than needed, but those below the last top node.
  assert blocks <= layout.num_blocks < blocks + 2**layout.levels
  # The binary tree over the blocks is cut `dense_levels` below its root.
  assert layout.levels == max(math.ceil(math.log2(blocks)) - dense_levels, 0)
  assert layout.num_top <= 2**dense_levels
  if dense_levels == 0:
    assert layout.num_top == 1
  if dense_levels == 99:
    assert layout == BlockLayout(blocks, 0)


@pytest.mark.parametrize("rates", ROWS)
@pytest.mark.parametrize("num_classes", [*SIZES, 1_000_000])
@pytest.mark.parametrize(
  ("dim", "width"), [(16, 137), (64, 2081), (16, 3877), (64, 128)]
)
def test_sums_take_no_more_than_the_memory(rates, num_classes, dim, width):
  layout = choose_layout(num_classes, dim, width, M, rates=rates)
  limit = MEMORY * num_classes * dim
  assert layout.num_blocks == 1 or stored(layout, width) <= limit
  # Layouts that would be faster, if any, need more.
  price = lambda layout: seconds(layout, RATES[rates], num_classes, dim, width, M)
  for leaf_size in [2**i for i in range(20) if 2**i <= num_classes]:
    for dense_levels in range(21):
      other = make_layout(num_classes, leaf_size, dense_levels)
      fits = other.num_blocks == 1 or stored(other, width) <= limit
      assert price(layout) <= price(other) or not fits


def test_memory_binds_where_blocks_would_be_small(monkeypatch):
  args = 1_000_000, 16, 3877, 1000
  bound = choose_layout(*args, rates="cpu")
  monkeypatch.setattr(block_layout, "MEMORY", 1e9)
  free = choose_layout(*args, rates="cpu")
  assert stored(bound, 3877) <= MEMORY * 16e6 < stored(free, 3877)


def test_small_blocks_that_do_not_fit_are_refused():
  args = 1_000_000, 16, 3877, 32
  choose_layout(*args, leaf_size=4)  # asked for
  with pytest.raises(UserError, match=r"blocks of at most 4 classes take .* GB, more"):
    choose_layout(*args, largest=4)


@pytest.mark.parametrize("rates", ROWS)
def test_requested_sizes_are_kept_even_if_they_need_more_memory(rates):
  num_classes = 10_000
  layout = choose_layout(num_classes, DIM, WIDTH, M, 2, 1, rates)
  assert layout == make_layout(num_classes, 2, 1)
  assert stored(layout, WIDTH) > MEMORY * num_classes * DIM
  layout = choose_layout(num_classes, DIM, WIDTH, M, leaf_size=100, rates=rates)
  assert layout.size(num_classes) <= 100
  layout = choose_layout(num_classes, DIM, WIDTH, M, dense_levels=0, rates=rates)
  assert layout.num_top == 1


@pytest.mark.parametrize("rates", ROWS)
@pytest.mark.parametrize("num_classes", [1, 2, 3, 30])
def test_few_classes_form_one_block(rates, num_classes):
  layout = choose_layout(num_classes, 64, 2081, M, rates=rates)
  assert layout == BlockLayout(1, 0)
  # A block of more than all classes is one of all.
  assert choose_layout(num_classes, 64, 2081, M, 100, 0, rates) == BlockLayout(1, 0)


@pytest.mark.parametrize("rates", ROWS)
@pytest.mark.parametrize("dense_levels", [-1, 0, 64])
def test_cost_grows_much_less_than_the_number_of_classes(rates, dense_levels):
  def price(num_classes):
    args = num_classes, DIM, WIDTH, M
    layout = choose_layout(*args, dense_levels=dense_levels, rates=rates)
    return seconds(layout, RATES[rates], *args)

  one = lambda v: seconds(BlockLayout(1, 0), RATES[rates], v, DIM, WIDTH, M)
  assert one(10_000_000) > 99 * one(100_000)
  # Without levels at best with the root of V, in a tree with log V.
  growth = price(10_000_000) / price(100_000)
  assert 1 < growth < (15 if dense_levels == 64 else 3)
  assert price(100_000) <= one(100_000)


def test_unknown_device_rates_are_refused():
  with pytest.raises(KeyError, match="gpu"):
    choose_layout(100, DIM, WIDTH, M, rates="gpu")
