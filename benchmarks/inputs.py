"""Benchmarks of the input side: the host's time to make a batch."""

import time
from collections.abc import Iterator
from typing import Any

import jax

from benchmarks.case import Case
from largevocab.data import DATASETS

STEPS_MS = (1, 5, 20)  # of devices
BATCHES = 50
# Data of each kind at a usual size: settings, number of streams or examples, unroll.
INPUTS: dict[str, tuple[str, dict[str, Any], int, int]] = {
  "text": ("zipf", {"num_classes": 10_000, "num_tokens": 1_000_000}, 64, 35),
  "items": ("zipf_items", {"num_classes": 10_000, "num_items": 1_000_000}, 1024, 1),
  "labels": ("zipf_labels", {"num_classes": 10_000}, 1024, 1),
}


def share_waiting(host_ms: float, step_ms: float) -> float:
  """The share of time that a device waits for batches.

  Steps are dispatched ahead of the device, so batches are made while it computes: it
  waits only if a batch takes longer than a step.

  >>> share_waiting(2.0, 1.0), share_waiting(1.0, 5.0)
  (0.5, 0.0)
  """
  return max(host_ms - step_ms, 0.0) / max(host_ms, step_ms)


def input_time() -> Iterator[Case]:
  """Making a batch and handing it to the device, for each kind of data.

  Goal: a device whose step takes 5 ms never waits.
  """
  for kind, (name, settings, batch_size, unroll) in INPUTS.items():
    data = DATASETS[name](**settings).load()
    batches = data.training_batches(batch_size, unroll)
    take = lambda step: jax.block_until_ready(jax.device_put(batches.batch(step)))  # noqa: B023
    take(0)
    began = time.perf_counter()
    for step in range(1, BATCHES + 1):
      take(step)
    host_ms = 1e3 * (time.perf_counter() - began) / BATCHES
    waits = {f"waits_at_{ms}_ms": share_waiting(host_ms, ms) for ms in STEPS_MS}
    sizes = {"B": batch_size, "T": unroll}
    goal = {"ratio": host_ms / 5, "at_most": 1.0}
    yield Case(
      f"a batch of {kind} / a step of 5 ms, B={batch_size} T={unroll}",
      sizes,
      {"host_ms": host_ms, **waits, **goal},
    )


ROWS = {"input_time": input_time}
