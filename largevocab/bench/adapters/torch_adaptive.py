r"""PyTorch's adaptive softmax over a PyTorch network.

largevocab-bench run ptb \
  --adapter=largevocab.bench.adapters.torch_adaptive:TorchAdaptive ...
"""

import importlib
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from largevocab.bench.adapter import Device, Given, Step
from largevocab.bench.adapters.choice import chosen
from largevocab.bench.adapters.ranks import Ranks
from largevocab.bench.adapters.torch_networks import network
from largevocab.data.batches import Batch
from largevocab.errors import Diverged

DIVISIONS = (0.1, 0.3)  # shares of the classes at which the tail clusters begin
# Names in `torch.optim`, and their arguments. Gradients are means over the batch, in
# which most classes are rare. Adagrad's first step of a row is about as long as its
# second.
OPTIMIZERS: dict[str, tuple[str, dict[str, float]]] = {
  "sgd": ("SGD", {}),
  "adagrad": ("Adagrad", {"initial_accumulator_value": 1e-6}),
  "adam": ("Adam", {}),
}
CHUNK = 128  # number of examples whose probabilities of all classes are held at a time


class TorchAdaptive:
  """`torch.nn.AdaptiveLogSoftmaxWithLoss`, with an optimiser of `torch.optim`.

  The loss of an example with several labels is the mean over the labels. It costs as
  much as one example per label. Gradients are dense.

  Args:
    given: what the benchmark gives.
    cutoffs: where clusters begin; if empty, at shares of the classes (`DIVISIONS`).
    div_value: factor by which each tail is narrower than the one before it.
    optimizer: 'sgd', 'adagrad' or 'adam'.
    device: 'cpu', 'cuda' or 'cuda:1'.

  Raises:
    ImportError: PyTorch is not installed.
    UserError: the task has another network, or there is no such optimiser.
  """

  packages = ("torch",)

  def __init__(
    self,
    given: Given,
    cutoffs: Sequence[int] = (),
    div_value: float = 4.0,
    optimizer: str = "sgd",
    device: str = "cpu",
  ):
    name, fields = chosen("optimizer", optimizer, OPTIMIZERS)
    torch: Any = importlib.import_module("torch")
    torch.manual_seed(given.seed)
    self._torch, self._device, self._clip = torch, device, given.train.clip_norm
    counts = given.data.counts
    self._ranks = Ranks(counts.unigram_V)
    self._network = network(torch, given, device)
    self._head = torch.nn.AdaptiveLogSoftmaxWithLoss(
      *(self._network.width, counts.num_classes),
      list(cutoffs) or [int(counts.num_classes * share) for share in DIVISIONS],
      div_value=div_value,
    ).to(device)
    self._parts = torch.nn.ModuleList([self._network.parts, self._head])
    kind = getattr(torch.optim, name)
    self._optimizer = kind(self._parts.parameters(), lr=1.0, **fields)
    self._state: Any = None
    self._num_steps = 0

  def train(self, steps: Iterable[Step]) -> None:
    """Takes all steps; raises `Diverged` after them if a loss was not finite."""
    self._parts.train()
    total: Any = 0.0
    for step in steps:
      for group in self._optimizer.param_groups:
        group["lr"] = step.lr
      h_ND, self._state = self._network(step.batch, self._state)
      example_R, rank_R, share_R = map(self._tensor, self._ranks.pairs(step.batch.y))
      loss = -(share_R * self._head(h_ND[example_R], rank_R).output).sum()
      self._optimizer.zero_grad()
      loss.backward()
      if self._clip:
        self._torch.nn.utils.clip_grad_norm_(self._parts.parameters(), self._clip)
      self._optimizer.step()
      total += loss.detach()
      self._num_steps += 1
    if not math.isfinite(total):  # waits for the last step
      raise Diverged("the loss is not finite", self._num_steps)

  def evaluate(self, batches: Iterable[Batch], k: int) -> Iterator[np.ndarray]:
    self._parts.eval()
    state = None
    with self._torch.no_grad():
      for batch in batches:
        h_ND, state = self._network(batch, state)
        yield self._best(h_ND, k) if k else self._nll(h_ND, batch)

  def device(self) -> Device | None:
    if self._device == "cpu":
      return None
    cuda = self._torch.cuda
    peak = cuda.max_memory_allocated(self._device)
    return Device(cuda.get_device_name(self._device), peak / 2**20)

  def _nll(self, h_ND: Any, batch: Batch) -> np.ndarray:
    """-log p of the first label, f32[N]."""
    rank_N = self._tensor(self._ranks.of(np.asarray(batch.y.ids_NP)[:, 0]))
    return -self._head(h_ND, rank_N).output.cpu().numpy()

  def _best(self, h_ND: Any, k: int) -> np.ndarray:
    """The k most probable classes, best first, i32[N, k]."""
    parts = [
      self._head.log_prob(h_CD).topk(k).indices.cpu().numpy()
      for h_CD in h_ND.split(CHUNK)
    ]
    return self._ranks.classes(np.concatenate(parts))

  def _tensor(self, array: np.ndarray) -> Any:
    return self._torch.tensor(array, device=self._device)
