"""Row-sparse gradients, tables, and optimisers that update only the touched rows."""

from largevocab.rows.carry import carry_rows
from largevocab.rows.grads import (
  DeviceGrads,
  RowGrads,
  Table,
  accumulate,
  added,
  checked,
  looked_up_grads,
  row_grads,
  sq_norm,
)
from largevocab.rows.optax_rows import AdamW, Lion, OptaxRows, RMSProp
from largevocab.rows.optimizers import (
  SGD,
  Adagrad,
  Adam,
  Momentum,
  RowOptimizer,
  RowwiseAdagrad,
)

OPTIMIZERS = {
  "sgd": SGD,
  "momentum": Momentum,
  "adagrad": Adagrad,
  "rowwise_adagrad": RowwiseAdagrad,
  "adam": Adam,
  "adamw": AdamW,
  "lion": Lion,
  "rmsprop": RMSProp,
}

__all__ = [
  "OPTIMIZERS",
  "SGD",
  "Adagrad",
  "Adam",
  "AdamW",
  "DeviceGrads",
  "Lion",
  "Momentum",
  "OptaxRows",
  "RMSProp",
  "RowGrads",
  "RowOptimizer",
  "RowwiseAdagrad",
  "Table",
  "accumulate",
  "added",
  "carry_rows",
  "checked",
  "looked_up_grads",
  "row_grads",
  "sq_norm",
]
