"""The report on products: measuring, fitting, writing and drawing."""

import functools
import pathlib

import numpy as np
import pytest

from largevocab.errors import UserError
from largevocab.ops.adaptive.cost_model import ProductTime
from largevocab.tools import plot, product_report
from largevocab.tools.fit_cost_model import ProductSize
from largevocab.tools.reports import measure
from largevocab.tools.sweeps import records, sweepfile
from largevocab.tools.sweeps.records import measured_here
from largevocab.tools.tables import results_table

TRUE = ProductTime(0, 0.0, 0.0, dim=16, constant=2e-5, rate=1e-8, least=4000.0)
ROOT = pathlib.Path(product_report.__file__).parents[2]


def test_grid_leaves_out_sizes_that_are_too_large():
  sizes = product_report.grid([10**6, 4, 4, 1], [2560, 8], 512, "cpu")
  assert sizes == [ProductSize(k, B, 512) for B in (8, 2560) for k in (1, 4)]
  assert ProductSize(10**5, 2560, 512) in product_report.grid(
    [10**5], [2560], 512, "gpu"
  )


def test_records_hold_the_times_and_the_fitted_curve(monkeypatch, tmp_path):
  """With times by the formula, the fit recovers its constants; points are drawn."""
  monkeypatch.setattr(
    product_report, "product_seconds", lambda size, dtype: float(TRUE(size.k, size.B))
  )
  output = tmp_path / "results.jsonl"
  flags = ["--dim=16", f"--output={output}", "--examples", "8", "64"]
  for _ in range(2):  # the second call replaces the records of the first
    assert product_report.main(flags) == 0
  rows = records.load(output)
  assert len(rows) == 2 * len(product_report.CLASSES)
  ms, predicted_ms = (
    np.array([row[key] for row in rows]) for key in ("ms", "predicted_ms")
  )
  want = [1e3 * TRUE(row["k"], row["B"]) for row in rows]
  np.testing.assert_allclose(ms, want)
  np.testing.assert_allclose(predicted_ms, want, rtol=0.01)
  drawn = sweepfile.load(ROOT / "experiments/product_time/sweep.py").figures[0]
  (lines,) = plot.panels_of(rows, drawn).values()
  assert {line.label: len(line.points) for line in lines} == {8: 10, 64: 10}


def test_report_measures_on_this_device(monkeypatch, capsys):
  monkeypatch.setattr(measure, "LEAST_SECONDS", 0.0)
  flags = ["--dim=8", "--examples", "2", "4", "--classes", "1", "16"]
  assert product_report.main(flags) == 0
  assert "| B=4, k=16 | 16 | 4 | 8 |" in capsys.readouterr().out


def test_too_few_sizes_are_reported():
  with pytest.raises(UserError, match="only 1 sizes"):
    product_report.main(["--classes", "1", "--examples", "1"])
  with pytest.raises(UserError, match="--classes=0: must be positive"):
    product_report.main(["--classes", "0"])


def test_rows_of_two_devices_are_tabulated(monkeypatch, tmp_path):
  monkeypatch.setattr(product_report, "product_seconds", lambda size, dtype: 1e-3)
  about = measured_here()
  output = tmp_path / "results.jsonl"
  flags = ["--dim=16", "--examples", "8", "--classes", *"1234", f"--output={output}"]
  for device, dtype in (("a", "float32"), ("b", "float32"), ("b", "bfloat16")):
    here = functools.partial(dict, about, device=device)
    monkeypatch.setattr(product_report, "measured_here", here)
    assert product_report.main([*flags, f"--dtype={dtype}"]) == 0
  rows = records.load(output)
  assert len(results_table.report(rows, ["ms"]).splitlines()) == 2 + 12 + 2
