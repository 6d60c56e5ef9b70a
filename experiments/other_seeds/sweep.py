"""Three sweeps, repeated with other seeds: do their tables come out again?

The sweeps are on text, on tags and on sequences of items.
"""

import json
import pathlib
import statistics

from scipy import stats

# By sweep: the metric by which rows are compared, and the reference row.
SWEEPS = {
  "blocks": ("test_ppl", "PTB, 1 block"),
  "factored_choices": ("test_nll", "full softmax"),
  "sequences": ("test_ndcg@10", "full softmax"),
}
SHIFT = 3  # the sweeps have the seeds 0, 1 and 2


def rows_of(sweep):
  path = pathlib.Path(__file__).parents[1] / sweep / "results.jsonl"
  rows = [json.loads(line) for line in path.read_text().splitlines()]
  later = " 3 x steps"  # these rows were added after this experiment
  return [r for r in rows if not r.get("baseline") and not r["name"].endswith(later)]


ROWS = {sweep: rows_of(sweep) for sweep in SWEEPS}


def seed_of(record):
  return record["overrides"].get("train.seed", 0)


def sweep(add):
  """Adds the runs of the sweeps, at the learning rates that their searches chose."""
  for sweep, rows in ROWS.items():
    for row in rows:
      overrides = row["overrides"] | {"train.seed": seed_of(row) + SHIFT}
      add(row["config"], overrides, name=f"{sweep}: {row['name']}")


def metrics():
  found = ["score", "difference"]
  return [column for each in found for column in (each, f"{each}_before", f"{each}_p")]


def derived(record, records):
  """The score and its difference from the reference, here and in the sweep itself.

  The score is the metric of the sweep's comparison. The p-values say how probable it is
  by chance that the means here and in the sweep are at least as far apart.
  """
  sweep = record["name"].partition(": ")[0]
  parts = [(row, row["name"].partition(": ")) for row in records]
  again = [row | {"name": name} for row, (prefix, _, name) in parts if prefix == sweep]
  now, before = (values(rows, record, sweep) for rows in (again, ROWS[sweep]))
  seed, found = seed_of(record), {}
  for key in now:
    found[key] = now[key].get(seed)
    found[f"{key}_before"] = before[key].get(seed - SHIFT)
    if seed == SHIFT:
      found[f"{key}_p"] = p_value([*now[key].values()], [*before[key].values()])
  return {key: value for key, value in found.items() if value is not None}


def values(rows, record, sweep):
  """The score of a row and its difference from the reference, each by seed."""
  metric, reference = SWEEPS[sweep]
  data, _, name = record["name"].partition(": ")[2].rpartition(": ")
  own, other = (
    {seed_of(row): row[metric] for row in rows if row["name"] == f"{prefix}{each}"}
    for each in (name, reference)
    for prefix in [f"{data}: " if data else ""]
  )
  common = own.keys() & other.keys() if name != reference else ()
  return {
    "score": own,
    "difference": {seed: own[seed] - other[seed] for seed in common},
  }


def p_value(some, others):
  """The p-value of Welch's t-test, or None with fewer than two values on a side.

  >>> p_value([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
  1.0
  """
  if min(len(some), len(others)) < 2:
    return None
  if statistics.stdev(some) == statistics.stdev(others) == 0:
    return float(some[0] == others[0])
  return float(stats.ttest_ind(some, others, equal_var=False).pvalue)
