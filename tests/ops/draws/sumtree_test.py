import jax
import jax.numpy as jnp
import numpy as np
import pytest

from largevocab.ops.draws import sumtree

F = 3
# Top nodes and levels: one node, a binary tree, a forest, only top nodes.
SHAPES = [(1, 0), (3, 0), (1, 1), (2, 2), (1, 4), (3, 3)]
every_shape = pytest.mark.parametrize(("num_top", "levels"), SHAPES)
first = lambda sums: sums[..., 0]  # a mass: the first of the sums
add = jax.jit(sumtree.add)
log_path = jax.jit(sumtree.log_path, static_argnums=1)
descend = jax.jit(sumtree.descend, static_argnums=1)


def block_sums(num_top, levels, seed=0):
  """Small integers, whose sums are exact in any order."""
  shape = num_top << levels, F
  return np.random.default_rng(seed).integers(0, 9, shape).astype("f")


def naive_levels(block_BF, levels):
  """From the top to the blocks: sums over all blocks below each node."""
  return [
    np.array([node.sum(0) for node in np.split(block_BF, len(block_BF) >> below)])
    for below in range(levels, -1, -1)
  ]


def assert_is(tree, block_BF, levels):
  top_CF, *below = naive_levels(block_BF, levels)
  np.testing.assert_array_equal(tree.top_CF, top_CF)
  if not levels:
    assert tree.below_SF is None
    return
  np.testing.assert_array_equal(tree.below_SF, np.concatenate(below))


@every_shape
def test_built_tree_has_all_sums(num_top, levels):
  block_BF = block_sums(num_top, levels)
  tree = sumtree.build(jnp.asarray(block_BF), num_top)
  assert_is(tree, block_BF, levels)
  assert sumtree.depth(tree) == levels
  assert sumtree.num_blocks(tree) == len(block_BF) == num_top << levels


@pytest.mark.parametrize(("num_blocks", "num_top"), [(6, 2), (3, 6), (5, 4)])
def test_wrong_number_of_blocks_is_refused(num_blocks, num_top):
  message = f"{num_blocks} blocks are not {num_top} times a power of two"
  with pytest.raises(ValueError, match=message):
    sumtree.build(jnp.zeros((num_blocks, F)), num_top)


@every_shape
def test_many_adds_give_the_tree_of_the_sums(num_top, levels):
  rng = np.random.default_rng(1)
  block_BF = block_sums(num_top, levels)
  num_blocks = len(block_BF)
  tree = sumtree.build(jnp.asarray(block_BF), num_top)
  for _ in range(20):
    # Repeated ids, since there are more than blocks; and padding.
    block_R = rng.integers(0, num_blocks + 2, 2 * num_blocks + 3)
    block_R[-1] = np.iinfo(np.int32).max
    delta_RF = rng.integers(-9, 9, (len(block_R), F)).astype("f")
    tree = add(tree, jnp.asarray(block_R, jnp.int32), jnp.asarray(delta_RF))
    is_block_R = block_R < num_blocks
    np.add.at(block_BF, block_R[is_block_R], delta_RF[is_block_R])
  assert_is(tree, block_BF, levels)


@every_shape
def test_adding_no_blocks_changes_nothing(num_top, levels):
  block_BF = block_sums(num_top, levels)
  tree = sumtree.build(jnp.asarray(block_BF), num_top)
  tree = add(tree, jnp.zeros(0, jnp.int32), jnp.zeros((0, F)))
  tree = add(tree, jnp.full(2, len(block_BF)), jnp.ones((2, F)))
  assert_is(tree, block_BF, levels)


def weights(num_top, levels):
  """Sums whose first column is a weight; every third weight is 0."""
  block_BF = block_sums(num_top, levels)
  block_BF[:, 0] = np.random.default_rng(2).exponential(size=len(block_BF))
  block_BF[1::3, 0] = 0
  return block_BF


