"""The HPARAMS page of a sweep, read by TensorBoard's own code."""

import json

from tensorboard import context
from tensorboard.backend.event_processing import data_provider, plugin_event_multiplexer
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import backend_context

from largevocab.tools.sweeps import hparams_page
from largevocab.tools.sweeps.sweepfile import Run
from largevocab.training.runlog import RunLog

FULL = {"name": "full", "absolute": False, "bias": True}


def page(root, limit=None):
  """The description that TensorBoard finds and makes the page from."""
  multiplexer = plugin_event_multiplexer.EventMultiplexer()
  multiplexer.AddRunsFromDirectory(str(root)).Reload()
  provider = data_provider.MultiplexerDataProvider(multiplexer, str(root))
  view = backend_context.Context(base_plugin.TBContext(data_provider=provider))
  request = context.RequestContext()
  return view.experiment_from_metadata(
    request,
    "",
    include_metrics=True,
    hparams_run_to_tag_to_content=view.hparams_metadata(request, ""),
    data_provider_hparams=[],
    hparams_limit=limit,
  )


def test_columns_are_head_and_sampler_then_sweep_settings(tmp_path):
  sampled = {"name": "sampled", "absolute": True, "sampler": {"name": "quartic"}}
  runs = []
  for m in (8, 64):
    for head in (FULL, sampled):
      run = Run("configs/a.py", {"head.num_samples": m, "log.x": head["name"]})
      runs.append(run)
      config = {"data": {"path": "x"}, "head": head | {"num_samples": m}}
      (tmp_path / run.id).mkdir()
      (tmp_path / run.id / "config.json").write_text(json.dumps(config))
      log = RunLog(str(tmp_path / run.id), 0, config)
      for split, metrics in (
        ("monitor", {"chi2": 1.0, "relvar": 1.0}),
        ("train", {"loss": 1.0}),
        ("test", {"nll": 1.0, "ppl": 2.7, "seconds": 1.0}),
      ):
        log.write(1, split, metrics)
      log.close()
  never_begun = Run("configs/b.py", {})
  before = page(tmp_path)
  assert [m.name.tag for m in before.metric_infos][:2] == [
    *("monitor/chi2", "monitor/relvar")
  ]
  hparams_page.write(tmp_path, [*runs, never_begun])
  hparams_page.write(tmp_path, [*runs, never_begun])  # replaces the first
  shown = page(tmp_path)
  names = [info.name for info in shown.hparam_infos]
  assert names[:3] == ["head.name", "head.num_samples", "head.sampler.name"]
  assert set(names) == {info.name for info in before.hparam_infos}  # none is lost
  assert [m.name.tag for m in shown.metric_infos][:3] == [
    *("test/ppl", "test/p@1", "test/seconds")
  ]
  assert page(tmp_path, limit=3).hparam_infos == shown.hparam_infos[:3]
  (m,) = (info for info in shown.hparam_infos if info.name == "head.num_samples")
  assert (m.domain_interval.min_value, m.domain_interval.max_value) == (8, 64)
  assert len(list(tmp_path.glob("*tfevents*"))) == 1
  assert not list(tmp_path.glob("*.tmp"))


def test_no_page_is_written_before_any_run_begins(tmp_path):
  hparams_page.write(tmp_path, [Run("configs/a.py", {})])
  assert not list(tmp_path.iterdir())
