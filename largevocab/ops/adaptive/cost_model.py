"""Cost models: fitted formulas for the time of a step on a set of classes.

`largevocab-fit-cost-model` measures a device and writes a file. The files of this
package are in `cost_models` next to this module. They are never changed, since resumed
runs must get the same clusters: a new fit is a new file.
"""

import dataclasses
import json
import os
import pathlib
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike

from largevocab import atomic
from largevocab.errors import UserError
from largevocab.fields import Between, Count, CountOrNone, declared, settings

FITTED = pathlib.Path(__file__).with_name("cost_models")
_SCRIPT = "largevocab/tools/fit_cost_model.py"
_Measured = Annotated[float, Between(0, 1e30)]


@settings
class Fit:
  """Error of a fitted formula.

  Attributes:
    points: number of measurements.
    rms_error: root mean square of log(predicted / measured).
    worst_error: the largest absolute value of log(predicted / measured).
  """

  points: CountOrNone
  rms_error: _Measured
  worst_error: _Measured


@settings
class ProductTime(Fit):
  """g(k, B) = max(c + rate k0 B0, c + rate k B) of h_BD @ w_kD.T at one width.

  Attributes:
    dim: the width, D.
    constant: c, seconds.
    rate: seconds per logit.
    least: k0 B0; fewer logits take no less time.

  Source: Grave et al. 2017, equation 7.

  >>> g = ProductTime(9, 0.0, 0.0, dim=64, constant=1.0, rate=0.5, least=10.0)
  >>> g(k=np.array([1, 100]), B=2).tolist()
  [6.0, 101.0]
  """

  dim: Count
  constant: _Measured
  rate: _Measured
  least: _Measured

  def __call__(self, k: ArrayLike, B: ArrayLike) -> np.ndarray:
    logits = np.multiply(k, np.asarray(B, np.float64))
    return self.constant + self.rate * np.maximum(self.least, logits)


@settings
class StepTime(Fit):
  """t(k, B, d) = c + (logit + product d) k B + row k d + far max(0, k d - near).

  Time of a training step on k classes with rows of width d and B examples: loss,
  gradients, and an update of all rows.

  Attributes:
    constant: c, seconds.
    logit: seconds per logit, independent of the width: exponentials and the like.
    product: seconds per logit and number of a row.
    row: seconds per number of a row, independent of B: read it, write its gradient,
      update it.
    far: additional time per number of a row that does not fit in the cache.
    near: how many numbers fit in the cache.

  Source: Grave et al. 2017, equation 7, extended by other widths and by the time for
    the rows, which dominates if few examples reach a cluster. Terms are added: on a CPU
    their maximum, as in the paper, predicts no better.

  >>> t = StepTime(9, 0.0, 0.0, constant=1.0, logit=2.0, product=1.0, row=0.5, far=1.0,
  ...              near=100.0)
  >>> t(k=np.array([1, 100]), B=2, d=4).tolist()
  [15.0, 1701.0]
  """

  constant: _Measured
  logit: _Measured
  product: _Measured
  row: _Measured
  far: _Measured
  near: _Measured

  def __call__(self, k: ArrayLike, B: ArrayLike, d: ArrayLike) -> np.ndarray:
    k, B, d = (np.asarray(x, np.float64) for x in (k, B, d))
    logits = (self.logit + self.product * d) * k * B
    rows = self.row * k * d + self.far * np.maximum(0, k * d - self.near)
    return self.constant + logits + rows


@settings
class CostModel:
  """Formulas fitted on one device.

  Attributes:
    platform: 'cpu', 'gpu' or 'tpu'.
    device: name of the device.
    dtype: type of rows and activations.
    date: date of the fit, ISO 8601.
    jax: version of JAX.
    product: time of one matrix product.
    step: time of a training step.
  """

  platform: str
  device: str
  dtype: str
  date: str
  jax: str
  product: ProductTime
  step: StepTime

  def save(self, path: pathlib.Path) -> None:
    """Writes a file that `load` reads."""
    atomic.write_text(path, json.dumps(dataclasses.asdict(self), indent=1) + "\n")


def names() -> list[str]:
  """Names of the models in this package, PLATFORM-DTYPE-DATE.

  >>> "cpu-float32-2026-11" in names()
  True
  """
  return sorted(path.stem for path in FITTED.glob("*.json"))


def load(name: str) -> CostModel:
  """A fitted cost model.

  Args:
    name: name of a model in this package, such as 'cpu-float32-2026-11'; or the path of
      a file that ends in .json.

  Raises:
    UserError: there is no such model, or the file is damaged.

  >>> t = load("cpu-float32-2026-11").step
  >>> bool(t(k=100, B=8, d=64) < t(k=900, B=8, d=64))
  True
  """
  path = pathlib.Path(os.path.expanduser(name))
  if path.suffix != ".json":
    if name not in names() and path.is_file():
      raise UserError(
        f"cost model {name} is a file whose name does not end in .json: rename it"
      )
    if name not in names():
      raise UserError(
        f"there is no cost model {name!r}: use one of {', '.join(names())}, or run "
        f"{_SCRIPT} on the device and use the path of the .json file that it writes"
      )
    path = FITTED / f"{name}.json"
  try:
    content = json.loads(path.read_text())
  except OSError as error:
    raise UserError(
      f"cost model {path} cannot be read ({error.strerror}): {_SCRIPT} writes one"
    ) from None
  except (ValueError, RecursionError) as error:
    raise UserError(
      f"cost model {path} is not JSON ({error}): write it again with {_SCRIPT}"
    ) from None
  return _build(CostModel, content, str(path))


def _build(cls: Any, content: Any, where: str) -> Any:
  """An instance of one of the classes above from parsed JSON."""
  fields = {field.name: field.type for field in dataclasses.fields(cls)}
  expected = declared(cls)
  if not isinstance(content, dict) or content.keys() != fields.keys():
    raise UserError(
      f"cost model {where} must have the keys {', '.join(fields)} and no others: "
      f"write it again with {_SCRIPT}"
    )
  values = {}
  for key, kind in fields.items():
    value = content[key]
    if dataclasses.is_dataclass(kind):
      value = _build(kind, value, f"{where}: {key}")
    else:
      value = expected[key].read(f"cost model {where}: {key}", value)
    values[key] = value
  return cls(**values)
