r"""PyTorch's adaptive softmax over an LSTM of PyTorch.

largevocab-bench run ptb \
  --adapter=largevocab.bench.adapters.torch_adaptive:TorchAdaptive ...
"""

import importlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from largevocab.bench.adapter import Device, Given, Step
from largevocab.data.batches import Batch
from largevocab.errors import UserError
from largevocab.models import MODELS

DIVISIONS = (0.1, 0.3)  # of the classes: where the clusters of the tails begin


class TorchAdaptive:
  """`torch.nn.AdaptiveLogSoftmaxWithLoss`, trained by plain gradient descent.

  Classes are in order of decreasing count, as it needs. The network is the LSTM of the
  text tasks; the input rows have a dense gradient.

  Args:
    given: of the benchmark.
    cutoffs: where clusters begin; none: at shares of the classes (`DIVISIONS`).
    div_value: by which each tail is narrower than the one before it.
    device: 'cpu', 'cuda' or another one of PyTorch.

  Raises:
    ImportError: PyTorch is not installed.
    UserError: the task has another network.
  """

  packages = ("torch",)

  def __init__(
    self,
    given: Given,
    cutoffs: Sequence[int] = (),
    div_value: float = 4.0,
    device: str = "cpu",
  ):
    torch: Any = importlib.import_module("torch")
    model, V = given.model, given.data.counts.num_classes
    if not isinstance(model, MODELS["lstm"]):
      raise UserError(
        "this adapter has the LSTM of the text tasks, and no other network"
      )
    torch.manual_seed(given.seed)
    self._torch, self._device, self._clip = torch, device, given.train.clip_norm
    self._rows = torch.nn.Embedding(given.data.num_inputs, model.embed)
    self._lstm = torch.nn.LSTM(
      *(model.embed, model.hidden, model.layers),
      dropout=model.dropout if model.layers > 1 else 0.0,
      batch_first=True,
    )
    self._drop = torch.nn.Dropout(model.dropout)
    self._head = torch.nn.AdaptiveLogSoftmaxWithLoss(
      *(model.hidden, V, list(cutoffs) or [int(V * share) for share in DIVISIONS]),
      div_value=div_value,
    )
    parts = torch.nn.ModuleList([self._rows, self._lstm, self._head, self._drop])
    self._parts = parts.to(device)
    forget = slice(model.hidden, 2 * model.hidden)  # its gates are i, f, g and o
    with torch.no_grad():
      self._rows.weight.uniform_(-model.init_scale, model.init_scale)
      for name, weight in self._lstm.named_parameters():
        if name.startswith("weight"):
          weight.uniform_(-model.init_scale, model.init_scale)
        else:  # one of two biases, which are added
          weight.zero_()
          weight[forget] = model.forget_bias / 2
    self._optimizer = torch.optim.SGD(self._parts.parameters(), lr=1.0)
    self._state: Any = None

  def train(self, steps: Iterable[Step]) -> None:
    self._parts.train()
    for step in steps:
      for group in self._optimizer.param_groups:
        group["lr"] = step.lr
      h_ND, self._state = self._hidden(step.batch, self._state)
      loss = self._head(h_ND, self._labels(step.batch)).loss
      self._optimizer.zero_grad()
      loss.backward()
      if self._clip:
        self._torch.nn.utils.clip_grad_norm_(self._parts.parameters(), self._clip)
      self._optimizer.step()
    if self._device != "cpu":
      self._torch.accelerator.synchronize()

  def evaluate(self, batches: Iterable[Batch], k: int) -> Iterator[np.ndarray]:
    if k:
      raise UserError("this adapter gives probabilities, and no best classes")
    self._parts.eval()
    state = None
    with self._torch.no_grad():
      for batch in batches:
        h_ND, state = self._hidden(batch, state)
        log_p_N = self._head(h_ND, self._labels(batch)).output
        yield -log_p_N.cpu().numpy()

  def device(self) -> Device | None:
    if self._device == "cpu":
      return None
    cuda = self._torch.cuda
    return Device(cuda.get_device_name(), cuda.max_memory_allocated() / 2**20)

  def _hidden(self, batch: Batch, state: Any) -> tuple[Any, Any]:
    """h_ND and the state after a batch, which is no longer differentiated."""
    x_BT = self._torch.tensor(np.asarray(batch.x), device=self._device).long()
    state = None if batch.start else state
    h_BTD, state = self._lstm(self._drop(self._rows(x_BT)), state)
    state = tuple(part.detach() for part in state)
    return self._drop(h_BTD).flatten(0, 1), state

  def _labels(self, batch: Batch) -> Any:
    ids_N = np.asarray(batch.y.ids_NP)[:, 0]
    return self._torch.tensor(ids_N, device=self._device).long()
