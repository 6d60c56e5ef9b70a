"""metrics.jsonl, TensorBoard events and progress lines."""

import json
import logging
import os
import pathlib
import re
import time

import pytest
from tensorboard import context
from tensorboard.backend.event_processing import (
  data_provider,
  event_accumulator,
  plugin_event_multiplexer,
)
from tensorboard.plugins import base_plugin
from tensorboard.plugins.hparams import backend_context, plugin_data_pb2

from largevocab.errors import UserError
from largevocab.training.runlog import Progress, RunLog

CONFIG = {"train": {"lr": 0.5, "epochs": 3}, "head": {"name": "full", "bias": True}}


def write(workdir, start_step, steps, value):
  log = RunLog(str(workdir), start_step, CONFIG)
  for step in steps:
    log.write(step, "train", {"loss": value * step})
  log.close()


def lines(workdir):
  return [json.loads(line) for line in (workdir / "metrics.jsonl").open()]


def events(workdir):
  found = event_accumulator.EventAccumulator(str(workdir))
  found.Reload()
  return found


def test_lines_are_written_immediately(tmp_path):
  log = RunLog(str(tmp_path), 0, CONFIG)
  log.write(1, "train", {"loss": 2.0})
  assert lines(tmp_path) == [{"step": 1, "split": "train", "loss": 2.0}]
  assert [s.step for s in events(tmp_path).Scalars("train/loss")] == [1]
  log.close()


def test_resuming_drops_lines_of_later_steps(tmp_path):
  write(tmp_path, 0, [1, 2, 3, 4], value=1.0)
  write(tmp_path, 2, [3, 4, 5], value=10.0)
  assert [(x["step"], x["loss"]) for x in lines(tmp_path)] == [
    *((1, 1.0), (2, 2.0), (3, 30.0), (4, 40.0), (5, 50.0))
  ]
  scalars = events(tmp_path).Scalars("train/loss")
  assert [(s.step, s.value) for s in scalars] == [
    *((1, 1.0), (2, 2.0), (3, 30.0), (4, 40.0), (5, 50.0))
  ]


@pytest.mark.parametrize("torn", ['{"step": 3, "sp', '{"step": 3}', "\x00\x00", "17\n"])
def test_torn_last_line_is_dropped(tmp_path, torn):
  write(tmp_path, 0, [1, 2], value=1.0)
  with (tmp_path / "metrics.jsonl").open("a") as file:
    file.write(torn)
  write(tmp_path, 5, [6], value=1.0)
  assert [line["step"] for line in lines(tmp_path)] == [1, 2, 6]


ODD = [b"", b"17", b"[" * 10**5, b'{"step": "3", "split": "train"}', b"\xff\xfe\x00"]
ODD += [
  b'{"step": 3, "split": ["train"]}',
  b'{"step": true, "split": "train"}',
  b"\x00",
]


@pytest.mark.parametrize("odd", ODD)
def test_damaged_line_leaves_the_other_lines(tmp_path, caplog, odd):
  caplog.set_level(logging.INFO, "largevocab")
  write(tmp_path, 0, [1, 2, 3], value=1.0)
  path = tmp_path / "metrics.jsonl"
  first, *others = path.read_bytes().splitlines(keepends=True)
  path.write_bytes(first + odd + b"\n" + b"".join(others))
  write(tmp_path, 5, [6], value=1.0)
  assert [line["step"] for line in lines(tmp_path)] == [1, 2, 3, 6]
  assert (tmp_path / "metrics.jsonl.damaged").read_bytes() == odd + b"\n"
  (message,) = caplog.messages
  start = f"{path}: moved lines that are not metrics to {path}.damaged: line"
  assert message.startswith(start)
  assert message.endswith(" 2")
  write(tmp_path, 6, [7], value=1.0)
  assert len(caplog.messages) == 1


def test_complete_last_line_without_newline_is_kept(tmp_path):
  write(tmp_path, 0, [1, 2], value=1.0)
  path = tmp_path / "metrics.jsonl"
  path.write_bytes(path.read_bytes()[:-1])
  write(tmp_path, 2, [3], value=1.0)
  assert [line["step"] for line in lines(tmp_path)] == [1, 2, 3]


