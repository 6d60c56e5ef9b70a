"""Interactions of users with items, for sequential recommenders."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from largevocab.data.cache import cache_root, cached, content_key
from largevocab.data.files import find_files, naming
from largevocab.data.items.interaction_lines import LINES, core, read_interactions
from largevocab.data.items.sequences import (
  ItemSequences,
  number_sequences,
  open_sequences,
  save_sequences,
)
from largevocab.data.synthetic.zipf_sequences import ZipfSequences
from largevocab.errors import UserError
from largevocab.fields import Count, OneOf, Seed, settings
from largevocab.paths import user_path

_FORMAT = 4  # version of the encoded files; changing it rebuilds all of them


@settings(kw_only=True)
class Interactions:
  """Users and items, with one interaction per line, or one user per line.

  The data is split by leave-one-out in time: a user's last item is a test label, the
  last but one is a validation label, and all earlier items are for training. The input
  of a test example includes the validation item. An example has at most T =
  `train.unroll` or `eval.unroll` inputs, which are the last ones; see
  `largevocab.data.items.sequence_examples.SequenceExamples`.

  Attributes:
    path: a file, plain, .gz or .xz, or a glob pattern; with `file`, a directory.
    file: a file in the directory `path`, or a glob pattern there; empty: `path` itself.
    lines: what a line contains: 'interactions' (`user item time`, `user item`, or
      columns with a header, as in RecBole's `*.inter`) or 'histories' (`user item item
      ...`); see `largevocab.data.items.interaction_lines.read_interactions`.
    min_of_user, min_of_item: drop users and items with fewer interactions, repeatedly,
      until none is left; with 5 and 5, this gives the 5-core.
    one_label: whether each item of a training history after the first is the only label
      of its own example. Otherwise a history is one example, with labels at each of its
      last T items, so that an epoch has far fewer steps.
    packed: whether a row of T inputs has as many training histories as fit, with a
      missing input between two of them, so that little of a batch is padding. The batch
      size is then a number of rows, and an epoch has fewer steps; see
      `largevocab.data.items.packed_examples.PackedExamples`.
    seed: seed of the order of training examples.
    cache_dir: directory of encoded data; empty: $LARGEVOCAB_CACHE, or else
      ~/.cache/largevocab.

  Source: Kang and McAuley 2018 (the split, and a label at each of the last T items);
    Zhao et al. 2021 (RecBole's atomic files).
  """

  path: str = ""
  file: str = ""
  lines: Annotated[str, OneOf(*LINES)] = "interactions"
  min_of_user: Count = 1
  min_of_item: Count = 1
  one_label: bool = False
  packed: bool = False
  seed: Seed = 0
  cache_dir: str = ""

  def tiny(self) -> ZipfSequences:
    return ZipfSequences(num_users=60, one_label=self.one_label, packed=self.packed)

  def load(self) -> ItemSequences:
    """The sequences, encoded by the first call and memory-mapped from the cache."""
    root = cache_root(self.cache_dir)
    if self.file:
      within = user_path(self.path, "data.path")
      if not self.path or not within.is_dir():
        raise UserError(
          f"data.path is {self.path!r:.99}, but must be a directory if data.file is "
          "set: set it to the directory of the file"
        )
      files = find_files(self.file, "data.file", within)
    else:
      files = find_files(self.path, "data.path")
    least = self.min_of_user, self.min_of_item
    atomic = [path.name.partition(".inter")[1] for path in files]
    key = content_key(root, files, [_FORMAT, self.lines, *least, *atomic])

    def build(directory: Path) -> None:
      with naming(files):
        found = core(read_interactions(files, self.lines), *least)
        save_sequences(directory, number_sequences(found))

    directory = cached(root, f"interactions-{key}", build)
    return replace(
      open_sequences(directory),
      one_label=self.one_label,
      packed=self.packed,
      seed=self.seed,
    )
