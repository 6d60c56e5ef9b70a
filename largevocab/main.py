"""Trains, evaluates or queries a model.

python -m largevocab.main --config=ptb:sampled/pps --workdir=runs/ptb
python -m largevocab.main --mode=evaluate --checkpoint=best --workdir=runs/ptb
python -m largevocab.main --mode=predict --workdir=runs/ptb --text='the price of'
python -m largevocab.main --mode=predict --workdir=runs/items --input=histories.txt

Several processes, for instance on several hosts, can train one model; see
docs/devices.md.
"""

import sys
from typing import Any

from absl import flags

from largevocab.errors import UserError
from largevocab.training import console, processes


def define_flags() -> flags.FlagValues:
  """Defines the flags and their defaults; --config.KEY=VALUE is parsed later."""
  own = flags.FlagValues()
  own.set_gnu_getopt()  # Flags may follow other arguments.
  once: Any = {"flag_values": own, "allow_overwrite": False}
  text = lambda *args: flags.DEFINE_string(*args, **once)
  choice = lambda *args: flags.DEFINE_enum(*args, **once)
  flags.DEFINE_bool("help", False, "Show this help.", short_name="h", flag_values=own)
  text("config", None, "Config: FILE.py[:ARG] or NAME[:ARG], as in ptb:full.")
  text("workdir", None, "Directory for all files of the run.")
  choice("mode", "train", ["train", "evaluate", "predict"], "What to do.")
  choice("checkpoint", "latest", ["latest", "best"], "Checkpoint to evaluate or query.")
  text("coordinator", None, "HOST:PORT of process 0; JAX finds it on a cluster.")
  flags.DEFINE_integer(
    "processes", None, "Number of processes; 1: only this one.", 1, **once
  )
  flags.DEFINE_integer("process", None, "Index of this process, from 0.", 0, **once)
  text("text", None, "Query text for --mode=predict.")
  text("input", None, "Queries for --mode=predict, one per line; default: stdin.")
  flags.DEFINE_bool("mask_seen", False, "Exclude items already in the history.", **once)
  flags.DEFINE_integer("top_k", 5, "Classes to list in --mode=predict.", 1, **once)
  return own


def main(argv: list[str]) -> None:
  """Executes the command that the flags give; `argv[0]` is the program.

  Raises:
    UserError: an error that the user can fix.
  """
  own = define_flags()
  try:
    rest = own(argv, known_only=True)
  except flags.Error as error:
    raise UserError(str(error)) from error
  if own.help:
    print(__doc__ + own.get_help())
    return
  if not own.workdir:
    raise UserError("--workdir is missing: give one, for instance --workdir=runs/first")
  for name in ("text", "input", "mask_seen", "top_k"):
    if own[name].present and own.mode != "predict":
      raise UserError(
        f"--{name} is only for --mode=predict; leave it out, or set --mode"
      )
  if own["checkpoint"].present and own.mode == "train":
    raise UserError(
      "--checkpoint is only for --mode=evaluate and --mode=predict; leave it out, "
      "since training goes on from the latest checkpoint, or set --mode"
    )
  if own.text is not None and own.input is not None:
    raise UserError("--text and --input are both given; give one of them")
  from largevocab import command_line, config, train  # jax
  from largevocab.evaluation import evaluate, predict, queries
  from largevocab.training import agreement
  from largevocab.training.workdir import workdir_path

  workdir = workdir_path(own.workdir)
  processes.join(own.coordinator, own.processes, own.process)
  if own.mode == "predict" and processes.are_several():
    raise UserError(
      "--mode=predict runs in a single process: start it with --processes=1"
    )

  if own.config:
    settings = command_line.load(own.config)
  elif own.mode == "train":
    raise UserError(
      "--config is missing: give one, for instance --config=configs/quickstart.py"
    )
  else:
    settings = config.of_workdir(workdir)
  command_line.override(settings, rest, known=list(own))
  modes = {"--mode": own.mode, "--checkpoint": own.checkpoint}
  agreement.check_settings(settings.to_dict(), modes)
  if own.mode != "train":
    config.check_model_of(workdir, settings)
  exp = config.build(settings)
  if own.mode == "train":
    if processes.is_first():
      config.bring_up_to_date(workdir)
    processes.wait("config.json is up to date")
    train.train(exp, settings.to_dict(), workdir)
  elif own.mode == "evaluate":
    metrics = evaluate.evaluate_workdir(exp, workdir, own.checkpoint)
    if processes.is_first():
      console.say(metrics)
  else:
    if own.text is not None:
      source = queries.of_text(own.text)
    elif own.input is not None:
      source = queries.of_file(own.input)
    else:
      source = queries.of_stdin()
    model = predict.load(exp, workdir, own.checkpoint)
    predict.answer(model, source, own.top_k, own.mask_seen)


def run(argv: list[str]) -> int:
  """Runs `main` and returns the exit status; prints a UserError in one line."""
  return processes.together(lambda: console.run(lambda: main(argv)))


if __name__ == "__main__":
  sys.exit(run(sys.argv))
