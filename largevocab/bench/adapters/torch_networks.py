"""The tasks' networks in PyTorch, which map batches to h_ND for any output layer.

The formulas and initial scales are those of `largevocab.models`.
"""

from typing import Any

import numpy as np

from largevocab.bench.adapter import Given
from largevocab.bench.adapters.choice import chosen
from largevocab.data.batches import Batch


class _Network:
  """A table of inputs, and the layers over its rows that a subclass defines.

  Missing inputs and padding look up a last row of zeros, which learns nothing. The
  gradient of the table is dense.

  Attributes:
    width: D.
    parts: modules with all parameters.
  """

  def __init__(self, torch: Any, given: Given, device: str):
    self._torch, self._device, self._missing = torch, device, given.data.num_inputs
    self.width, a = given.model.width, given.model.init_scale
    self._drop = torch.nn.Dropout(given.model.dropout)
    self._rows = torch.nn.Embedding(
      self._missing + 1, given.model.embed, padding_idx=self._missing
    )
    with torch.no_grad():
      self._rows.weight[: self._missing].uniform_(-a, a)
    own = self._layers(given.model)
    self.parts = torch.nn.ModuleList([self._rows, self._drop, own]).to(device)

  def __call__(self, batch: Batch, state: Any) -> tuple[Any, Any]:
    """h_ND, and the recurrent state after the batch, which is not differentiated."""
    raise NotImplementedError

  def _layers(self, model: Any) -> Any:
    """A module with the parameters that are not in the table."""
    raise NotImplementedError

  def _ids(self, ids: Any) -> Any:
    known = np.minimum(np.asarray(ids), self._missing)
    return self._torch.tensor(known, device=self._device).long()


class LSTM(_Network):
  """`torch.nn.LSTM`, whose second bias is 0 and is not trained.

  The network of a task has one bias for each gate. If both were trained, their sum
  would learn at twice the rate.
  """

  def _layers(self, model: Any) -> Any:
    torch = self._torch
    self._lstm = torch.nn.LSTM(
      *(model.embed, model.hidden, model.layers),
      dropout=model.dropout if model.layers > 1 else 0.0,
      batch_first=True,
    )
    forget = slice(model.hidden, 2 * model.hidden)  # the gates are i, f, g and o
    with torch.no_grad():
      for name, weight in self._lstm.named_parameters():
        if name.startswith("weight"):
          weight.uniform_(-model.init_scale, model.init_scale)
        else:
          weight.zero_()
          weight.requires_grad_(name.startswith("bias_ih"))
          weight[forget] = model.forget_bias if weight.requires_grad else 0.0
    return self._lstm

  def __call__(self, batch: Batch, state: Any) -> tuple[Any, Any]:
    state = None if batch.start else state
    h_BTD, state = self._lstm(self._drop(self._rows(self._ids(batch.x))), state)
    return self._drop(h_BTD).flatten(0, 1), tuple(part.detach() for part in state)


class MLP(_Network):
  """ReLU layers over the concatenated rows of the last items."""

  def _layers(self, model: Any) -> Any:
    nn = self._torch.nn
    layers = []
    for size in (model.history * model.embed, *[model.hidden] * (model.layers - 1)):
      layer = nn.Linear(size, model.hidden)
      nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
      nn.init.zeros_(layer.bias)
      layers += [layer, nn.ReLU(), self._drop]
    self._own = nn.Sequential(*layers)
    return self._own

  def __call__(self, batch: Batch, state: Any) -> tuple[Any, Any]:
    return self._own(self._drop(self._rows(self._ids(batch.x)).flatten(1))), state


class Bag(_Network):
  """Sums of the rows of features, weighted by their values."""

  def _layers(self, model: Any) -> Any:
    torch = self._torch
    self._b = torch.nn.Parameter(torch.zeros(model.embed))
    return torch.nn.ParameterList([self._b])

  def __call__(self, batch: Batch, state: Any) -> tuple[Any, Any]:
    bag: Any = batch.x
    values_BF = self._torch.tensor(bag.values_BF, device=self._device).float()
    sums_BE = self._torch.nn.functional.embedding_bag(
      *(self._ids(bag.ids_BF), self._rows.weight),
      per_sample_weights=values_BF,
      mode="sum",
      padding_idx=self._missing,
    )
    return self._drop(self._torch.relu(sums_BE + self._b)), state


NETWORKS = {"LSTM": LSTM, "MLP": MLP, "Bag": Bag}  # by class of `largevocab.models`


def network(torch: Any, given: Given, device: str) -> _Network:
  """The network that `given.model` describes; raises a UserError if there is none."""
  return chosen("network", type(given.model).__name__, NETWORKS)(torch, given, device)
