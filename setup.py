"""Packaging metadata. Lower bounds are believed to work; tests run on the newest."""

import pathlib
import re

from setuptools import find_packages, setup

root = pathlib.Path(__file__).parent
init = root / "largevocab" / "__init__.py"
version = re.search(r'^__version__ = "(.+)"$', init.read_text(), re.MULTILINE)
assert version is not None, f"no __version__ in {init}"

# Commands, each in a module of its own, which has the help.
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
  # The configs are beside the package, and within it once it is installed.
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
    # All that heads and samplers need (tests/imports_test.py).
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
    # Data sets. TensorFlow itself is never needed: files are array_record's.
    "array_record>=0.8",
    "tensorflow-datasets>=4.9.9",
  ],
  extras_require={
    "cuda": ["jax[cuda13]"],
    "cuda12": ["jax[cuda12]"],
    "tpu": ["jax[tpu]"],
    # The compiler for TPU, for benchmarks/compile_report.py on a machine without one.
    "compile": ["jax[tpu]"],
    "plot": ["matplotlib>=3.9"],
    # For text in subwords, data.tokenizer.
    "tokenizers": ["tokenizers>=0.23"],
    "profile": ["xprof"],
    # The site of the documentation, which scripts/docs builds.
    "docs": ["mkdocs>=1.6,<2", "mkdocs-material>=9.6", "mkdocstrings[python]>=1.0"],
    # What benchmarks/bench.py measures us against, where it is there.
    "peers": ["tensorflow>=2.20", "torch>=2.5"],
    "test": [
      "hypothesis>=6.150",
      "matplotlib>=3.9",
      "pytest>=9",
      "pytest-xdist>=3.8",
      "setuptools>=77",
      "tokenizers>=0.23",
      # A new minor version of these finds new faults in old code.
      "pyrefly==1.4.*",
      "ruff==0.17.*",
    ],
  },
)
