"""Tables 2, 3 and 4 of paper 002 (methods and budgets), and 5 to 7 (hash tables)."""

# Epochs; budgets of half a per cent and of five per cent of the classes; bits of MIPS.
SETS = {
  "citeulike_t": (5, (265, 2647), 9),
  "citeulike_t_uniform": (8, (33, 330), 7),
  "stdlib_calls": (8, (20, 196), 6),
  "delicious": (6, (10, 49), 4),
  "gowalla": (5, (205, 2049), 9),
}
LARGE = ("citeulike_t", "gowalla")  # five per cent for each example take too long
SHARED = {
  "sampled/pps": "pps",
  "sampled/unigram": "frequency",
  "sampled/log_uniform": "log-uniform",
  "nce/log_uniform": "NCE",
}
# The paper's: the softmax over what the tables give, built anew every 50 steps.
ACTIVE = {
  "head.corrected": False,
  "head.sampler.rehash": False,
  "head.sampler.unigram_share": 0.0,
}
HALF = {"head.corrected": False, "head.sampler.unigram_share": 0.5}
WEIGHTED = {"head.corrected": True, "head.sampler.unigram_share": 0.5}
HASH_TABLES = {
  "L=10": {"head.sampler.tables": 10},
  "L=25": {"head.sampler.tables": 25},
  "L=100": {"head.sampler.tables": 100},
  "K=3": {"head.sampler.codes": 3},
  "K=5": {"head.sampler.codes": 5},
}
REFERENCE = "full softmax"


def sweep(add):
  def run(data, head, name, **fields):
    overrides = {"train.epochs": SETS[data][0], "log.monitor_every_steps": 0}
    config = f"configs/xmlc.py:{data},head={head}"
    add(config, overrides | fields, name=f"{data}: {name}")

  for number, share in enumerate(("half a per cent", "five per cent")):
    for data, (_, budgets, bits) in SETS.items():
      m = budgets[number]
      size = {"head.num_samples": m}
      lsh = "sampled/lsh_embedding"
      if share == "half a per cent":
        run(data, "full", REFERENCE)
        own = size | {"head.sampler.per_example": True}
        run(data, "sampled/unigram", f"frequency of its own, m={m}", **own)
        exact = {"head.num_samples": budgets[1], "head.sampler.exact": m}
        exact |= {"head.corrected": True}
        run(data, lsh, f"LSH union exact, {m} and pps {budgets[1]}", **exact)
        run(data, lsh, f"LSH half by counts, m={m}", **size, **HALF)
      for head, name in SHARED.items():
        run(data, head, f"{name}, m={m}", **size)
      if data in LARGE and share == "five per cent":
        continue
      run(data, "sampled/top_k", f"top-k, m={m}", **size)
      for query in ("embedding", "label"):
        head = f"sampled/lsh_{query}"
        run(data, head, f"LSH {query}, m={m}", **size, **ACTIVE)
        run(data, head, f"LSH {query} weighted, m={m}", **size, **WEIGHTED)
      if data == "gowalla":
        continue
      mips = {"head.sampler.family": "mips", "head.sampler.codes": bits}
      mips |= size | {"head.sampler.tables": 100}
      run(data, lsh, f"LSH MIPS, m={m}", **mips, **ACTIVE)
      stale = {"head.sampler.rehash": False}
      run(data, lsh, f"LSH MIPS weighted, m={m}", **mips, **WEIGHTED, **stale)

  data, lsh = "citeulike_t", "sampled/lsh_embedding"
  few, _ = SETS[data][1]
  size = {"head.num_samples": few}
  for name, fields in HASH_TABLES.items():
    name = f"LSH embedding weighted, {name}, m={few}"
    run(data, lsh, name, **size, **WEIGHTED, **fields)


def metrics():
  epochs = ["epochs_to_50%", "epochs_to_90%"]
  return [*epochs, "speed", "test_p@1", "test_p@5", "test_psp@1"]


def comparison():
  return {"to": REFERENCE, "metric": "test_p@1"}


def derived(record, records):
  """When precision on validation data reached half, and nine tenths, of what the full
  softmax ended at (inf: never), and how many times as fast as that an epoch is."""
  data = record["name"].partition(":")[0]
  full = [r for r in records if r["name"] == f"{data}: {REFERENCE}"]
  if not full or record.get("baseline"):
    return {}
  per_epoch = record["steps"] / record["overrides"]["train.epochs"]
  epochs = {}
  for share in (50, 90):
    goal = share / 100 * full[0]["valid_p@1"]
    curve = record.get("curve_p@1", [])
    reached = (step / per_epoch for step, value, _ in curve if value >= goal)
    epochs[f"epochs_to_{share}%"] = next(reached, float("inf"))
  return epochs | {"speed": full[0]["ms_per_step"] / record["ms_per_step"]}
