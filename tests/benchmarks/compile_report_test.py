"""Steps compiled for a TPU: no table is copied, and the cost does not grow with V."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("libtpu", reason="needs the extra `compile`")

FEW, MANY = 65_536, 524_288
FLAT = [
  "sampled/pps",
  "sampled/unigram",
  "sampled/lsh_embedding",
  "nce/unigram",
  "spherical/taylor",
]


def compiled(*flags):
  """Rows of the report by program and number of classes."""
  # Flags of the CPU's compiler are none of the TPU's.
  env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
  env |= {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "0"}
  command = [sys.executable, "-m", "benchmarks.compile_report", *map(str, flags)]
  ended = subprocess.run(
    command, env=env, capture_output=True, text=True, check=False, timeout=900
  )
  assert ended.returncode == 0, ended.stderr
  lines = [line for line in ended.stdout.splitlines() if line.startswith("{")]
  rows = map(json.loads, lines)
  return {(row["program"], row["num_classes"]): row for row in rows}


@pytest.mark.parametrize("head", FLAT)
def test_a_step_costs_the_same_for_any_number_of_classes(head):
  rows = compiled("--heads", head, "--classes", FEW, MANY, "--own", 16)
  few, many = rows["step", FEW], rows["step", MANY]
  assert many["copies"] == 0
  assert many["temporary_mb"] <= 1.2 * few["temporary_mb"] + 4
  assert many["accessed_mb"] <= 1.3 * few["accessed_mb"]
  assert many["aliased_mb"] > 6 * few["aliased_mb"]  # eight times the classes


@pytest.mark.parametrize("dim", [16, 200])
def test_narrow_and_odd_rows_with_adam_stay_in_place(dim):
  size = "--classes", FEW, MANY, "--dim", dim, "--optimizer", "adam"
  rows = compiled("--heads", "sampled/pps", *size)
  few, many = rows["step", FEW], rows["step", MANY]
  assert many["copies"] == 0
  assert many["temporary_mb"] <= 1.2 * few["temporary_mb"] + 4
  assert many["accessed_mb"] <= 1.3 * few["accessed_mb"]


def test_without_row_major_formats_the_table_is_copied():
  rows = compiled("--heads", "sampled/pps", "--classes", FEW, "--layout", "default")
  table_mb = FEW * 136 * 4 / 1e6
  assert rows["step", FEW]["copied_mb"] > 1.99 * table_mb


def test_evaluation_holds_no_table_of_logits():
  programs = "--programs", "evaluate", "top_k"
  rows = compiled("--heads", "sampled/pps", "--classes", MANY, *programs)
  logits_mb = 1024 * MANY * 4 / 1e6
  for row in rows.values():
    assert row["copies"] == 0
    assert row["temporary_mb"] < logits_mb / 4
