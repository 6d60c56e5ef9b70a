"""Absent accelerators, for programs that are compiled but not run."""

import os

import jax
import numpy as np
from jax._src import xla_bridge
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

TPUS = {"v5e": "v5e:2x2", "v5p": "v5p:2x2x1", "v6e": "v6e:2x2"}
DEVICES = (*TPUS, "h100")
# Keeps the libraries from looking for devices, and from logging that there are none.
_TPU = {
  "TPU_SKIP_MDS_QUERY": "1",
  "TPU_STDERR_LOG_LEVEL": "3",
  "TPU_MIN_LOG_LEVEL": "3",
  "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
_GPU = {
  "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
  "CUDA_VISIBLE_DEVICES": "",
  "XLA_FLAGS": "--xla_gpu_autotune_level=0",  # there is nothing to tune on
}
_H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
  shared_memory_per_core: 233472 threads_per_core_limit: 2048 core_count: 132
  fpus_per_core: 128 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
  block_dim_limit_z: 65535 memory_bandwidth: 3352320000000 l2_cache_size: 52428800
  clock_rate_ghz: 1.98 device_memory_size: 84929347584
  shared_memory_per_block_optin: 232448 cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
runtime_version { major: 12 minor: 9 patch: 0 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""


def place(device: str) -> NamedSharding:
  """The sharding on one chip of a device of `DEVICES`; see `chips`."""
  one = np.array(chips(device)[:1])
  return NamedSharding(Mesh(one, ("chip",)), PartitionSpec())


def chips(device: str, shape: str | None = None) -> list[jax.Device]:
  """The chips of a device of `DEVICES`, connected in a shape such as '4x4'.

  The default is the smallest shape. From here on, JAX reports the backend of the
  device, so that programs are those that would run there. Call this before anything is
  computed, and for only one device per process.
  """
  is_tpu = device in TPUS
  for key, value in (_TPU if is_tpu else _GPU).items():
    os.environ.setdefault(key, value)
  if is_tpu:
    name = f"{device}:{shape}" if shape else TPUS[device]
    topology = topologies.get_topology_desc(topology_name=name, platform="tpu")
  else:
    # The plug-in calls its platform cuda, and JAX calls it gpu.
    canonical = xla_bridge.canonicalize_platform
    xla_bridge.canonicalize_platform = lambda name: (
      "cuda" if name in ("gpu", "cuda") else canonical(name)
    )
    jax.devices()
    # Partitions, hosts of each and GPUs of a host.
    topology = topologies.get_topology_desc(
      platform="cuda", target_config=_H100, topology=shape or "1x1x1"
    )
  backend = "tpu" if is_tpu else "gpu"
  jax.default_backend = lambda: backend
  return list(np.array(topology.devices).reshape(-1))
