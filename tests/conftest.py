"""Settings shared by all tests."""

import os
import pathlib

# What one test run compiles, the next finds here, and so do programs that tests start.
CACHE = pathlib.Path(__file__).parents[1] / ".pytest_cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# Tests compile many programs and run each for a moment: half of the time was compiling.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

import jax  # noqa: E402

jax.config.update("jax_numpy_rank_promotion", "raise")
