"""Settings shared by all tests."""

import gc
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version

# What one test run compiles, the next finds here, and so do programs that tests start.
CACHE = pathlib.Path(__file__).parents[1] / ".pytest_cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

# Tests compile thousands of programs and run each for milliseconds: machine code that
# is made quickly halves the time. Sharding and aliasing are as users have them. Fusion
# is not always: a test of memory may need `xla_cpu_use_fusion_emitters` back.
CODEGEN = (
  "--xla_backend_optimization_level=0",
  "--xla_llvm_disable_expensive_passes=true",
  "--xla_cpu_parallel_codegen_split_count=1",
)
if version("jaxlib").startswith("0.10."):  # others end on a flag that they do not know
  CODEGEN += ("--xla_cpu_use_fusion_emitters=false",)
os.environ.setdefault("XLA_FLAGS", " ".join(CODEGEN))

import hypothesis  # noqa: E402
import jax  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
import scipy.stats  # noqa: E402

# The same examples in every run, however slow the machine.
hypothesis.settings.register_profile("tests", derandomize=True, deadline=None)
hypothesis.settings.load_profile("tests")
jax.config.update("jax_numpy_rank_promotion", "raise")
# Tracing makes millions of objects that stay: to look through them often finds nothing.
gc.set_threshold(50_000, 20, 100)


@pytest.fixture(scope="session")
def on_devices() -> Callable[..., str]:
  """Runs Python with arguments on a CPU that acts as `num` devices; returns stdout."""

  def run(num: int, *args: str, timeout: float = 900) -> str:
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={num}"
    finished = subprocess.run(
      [sys.executable, *args],
      env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
      capture_output=True,
      text=True,
      timeout=timeout,
      check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout

  return run


@pytest.fixture(scope="session")
def on_four_devices(on_devices) -> Callable[..., str]:
  """Runs a program with arguments on a CPU that acts as four devices."""
  return lambda program, *args: on_devices(4, "-c", program, *args)


@pytest.fixture(scope="session")
def chi_square():
  """p-value of independent draws under a law; cells expected below 5 are pooled."""

  def p_value(ids, law_V) -> float:
    law_V = np.asarray(law_V, np.float64) / np.sum(law_V, dtype=np.float64)
    ids = np.asarray(ids).ravel()
    count_V = np.bincount(ids, minlength=len(law_V))
    enough_V = law_V * len(ids) >= 5
    counts = np.append(count_V[enough_V], count_V[~enough_V].sum())
    expected = np.append(law_V[enough_V], law_V[~enough_V].sum()) * len(ids)
    if expected[-1] == 0:
      assert counts[-1] == 0
      counts, expected = counts[:-1], expected[:-1]
    expected *= len(ids) / expected.sum()
    return scipy.stats.chisquare(counts, expected).pvalue

  return p_value


@pytest.fixture(scope="module", autouse=True)
def forget_programs():
  """Clears compiled programs: those of all files would exhaust memory maps."""
  yield
  jax.clear_caches()
