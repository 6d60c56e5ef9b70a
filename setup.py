"""Packaging metadata.

The lower bounds of dependencies are believed to work; tests run with the newest ones.
"""

import pathlib
import re

from setuptools import find_packages, setup

root = pathlib.Path(__file__).parent
init = root / "largevocab" / "__init__.py"
version = re.search(r'^__version__ = "(.+)"$', init.read_text(), re.MULTILINE)
assert version is not None, f"no __version__ in {init}"

# Commands; each has its own module, whose docstring is the help.
TOOLS = [
  "add_classes",
  "advise",
  "baselines",
  "brown_clusters",
  "clusters_report",
  "fetch",
  "fit_cost_model",
  "gradient_report",
  "keys",
  "negatives_report",
  "plot",
  "product_report",
  "relvar_report",
  "run_sweep",
  "sampler_report",
  "samples_report",
  "similarity_report",
  "step_times",
  "tabulate",
]

setup(
  name="largevocab",
  version=version[1],
  description="Training with very large output spaces, in JAX",
  long_description=(root / "README.md").read_text(encoding="utf-8"),
  long_description_content_type="text/markdown",
  license="Apache-2.0",
  keywords=[
    "jax",
    "flax",
    "sampled softmax",
    "adaptive softmax",
    "negative sampling",
    "noise-contrastive estimation",
    "extreme classification",
    "language modelling",
    "recommender systems",
  ],
  classifiers=[
    "Development Status :: 4 - Beta",
    "Intended Audience :: Developers",
    "Intended Audience :: Science/Research",
    "Operating System :: POSIX",
    "Programming Language :: Python :: 3",
    "Programming Language :: Python :: 3.11",
    "Programming Language :: Python :: 3.12",
    "Topic :: Scientific/Engineering :: Artificial Intelligence",
    "Typing :: Typed",
  ],
  # The configs are beside the package in the repository, and inside it once installed.
  packages=[
    *find_packages(include=["largevocab", "largevocab.*"]),
    "largevocab.configs",
  ],
  package_dir={"largevocab.configs": "configs"},
  entry_points={
    "console_scripts": [
      "largevocab-bench = largevocab.bench.command:cli",
      *(
        f"largevocab-{name.replace('_', '-')} = largevocab.tools.{name}:cli"
        for name in TOOLS
      ),
    ]
  },
  package_data={"largevocab": ["py.typed", "ops/adaptive/cost_models/*.json"]},
  python_requires=">=3.11",
  install_requires=[
    # Heads and samplers need only these (tests/imports_test.py).
    "flax>=0.12",
    "jax>=0.10",
    "numpy>=2",
    "optax>=0.2.8",
    # Training: command line, checkpoints, logs, rank correlation.
    "absl-py>=2.1",
    "ml_collections>=1.1",
    "orbax-checkpoint>=0.12",
    "scipy>=1.15",
    "tensorboard>=2.20",
    "tqdm>=4.67",
    # Data sets. TensorFlow itself is never needed, as files are read by array_record.
    "array_record>=0.8",
    "etils[epath]>=1.9.1",
    "tensorflow-datasets>=4.9.9",
  ],
  extras_require={
    "cuda": ["jax[cuda13]"],
    "cuda12": ["jax[cuda12]"],
    "tpu": ["jax[tpu]"],
    # The TPU compiler, for benchmarks/compile_report.py on a machine without a TPU.
    "compile": ["jax[tpu]"],
    "plot": ["matplotlib>=3.9"],
    # For text in subwords (data.tokenizer).
    "tokenizers": ["tokenizers>=0.23"],
    "profile": ["xprof"],
    # The documentation site, which scripts/docs builds.
    "docs": ["mkdocs>=1.6,<2", "mkdocs-material>=9.6", "mkdocstrings[python]>=1.0"],
    # Libraries that benchmarks/bench.py compares with, if they are installed.
    "peers": ["tensorflow>=2.20", "torch>=2.5"],
    "test": [
      "hypothesis>=6.150",
      "matplotlib>=3.9",
      "pytest>=9",
      "pytest-xdist>=3.8",
      "setuptools>=77",
      "tokenizers>=0.23",
      # Pinned, because a new minor version of these finds new faults in old code.
      "pyrefly==1.4.*",
      "ruff==0.17.*",
    ],
  },
)
