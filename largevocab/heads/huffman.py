"""Binary hierarchical softmax over a Huffman tree.

The letter L stands for the depth of the tree.
"""

from collections.abc import Callable
from dataclasses import field
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from largevocab.fields import Dtype, settings
from largevocab.heads.base import (
  ROWS,
  WHOLE,
  HeadStep,
  check_grads,
  head_step,
  read_batch,
  read_training_batch,
  total_weight,
)
from largevocab.heads.linear import LinearHead
from largevocab.labels import Counts, Targets, as_counts
from largevocab.ops import shards
from largevocab.ops.activations import Activations, activations, knows_activations
from largevocab.ops.class_blocks import Blocks
from largevocab.ops.softmax.chunks import wide
from largevocab.ops.softmax.log_partition import weighted_mean
from largevocab.ops.tree.huffman import (
  Tree,
  huffman,
  huffman_blocks,
  tree_loss,
  tree_nll,
  ways,
)
from largevocab.ops.tree.huffman_top_k import tree_top_k
from largevocab.rows import SGD, RowGrads, RowOptimizer, Table, sq_norm


@knows_activations
class HuffmanState(NamedTuple):
  """Rows of the inner nodes, and the tree.

  Attributes:
    nodes: [V, D'], a row for each of V - 1 inner nodes, and one unused row.
    tree: the Huffman tree.
    activations: the activations that the state is for; None: not known. Static.
  """

  nodes: Table
  tree: Tree
  activations: Activations | None = None


@settings
class Huffman(LinearHead):
  """p(c | h) = product of sigma(+-<w_node, h>) over the nodes on the path to class c.

  The head is exact and normalised over all classes, but it is not the same model as a
  full softmax, and usually a worse one. Training reads and writes only the rows on the
  paths to the true classes: about log2 of the unigram perplexity for each class.

  Attributes:
    dtype: type of the operands of matrix products, 'float32' or 'bfloat16'. Sums and
      log-probabilities are float32, and rows are of `optimizer.row_dtype`.
    optimizer: optimiser of the rows.

  Source: Morin and Bengio 2005; Mikolov et al. 2013, section 2.1, for Huffman's tree.

  On several devices, each block of classes has a tree, and a tree over the blocks joins
  them. Paths are then longer, on average by less than two levels.

  Cost: with L the depth of the tree (20 to 30 for words), products of 3 N P L D a step
    and min(N P L, V) rows to update; 8 bytes a class for the tree; paths are computed
    when needed. `top_k` searches down the tree and visits at most all N V classes.

  >>> state = Huffman(bias=False).init(jax.random.key(0), [1, 5, 3, 4], 2)
  >>> state.nodes.w_VD.shape, state.tree.num_L.tolist()
  ((4, 2), [1, 1, 2])
  """

  row_sparse: ClassVar[bool] = True

  dtype: Dtype = "float32"
  optimizer: RowOptimizer = field(default_factory=SGD)

  def init(self, key: jax.Array, counts: Counts | ArrayLike, dim: int) -> HuffmanState:
    count_V, given = as_counts(counts).unigram_V, Activations(dim)
    w_VD = self.random_rows(key, len(count_V), given.dim)
    return HuffmanState(self.optimizer.init(w_VD), huffman(count_V), given)

  def init_blocks(
    self, key: jax.Array, counts: Counts, dim: int, blocks: Blocks
  ) -> Callable[[int], HuffmanState]:
    """Each block has a tree, and its last row is one of the tree over blocks."""
    trees, given = huffman_blocks(counts.unigram_V, blocks), Activations(dim)

    def of_block(number):
      of_rows = jax.random.fold_in(key, number)
      nodes = self.optimizer.init(self.random_rows(of_rows, blocks.size, given.dim))
      return HuffmanState(nodes, jax.tree.map(jnp.array, trees[number]), given)

    return of_block

  def sharding(self, state: HuffmanState) -> HuffmanState:
    """Links of classes and nodes are on the devices that have their rows."""
    tree = jax.tree.map(lambda _: WHOLE, state.tree)
    tree = tree._replace(above_class_V=ROWS, above_node_V=ROWS)
    return super().sharding(state)._replace(tree=tree)

  def backward(
    self, state: HuffmanState, h_ND: jax.Array, y: Targets, key: jax.Array
  ) -> HeadStep:
    wide_ND, y = read_training_batch(h_ND, y, len(state.nodes.w_VD), state.activations)
    x_ND, mean_w_NP = self.features(wide_ND), y.w_NP / total_weight(y)
    loss, dx_ND, rows = tree_loss(
      x_ND, state.nodes.w_VD, state.tree, y.ids_NP, mean_w_NP, dtype=self.dtype
    )
    grads = RowGrads(*rows)
    return head_step(loss, dx_ND, h_ND, grads, self.sq_norm(state, grads))

  def sq_norm(self, state: HuffmanState, grads: RowGrads) -> jax.Array:
    return shards.psum(sq_norm(grads))

  def update(
    self, state: HuffmanState, grads: RowGrads, lr: ArrayLike, scale: ArrayLike = 1.0
  ) -> HuffmanState:
    check_grads(grads, RowGrads)
    return state._replace(nodes=self.optimizer.update(state.nodes, grads, lr, scale))

  def refresh(self, state: HuffmanState, key: jax.Array) -> HuffmanState:
    """Decays all rows up to now, if the optimiser's weight decay is decoupled."""
    return state._replace(nodes=self.optimizer.settled(state.nodes))

  def evaluate(
    self, state: HuffmanState, h_ND: jax.Array, y: Targets
  ) -> dict[str, jax.Array]:
    """{'nll': f32[N]}, exact, in nats."""
    h_ND, y = read_batch(h_ND, y, len(state.nodes.w_VD), state.activations)
    x_ND, w_VD = self.features(h_ND), state.nodes.w_VD
    nll_NP = tree_nll(x_ND, w_VD, state.tree, y.ids_NP, dtype=self.dtype)
    return {"nll": weighted_mean(nll_NP, y.w_NP)}

  def top_k(
    self, state: HuffmanState, h_ND: jax.Array, k: int
  ) -> tuple[jax.Array, jax.Array]:
    """The k most probable classes and their log-probabilities, best first."""
    h_ND, w_VD = activations(h_ND, state.activations), state.nodes.w_VD
    x_ND = self.features(wide(h_ND))
    return tree_top_k(x_ND, w_VD, state.tree, k, dtype=self.dtype)

  def class_rows(self, state: HuffmanState, ids_R: jax.Array) -> jax.Array:
    """Half the signed sum of the rows on the path to a class.

    It is the gradient of log p(c | h) at h = 0. No single row gives the score of a
    class.
    """
    above_LR = ways(state.tree, shards.own_rows(ids_R, len(state.nodes.w_VD)))
    sign_LR = jnp.where(above_LR < 0, 0, 2 * (above_LR % 2) - 1)
    rows_LRD = state.nodes.rows_at(above_LR // 2, mode="clip")
    return shards.psum(jnp.sum(sign_LR[:, :, None] * rows_LRD, axis=0)) / 2
