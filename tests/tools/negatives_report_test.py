"""The report on how informative negatives are, in cases with known answers."""

import json
import pathlib

import numpy as np
import pytest

from largevocab import config, main
from largevocab.errors import UserError
from largevocab.tools import negatives_report
from largevocab.tools.reports.positions import positions_of
from largevocab.training.state import restore

REPOSITORY = pathlib.Path(negatives_report.__file__).parents[2]
M = 12


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
  """A run on documents with several labels each, in varying numbers."""
  path = tmp_path_factory.mktemp("run")
  given = f"--config={REPOSITORY}/configs/xmlc.py:full,runlocal"
  flags = [f"--workdir={path}", "--config.head.init_scale=3.0"]
  assert main.run(["main", given, *flags]) == 0
  return str(path)


def ordered_softmax(workdir):
  """For each example, the softmax over its negative classes, largest first."""
  exp = config.build(config.of_workdir(workdir))
  data, state = restore(exp, workdir, "latest")
  batches = data.evaluation_batches("valid", exp.eval.batch_size, exp.eval.unroll)
  num_classes = data.counts.num_classes
  h_ND, y = positions_of(exp, state, batches, 20, num_classes)
  o_NV = np.asarray(exp.head.features(h_ND) @ state.head.table.w_VD.T, np.float64)
  rows = []
  for o_V, ids_P in zip(o_NV, np.asarray(y.ids_NP), strict=True):
    others = np.delete(o_V, ids_P[ids_P < num_classes])
    assert len(others) < num_classes
    p = np.exp(others - others.max())
    rows.append(-np.sort(-p / p.sum()))
  return rows


@pytest.mark.long
def test_figures_match_the_softmax(workdir, tmp_path):
  output = tmp_path / "results.jsonl"
  samplers = [f"top_k:num_samples={M}", f"uniform:num_samples={M}:per_example=true"]
  flags = [f"--workdir={workdir}", f"--output={output}", "--positions=20"]
  assert negatives_report.main([*flags, "--draws=100", *samplers]) == 0
  top, uniform = map(json.loads, output.read_text().splitlines())
  rows = ordered_softmax(workdir)

  # Sometimes true classes are among the m best, which leaves fewer negatives.
  assert M - 5 < top["classes"] <= M
  assert top["rank"] == pytest.approx((top["classes"] + 1) / 2, rel=0.05)
  assert np.mean([p[: M - 5].sum() for p in rows]) < top["mass"]
  assert top["mass"] <= np.mean([p[:M].sum() for p in rows]) + 1e-9
  assert top["top10"] > 0.8

  # Each of the other classes is drawn with the same probability.
  num = np.mean([len(p) for p in rows])
  assert uniform["rank"] == pytest.approx((num + 1) / 2, rel=0.1)
  assert uniform["mass"] == pytest.approx(uniform["classes"] / num, rel=0.3)
  assert uniform["mass"] < 0.6 * top["mass"]


def test_wrong_arguments_are_named(workdir):
  with pytest.raises(UserError, match="is not a field"):
    negatives_report.main([f"--workdir={workdir}", "uniform:tables=5"])
  with pytest.raises(UserError, match="--draws=0"):
    negatives_report.main([f"--workdir={workdir}", "--draws=0", "uniform"])