@every_shape
def test_probabilities_of_the_blocks_below_a_node_are_their_shares(num_top, levels):
  block_BF = weights(num_top, levels)
  tree = sumtree.build(jnp.asarray(block_BF), num_top)
  block_B = jnp.arange(len(block_BF))
  log_q_B = log_path(tree, first, block_B)
  q_CB = np.exp(np.float64(log_q_B)).reshape(num_top, -1)
  np.testing.assert_allclose(q_CB.sum(-1), 1, rtol=1e-6)
  if not levels:  # a top node is its block, whatever its weight
    np.testing.assert_array_equal(log_q_B, 0)
    return
  weight_CB = np.float64(block_BF[:, 0]).reshape(num_top, -1)
  total_C1 = weight_CB.sum(-1, keepdims=True)
  # Every level rounds to a 2^-24th.
  np.testing.assert_allclose(q_CB, weight_CB / total_C1, atol=levels * 2.0**-23)
  np.testing.assert_array_equal(q_CB > 0, weight_CB > 0)


@every_shape
def test_draws_follow_the_law_and_the_test_would_notice(num_top, levels, chi_square):
  block_BF = weights(num_top, levels)
  tree = sumtree.build(jnp.asarray(block_BF), num_top)
  m = 20_000
  for node in range(num_top):
    u_KM = jax.random.randint(jax.random.key(node), (levels, m), 0, sumtree.UNIT)
    block_M, log_q_M = descend(tree, first, jnp.full(m, node), u_KM)
    assert block_M.dtype == jnp.int32
    np.testing.assert_allclose(log_q_M, log_path(tree, first, block_M), atol=1e-6)
    own_B = np.arange(len(block_BF)) >> levels == node
    alive_B = own_B & ((block_BF[:, 0] > 0) | (levels == 0))
    assert alive_B[block_M].all()  # blocks of weight 0 are never entered
    if alive_B.sum() == 1:
      continue
    log_q_B = log_path(tree, first, jnp.arange(len(block_BF)))
    q_B = np.where(alive_B, np.exp(np.float64(log_q_B)), 0)
    assert (q_B[alive_B] * m >= 5).all()
    tilted_B = q_B * np.where(np.cumsum(alive_B) % 2, 0.8, 1.2)
    assert chi_square(block_M, q_B) > 1e-4
    assert chi_square(block_M, tilted_B) < 1e-4


def test_every_unit_of_length_has_one_random_integer():
  """Around the boundary between two children, and at both ends."""
  tree = sumtree.build(jnp.array([[3.0], [5.0]]), 1)
  boundary = sumtree.UNIT * 3 // 8
  u_M = jnp.array([0, boundary - 1, boundary, sumtree.UNIT - 1])
  block_M, log_q_M = descend(tree, first, jnp.zeros(4, jnp.int32), u_M[None])
  assert block_M.tolist() == [0, 0, 1, 1]
  np.testing.assert_allclose(np.exp(log_q_M), [3 / 8, 3 / 8, 5 / 8, 5 / 8], rtol=1e-6)


@pytest.mark.parametrize("weights", [(0.0, 1.0), (1.0, 0.0), (0.0, 1e-38), (1e30, 0.0)])
def test_child_of_weight_zero_is_never_entered(weights):
  tree = sumtree.build(jnp.array(weights)[:, None], 1)
  ends_1M = jnp.array([[0, 1, sumtree.UNIT - 2, sumtree.UNIT - 1]])
  block_M, log_q_M = descend(tree, first, jnp.zeros(4, jnp.int32), ends_1M)
  assert set(block_M.tolist()) == {int(np.argmax(weights))}
  np.testing.assert_array_equal(log_q_M, 0)


@pytest.mark.parametrize("ratio", [1e-9, 1e-30])
def test_child_of_any_positive_weight_can_be_entered(ratio):
  ends_1M = jnp.array([[0, sumtree.UNIT - 1]])
  for weights in ([ratio, 1.0], [1.0, ratio]):
    tree = sumtree.build(jnp.array(weights)[:, None], 1)
    block_M, log_q_M = descend(tree, first, jnp.zeros(2, jnp.int32), ends_1M)
    assert block_M.tolist() == [0, 1]
    np.testing.assert_allclose(jnp.exp(log_q_M).sum(), 1, rtol=1e-6)


def test_mass_may_be_any_function_of_the_sums():
  block_BF = block_sums(1, 3) + 1
  mass = lambda sums: sums[..., 1] * sums[..., 1] / sums[..., 2]
  mass_levels = [mass(node_BF) for node_BF in naive_levels(block_BF, 3)]
  want_B = np.ones(8)
  for block in range(8):
    for level in (1, 2, 3):
      node = block >> (3 - level)
      here, beside = mass_levels[level][node], mass_levels[level][node ^ 1]
      want_B[block] *= here / (here + beside)
  tree = sumtree.build(jnp.asarray(block_BF), 1)
  log_q_B = log_path(tree, mass, jnp.arange(8))
  np.testing.assert_allclose(jnp.exp(log_q_B), want_B, rtol=1e-5)


