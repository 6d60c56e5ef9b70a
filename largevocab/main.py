"""Trains, evaluates or queries a model.

python -m largevocab.main --config=configs/ptb.py:sampled/pps --workdir=runs/ptb
python -m largevocab.main --mode=evaluate --checkpoint=best --workdir=runs/ptb
python -m largevocab.main --mode=predict --workdir=runs/ptb --text='the price of'
"""

import json
import logging
import os
import sys

import absl.logging
from absl import app, flags
from ml_collections import config_flags

from largevocab.errors import UserError

_CONFIG = config_flags.DEFINE_config_file(
  "config", None, "FILE[:ARG], for instance configs/ptb.py:sampled/pps."
)
_WORKDIR = flags.DEFINE_string("workdir", None, "Where everything of the run goes.")
_MODE = flags.DEFINE_enum(
  "mode", "train", ["train", "evaluate", "predict"], "What to do."
)
_CHECKPOINT = flags.DEFINE_enum(
  "checkpoint", "latest", ["latest", "best"], "Which state to evaluate or query."
)
_TEXT = flags.DEFINE_string("text", "", "Text for --mode=predict; else lines of stdin.")
_TOP_K = flags.DEFINE_integer("top_k", 5, "Next words to list.", lower_bound=1)


def main(argv: list[str]) -> None:
  if len(argv) > 1:
    raise UserError(f"unexpected argument {argv[1]!r}; flags begin with --")
  if not _WORKDIR.value:
    raise UserError("--workdir is missing")
  from largevocab import config, predict, train  # jax starts here: not for --help

  if _CONFIG.value is not None:
    settings = _CONFIG.value
  elif _MODE.value == "train":
    raise UserError("--config is missing, for instance --config=configs/quickstart.py")
  else:
    settings = config.of_workdir(_WORKDIR.value)
  exp = config.build(settings)
  if _MODE.value == "train":
    train.train(exp, settings.to_dict(), _WORKDIR.value)
  elif _MODE.value == "evaluate":
    metrics = train.evaluate_checkpoint(exp, _WORKDIR.value, _CHECKPOINT.value)
    print(json.dumps(metrics))
  else:
    lines = [_TEXT.value] if _TEXT.value else sys.stdin
    model = predict.load(exp, _WORKDIR.value, _CHECKPOINT.value)
    predict.answer(model, lines, _TOP_K.value)


def _parse_flags(argv: list[str]) -> list[str]:
  try:
    return flags.FLAGS(argv)
  except (flags.Error, AttributeError, KeyError, TypeError, ValueError) as error:
    raise UserError(str(error)) from error


def run() -> None:
  """Entry: a user's mistake ends in one line and exit status 1."""
  os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
  _log_to_stderr()
  try:
    app.run(main, flags_parser=_parse_flags)
  except UserError as error:
    _fail(str(error))
  except KeyboardInterrupt:
    _fail("interrupted; the same command goes on from the last checkpoint", 130)
  except OSError as error:
    _fail(f"{error.strerror or error}: {error.filename or ''}")


def _log_to_stderr() -> None:
  """Our own lines; of what absl carries (checkpointing says much), errors only."""
  handler = logging.StreamHandler()
  handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%H:%M:%S"))
  log = logging.getLogger("largevocab")
  log.addHandler(handler)
  log.setLevel(logging.INFO)
  log.propagate = False
  absl.logging.set_verbosity(absl.logging.ERROR)


def _fail(message: str, status: int = 1) -> None:
  print(f"error: {' '.join(message.split())}", file=sys.stderr)
  sys.exit(status)


if __name__ == "__main__":
  run()
