"""How many negatives do sets of 983 to 52,946 labels need?

After Daghaghi et al. 2021, appendix C and table 4, with the loss of that paper, but
with negatives that are drawn.
"""

import pathlib
import runpy

LNS = runpy.run_path(str(pathlib.Path(__file__).parents[1] / "xmlc_lns" / "sweep.py"))
SEEDS, SETS, REFERENCE = LNS["SEEDS"], LNS["SETS"], LNS["REFERENCE"]
CLASSES = {
  "delicious": 983,
  "citeulike_t_uniform": 6597,
  "gowalla": 40981,
  "citeulike_t": 52946,
}
PERCENT = (0.5, 1, 2, 5, 10, 20)
OWN_MOST = 5  # per cent of a large set: the limit if each example has its own negatives
METHODS = {
  "LSH label": (LNS["LSH"]["label"], LNS["ACTIVE"]),
  "log-uniform": ("sampled/log_uniform", {}),
}


def budget(data, percent):
  """The number of negatives, which is that of xmlc_lns where it has the same share."""
  few, many = SETS[data][1]
  given = {5: many, 1 if data == "delicious" else 0.5: few}
  return given.get(percent, round(CLASSES[data] * percent / 100))


def sweep(add):
  for seed in SEEDS:
    same = {"log.monitor_every_steps": 0} | ({"train.seed": seed} if seed else {})
    for data in CLASSES:
      length = {"train.epochs": SETS[data][0]} | same
      config = f"configs/xmlc.py:{{}},data={data}"
      add(config.format("full"), length, name=f"{data}: {REFERENCE}")
      for percent in PERCENT:
        m = budget(data, percent)
        for method, (head, fields) in METHODS.items():
          if method == "LSH label" and data in LNS["LARGE"] and percent > OWN_MOST:
            continue
          overrides = {"head.num_samples": m} | fields | length
          add(config.format(head), overrides, name=f"{data}: {method}, m={m}")


def metrics():
  return ["percent", "of_full", "test_p@1", "test_p@5"]


def comparison():
  return {"to": REFERENCE, "metric": "test_p@1"}


def derived(record, records):
  """The budget in per cent of the classes, and P@1 relative to the full softmax.

  P@1 is divided by that of the full softmax with the same seed.
  """
  data = record["name"].partition(":")[0]
  if record.get("baseline"):
    return {}
  seed = lambda r: r["overrides"].get("train.seed", SEEDS[0])
  full = [
    r["test_p@1"]
    for r in records
    if r["name"] == f"{data}: {REFERENCE}" and seed(r) == seed(record)
  ]
  m = record["overrides"].get("head.num_samples")
  return {
    **({"of_full": record["test_p@1"] / full[0]} if full else {}),
    **({"percent": nearest(100 * m / CLASSES[data])} if m else {}),
  }


def nearest(percent):
  return min(PERCENT, key=lambda each: abs(each - percent))


def figures():
  return [
    {
      **{"file": "budgets", "x": "percent", "y": "of_full", "log": "x", "band": True},
      **{"panel": "data", "where": {"method": list(METHODS)}},
    }
  ]