def test_tree_holds_millions_of_blocks():
  levels, num_top = 20, 2
  num_blocks = num_top << levels
  build = jax.jit(sumtree.build, static_argnums=1)
  tree = build(jnp.ones((num_blocks, 1)), num_top)
  assert sumtree.depth(tree) == levels
  block_R = jnp.array([0, num_blocks - 1, num_blocks, num_blocks - 1])
  tree = add(tree, block_R, jnp.full((4, 1), 3.0))
  half = num_blocks // 2
  assert tree.top_CF.ravel().tolist() == [half + 3, half + 6]
  last_level = np.asarray(tree.below_SF)[-num_blocks:, 0]
  assert last_level[[0, 1, -2, -1]].tolist() == [4, 1, 1, 7]
  assert last_level.sum() == num_blocks + 9
  u_KM = jnp.full((levels, 2), sumtree.UNIT - 1).at[:, 0].set(0)
  block_M, log_q_M = descend(tree, first, jnp.array([0, 1]), u_KM)
  assert block_M.tolist() == [0, num_blocks - 1]
  np.testing.assert_allclose(
    log_q_M, np.log([4 / (half + 3), 7 / (half + 6)]), rtol=1e-5
  )


def test_add_touches_nodes_in_place():
  """Guards speed without timing: no second array of the tree's size is made."""
  num_blocks, width = 1 << 20, 16
  abstract = lambda shape, dtype: jax.ShapeDtypeStruct(shape, dtype)
  block_BF = abstract((num_blocks, width), jnp.float32)
  tree = jax.eval_shape(lambda block_BF: sumtree.build(block_BF, 4), block_BF)
  args = abstract((64,), jnp.int32), abstract((64, width), jnp.float32)
  size = sum(leaf.size * 4 for leaf in jax.tree.leaves(tree))
  assert size > 2 * num_blocks * width * 4 - 1024

  def memory(**options):
    jitted = jax.jit(sumtree.add, **options)
    return jitted.lower(tree, *args).compile().memory_analysis()

  donated = memory(donate_argnums=0)
  assert donated.alias_size_in_bytes == size
  assert donated.temp_size_in_bytes < 2**20
  assert memory().alias_size_in_bytes == 0


@pytest.mark.parametrize("numbers", [1, 12, 10**9])
@pytest.mark.parametrize(("blocks", "top"), [(24, 3), (5, 5), (16, 1)])
def test_rebuilt_tree_equals_a_new_one(monkeypatch, numbers, blocks, top):
  monkeypatch.setattr(sumtree, "_NUMBERS", numbers)
  block_BF = np.random.default_rng(0).integers(0, 99, (blocks, 3)).astype("f")
  old = sumtree.build(jnp.full((blocks, 3), jnp.nan), top)
  got = sumtree.rebuilt(old, lambda block_A: jnp.asarray(block_BF)[block_A])
  jax.tree.map(np.testing.assert_array_equal, got, sumtree.build(block_BF, top))


def test_tree_is_rebuilt_in_place():
  num_blocks, width = 1 << 18, 64
  block_BF = jax.ShapeDtypeStruct((num_blocks, width), jnp.float32)
  tree = jax.eval_shape(lambda block_BF: sumtree.build(block_BF, 4), block_BF)
  sums = lambda block_A: jnp.sqrt(jnp.outer(block_A, jnp.arange(width)).astype("f"))
  again = jax.jit(lambda tree: sumtree.rebuilt(tree, sums), donate_argnums=0)
  memory = again.lower(tree).compile().memory_analysis()
  assert memory.alias_size_in_bytes >= tree.below_SF.size * 4
  assert memory.temp_size_in_bytes < num_blocks * width * 4 / 4


def test_descent_reads_nodes_in_place():
  num_blocks, width, m = 1 << 20, 16, 64
  block_BF = jax.ShapeDtypeStruct((num_blocks, width), jnp.float32)
  tree = jax.eval_shape(lambda block_BF: sumtree.build(block_BF, 4), block_BF)
  ids = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.int32)
  lowered = descend.lower(tree, first, ids(m), ids(18, m))
  assert lowered.compile().memory_analysis().temp_size_in_bytes < 2**20
