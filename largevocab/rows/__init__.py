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
from largevocab.rows.optimizers import (
  OPTIMIZERS,
  SGD,
  Adagrad,
  Adam,
  Momentum,
  RowOptimizer,
  RowwiseAdagrad,
)

__all__ = [
  "OPTIMIZERS",
  "SGD",
  "Adagrad",
  "Adam",
  "DeviceGrads",
  "Momentum",
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
