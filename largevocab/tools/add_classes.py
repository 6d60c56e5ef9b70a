"""Continues from a trained recommender with new items, users and interactions.

  python -m largevocab.tools.add_classes --workdir=runs/monday --into=runs/tuesday \\
    --config.data.path=tuesday.tsv
  python -m largevocab.main --mode=predict --workdir=runs/tuesday

Items in both the old and the new data keep their rows, as inputs and as classes, and
the optimiser's state. New items start at random, and items that are gone are left out.
The network is unchanged. The new workdir has a state of step 0. This state answers
queries, and `largevocab.main --config=... --workdir=INTO` with the same config trains
it further.
"""

import pathlib
import sys
from typing import Any, NamedTuple

import jax
import numpy as np

from largevocab import command_line, config
from largevocab.data.classes import Classes
from largevocab.data.digests import digests
from largevocab.data.items.next_item import NextItem
from largevocab.data.items.sequences import ItemSequences
from largevocab.errors import UserError
from largevocab.heads import carry_classes
from largevocab.labels import Counts
from largevocab.rows import carry_rows
from largevocab.tools import entry
from largevocab.training.checkpoint import Checkpoints, shapes_of
from largevocab.training.data_of_run import classes_path, save_data
from largevocab.training.lock import held
from largevocab.training.settings import Experiment
from largevocab.training.state import State, init_state, with_saved_batch_size
from largevocab.training.workdir import (
  checkpoints_path,
  claim_workdir,
  workdir_path,
)


class _Former(NamedTuple):
  """The properties of its training data on which a state depends."""

  counts: Counts
  num_inputs: int
  inputs_are_classes: bool = True


def carried(exp: Experiment, data: ItemSequences | NextItem, old: State, was) -> State:
  """The initial state for new data, with the learned rows of former items."""
  fresh = init_state(exp, data)
  key = jax.random.fold_in(fresh.key, len(was))
  head = carry_classes(exp.head, old.head, data.counts, exp.model.width, was, key)
  inputs = fresh.inputs  # None if they are tied
  if inputs is not None:
    inputs = carry_rows(inputs, old.inputs, was)
  return fresh._replace(params=old.params, opt=old.opt, inputs=inputs, head=head)


def add_classes(workdir: str, into: str, overrides: list[str], which: str) -> str:
  """Writes the workdir `into`; returns a line about it.

  Raises:
    UserError: the data are not items, the head has no single table, or `into` is in
      use.
  """
  settings = config.of_workdir(workdir)
  former = Classes.load(classes_path(workdir))
  command_line.override(settings, ["add_classes", *overrides], known=[])
  config.check_model_of(workdir, settings, other_data=True)
  exp = config.build(settings)
  data = exp.data.load()
  if not isinstance(data, ItemSequences | NextItem):
    raise UserError(f"{workdir} was not trained on items of users: train a new run")
  trained_on: Any = _Former(Counts(former.counts_V), len(former))
  shapes = shapes_of(init_state(with_saved_batch_size(exp, workdir), trained_on))
  with Checkpoints(checkpoints_path(workdir)) as saved:
    old, _ = saved.restore(shapes, which)
  index = {name: id for id, name in enumerate(former.words)}
  was = np.array([index.get(name, -1) for name in data.vocabulary.words])
  state = carried(exp, data, old, was)
  with held(into):
    directory = pathlib.Path(checkpoints_path(into))
    if directory.exists():
      raise UserError(f"--into: {into} has a run already: choose another directory")
    claim_workdir(into, settings.to_dict())
    save_data(into, data, digests(data))
    with Checkpoints(str(directory)) as saved:
      saved.save(0, state, {"seconds": 0.0})
  num = int(np.sum(was >= 0))
  return f"{into}: {num} items kept, {len(was) - num} new, {len(former) - num} left out"


def main(argv: list[str] | None = None) -> int:
  parser = entry.Parser(__doc__)
  parser.add_argument("--workdir", required=True, help="workdir of the trained run")
  parser.add_argument("--into", required=True, help="the new workdir")
  parser.add_argument("--checkpoint", default="latest", choices=["latest", "best"])
  args, overrides = parser.parse_known_args(argv)
  print(
    add_classes(
      workdir_path(args.workdir),
      workdir_path(args.into, "--into"),
      overrides,
      args.checkpoint,
    )
  )
  return 0


def cli() -> int:
  return entry.run("add_classes", main)


if __name__ == "__main__":
  sys.exit(cli())
