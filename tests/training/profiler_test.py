"""A run traces five steps at the requested place."""

import jax
import pytest

from largevocab import config as c
from largevocab.train import train
from largevocab.training import profiler
from tests.long import others_long


@pytest.mark.parametrize(
  ("at", "names"),
  others_long(
    [(3, range(3, 3 + profiler.STEPS)), (10, [10, 11]), (0, None)],
    [(10, [10, 11]), (0, None)],
  ),
)
def test_requested_steps_are_traced(tmp_path, at, names):
  settings = c.experiment(
    data=c.part("data", "zipf", num_classes=30, num_tokens=500),
    model=c.part("model", "lstm", embed=4, hidden=4, layers=1),
    head=c.head("full"),
    optimizer=c.part("optimizer", "sgd"),
    train=c.Training(batch_size=4, unroll=3, max_steps=12),
    log=c.Logging(profile_at=at, monitor_every_steps=0),
  )
  train(c.build(settings), settings.to_dict(), str(tmp_path))
  found = [*tmp_path.glob("plugins/profile/*/*.xplane.pb")]
  assert len(found) == (names is not None)
  for path in found:
    assert steps_of(path) == set(names)


def steps_of(path):
  """The numbers of the steps in a trace."""
  traced = jax.profiler.ProfileData.from_file(str(path))
  events = (e for plane in traced.planes for line in plane.lines for e in line.events)
  return {dict(e.stats)["step_num"] for e in events if e.name == "train"}
