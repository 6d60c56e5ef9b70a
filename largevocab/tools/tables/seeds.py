"""Groups of runs that differ only in the seed."""

import json
from collections.abc import Iterable

from largevocab.errors import UserError
from largevocab.tools.sweeps.records import Record
from largevocab.tools.sweeps.sweep_run import is_seed


def seed_of(row: Record, of: str = "") -> str:
  """The seeds of a run, by which runs are paired; the default seed 0 is left out.

  With `of`, these are only the seeds whose keys begin with it, such as "data.".

  >>> seed_of({"overrides": {"train.seed": 2, "train.lr": 1}})
  'train.seed=2'
  >>> seed_of({"overrides": {"train.seed": 0}}) == seed_of({"overrides": {}})
  True
  """
  own = {key: value for key, value in row["overrides"].items() if is_seed(key)}
  wanted = (key for key in sorted(own) if own[key] and key.startswith(of))
  return " ".join(f"{key}={own[key]}" for key in wanted)


def groups(rows: Iterable[Record]) -> dict[str, list[Record]]:
  """Groups of runs that differ only in the seed, by a unique label.

  Raises:
    UserError: two runs do not differ at all.
  """
  by_identity: dict[str, list[Record]] = {}
  for row in rows:
    same = {key: value for key, value in row["overrides"].items() if not is_seed(key)}
    identity = json.dumps([row["name"], row["config"], same], sort_keys=True)
    members = by_identity.setdefault(identity, [])
    for other in members:
      if seed_of(other) == seed_of(row):
        raise UserError(
          f"the runs {other.get('run')!r:.80} and {row.get('run')!r:.80} of "
          f"{row['name']!r:.80} have the same settings and the same seed; remove one"
        )
    members.append(row)
  names = [members[0]["name"] for members in by_identity.values()]
  labelled = {}
  for identity, members in by_identity.items():
    name, config, same = json.loads(identity)
    full = [name, config, *(f"{key}={value}" for key, value in same.items())]
    unique = name and names.count(name) == 1
    labelled[name if unique else " ".join(filter(None, full))] = members
  return labelled
