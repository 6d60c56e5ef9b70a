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
  "sampled/midx",
  "nce/unigram",
  "spherical/taylor",
]


def compiled(*flags):
  """Rows of the report by program and number of classes."""
  # The TPU compiler does not accept flags of the CPU compiler.
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
def test_step_cost_does_not_depend_on_the_number_of_classes(head):
  rows = compiled("--heads", head, "--classes", FEW, MANY, "--own", 16)
  few, many = rows["step", FEW], rows["step", MANY]
  assert many["copies"] == 0
  assert many["temporary_mb"] <= 1.2 * few["temporary_mb"] + 4
  assert many["accessed_mb"] <= 1.3 * few["accessed_mb"]
  assert many["aliased_mb"] > 6 * few["aliased_mb"]  # eight times the classes


@pytest.mark.parametrize("head", ["sampled/sce", "sampled/rece"])
def test_samplers_that_read_all_rows_make_no_copy(head):
  size = "--classes", MANY, "--examples", 128, "--own", 16
  row = compiled("--heads", head, *size)["step", MANY]
  half_table_mb = MANY * 136 * 2 / 1e6  # in bfloat16
  assert row["copies"] == 0
  assert row["temporary_mb"] < half_table_mb / 2


@pytest.mark.parametrize(
  ("head", "dim"),
  [
    ("sampled/pps", 16),
    ("sampled/pps", 200),
    ("spherical/taylor", 16),
    ("huffman", 16),
    ("huffman", 200),
  ],
)
def test_narrow_and_odd_rows_with_adam_stay_in_place(head, dim):
  size = "--classes", FEW, MANY, "--dim", dim, "--optimizer", "adam"
  rows = compiled("--heads", head, *size)
  few, many = rows["step", FEW], rows["step", MANY]
  assert many["copies"] == 0
  assert many["temporary_mb"] <= 1.2 * few["temporary_mb"] + 4
  assert many["accessed_mb"] <= 1.3 * few["accessed_mb"]


@pytest.mark.parametrize("head", ["sampled/quadratic", "sampled/sce"])
def test_loops_over_many_narrow_rows_read_in_place(head):
  size = "--classes", MANY, "--dim", 16, "--optimizer", "adam"
  assert compiled("--heads", head, *size)["step", MANY]["copies"] == 0


def test_table_is_copied_without_row_major_formats():
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


def test_clusters_of_odd_size_are_read_without_copies_of_the_table():
  V, programs = 300_000, ("--programs", "step", "top_k")
  rows = compiled("--heads", "hierarchical", "--classes", V, *programs)
  for row in rows.values():
    assert row["temporary_mb"] < V * 136 * 4 / 1e6 / 16


def test_hash_tables_are_rebuilt_without_a_copy_of_the_class_table():
  head = "sampled/lsh_embedding"
  rows = compiled("--heads", head, "--classes", FEW, "--programs", "refresh")
  assert rows["refresh", FEW]["copied_mb"] < FEW * 136 * 4 / 1e6 / 16


@pytest.mark.parametrize(("mesh", "chips"), [("2x2", 4), ("2x4", 8), ("4x4", 16)])
def test_bytes_sent_by_chips_match_the_page(mesh, chips):
  N, D, P = 2048, 128, 1
  size = "--mesh", mesh, "--classes", FEW, MANY, "--examples", N, "--dim", D
  rows = compiled("--heads", "sampled/pps", *size)
  numbers = N * (D + 2 * P) + 2 * N * (2 + P) + N * D  # docs/devices.md
  for row in rows.values():
    assert row["copies"] == 0
    want_mb = 4 * numbers * (chips - 1) / chips / 1e6
    assert row["sent_mb"] == pytest.approx(want_mb, rel=0.02)
    assert row["formula_mb"] == pytest.approx(want_mb, rel=1e-3)
  few, many = rows["step", FEW], rows["step", MANY]
  assert many["temporary_mb"] <= 1.2 * few["temporary_mb"] + 4
  assert many["aliased_mb"] > 6 * few["aliased_mb"]
  # Rows with a bias take 256 columns of memory.
  assert many["aliased_mb"] < 1.1 * MANY / chips * 256 * 4 / 1e6


def test_exact_softmax_sends_no_rows_on_a_mesh():
  programs = "--programs", "step", "evaluate", "top_k"
  rows = compiled("--heads", "full", "--mesh", "2x2", "--classes", FEW, *programs)
  for row in rows.values():
    assert row["sent_mb"] == pytest.approx(row["formula_mb"], rel=0.02)
    assert row["sent_mb"] < FEW / 4 * 128 * 4 / 1e6 / 4  # of a chip's rows