@pytest.mark.parametrize("make", [pathlib.Path.mkdir, os.mkfifo])
def test_metrics_path_that_is_not_a_file_is_reported_in_one_line(tmp_path, make):
  make(tmp_path / "metrics.jsonl")
  with pytest.raises(UserError, match=r"metrics\.jsonl cannot be written"):
    RunLog(str(tmp_path), 0, CONFIG)


def test_repeated_lines_are_skipped(tmp_path):
  write(tmp_path, 0, [1, 2], value=1.0)
  write(tmp_path, 2, [2, 3], value=10.0)
  assert [line["loss"] for line in lines(tmp_path)] == [1.0, 2.0, 30.0]
  values = [s.value for s in events(tmp_path).Scalars("train/loss")]
  assert values == [1.0, 2.0, 30.0]


def test_tensorboard_shows_hyper_parameters(tmp_path):
  write(tmp_path, 0, [1], value=1.0)
  content = events(tmp_path).summary_metadata["_hparams_/session_start_info"]
  data = plugin_data_pb2.HParamsPluginData.FromString(content.plugin_data.content)
  shown = {
    key: getattr(value, value.WhichOneof("kind"))
    for key, value in data.session_start_info.hparams.items()
  }
  assert shown == {
    "train.lr": 0.5,
    "train.epochs": 3.0,
    "head.name": "full",
    "head.bias": True,
  }


def test_tensorboard_compares_the_runs_of_a_sweep(tmp_path):
  for name in ("full", "huffman"):
    config = {"head": {"name": name}, "train": {"seed": 0}}
    (tmp_path / name).mkdir()
    log = RunLog(str(tmp_path / name), 0, config)
    log.write(1, "test", {"ppl": 3.0})
    log.close()
  multiplexer = plugin_event_multiplexer.EventMultiplexer()
  multiplexer.AddRunsFromDirectory(str(tmp_path)).Reload()
  provider = data_provider.MultiplexerDataProvider(multiplexer, str(tmp_path))
  view = backend_context.Context(base_plugin.TBContext(data_provider=provider))
  request = context.RequestContext()
  shown = view.experiment_from_metadata(
    request,
    "",
    include_metrics=True,
    hparams_run_to_tag_to_content=view.hparams_metadata(request, ""),
    data_provider_hparams=[],
  )
  (head,) = (info for info in shown.hparam_infos if info.name == "head.name")
  assert {v.string_value for v in head.domain_discrete.values} == {"full", "huffman"}
  assert [metric.name.tag for metric in shown.metric_infos] == ["test/ppl"]


def test_progress_line(caplog):
  caplog.set_level(logging.INFO, "largevocab")
  begin = time.perf_counter()
  progress = Progress(0, num_steps=20_000, tokens_per_step=400)
  at_least = time.perf_counter()
  time.sleep(0.05)
  at_most = time.perf_counter()
  rate = progress.line(200, {"loss": 5.25, "lr": 0.5})["tokens_per_second"]
  end = time.perf_counter()
  assert 200 * 400 / (end - begin) <= rate <= 200 * 400 / (at_most - at_least)
  (line,) = caplog.messages
  match = re.fullmatch(
    r"step 200/20000 \(1.0 %\)  loss 5.25  lr 0.5  ([\d.]+)k tokens/s  \d+ MiB  "
    r"(\d+):(\d\d):(\d\d) left",
    line,
  )
  assert match
  assert float(match[1]) == pytest.approx(rate / 1e3, abs=0.1)
  left = int(match[2]) * 3600 + int(match[3]) * 60 + int(match[4])
  assert left == pytest.approx(19_800 * 400 / rate, abs=1)


def test_progress_excludes_rests(caplog):
  caplog.set_level(logging.INFO, "largevocab")
  progress = Progress(0, num_steps=100, tokens_per_step=10)
  time.sleep(0.2)  # as a compilation during the first step
  begin = time.perf_counter()
  progress.rest(1)
  rate = progress.line(6, {"loss": 1.0})["tokens_per_second"]
  assert rate >= 50 / (time.perf_counter() - begin)
  progress.rest(7)
  assert progress.line(7, {"loss": 1.0}) == {}
  assert caplog.messages[-1] == "step 7/100 (7.0 %)  loss 1"
