"""Negatives from hash tables, after Daghaghi et al. 2021.

The sweep repeats tables 2, 3 and 4 of the paper (methods and budgets), tables 5 to 7
(hash tables), and figures 4 and 5.
"""

# By data: epochs; budgets, half and five per cent of the classes; bits of MIPS.
SETS = {
  "citeulike_t": (5, (265, 2647), 9),
  "citeulike_t_uniform": (8, (33, 330), 7),
  "stdlib_calls": (8, (20, 196), 6),
  "delicious": (6, (10, 49), 4),
  "gowalla": (5, (205, 2049), 9),
}
TIMED = ("citeulike_t", "citeulike_t_uniform")  # timed on an idle core
# Five per cent for each example takes long here: only the paper's loss is run with it.
LARGE = ("citeulike_t", "gowalla")
SHARED = {
  "sampled/pps": "pps",
  "sampled/unigram": "frequency",
  "sampled/log_uniform": "log-uniform",
  "nce/log_uniform": "NCE",
}
# The paper's loss: the softmax over the active set. Tables are rebuilt every 50 steps.
ACTIVE = {
  "head.loss.corrected": False,
  "head.sampler.rehash": False,
  "head.sampler.unigram_share": 0.0,
}
FILLED = ACTIVE | {"head.sampler.draw": "fill"}
# Makes buckets hold five per cent of the large sets; with K = 4 they hold one.
ROOM = {"head.sampler.codes": 3, "head.sampler.slots": 128}
WITH_ADAM = " with Adam"
ADAM_EPOCHS = {"train.epochs": 25}
HALF = {"head.loss.corrected": False, "head.sampler.unigram_share": 0.5}
WEIGHTED = {"head.loss.corrected": True, "head.sampler.unigram_share": 0.5}
OLD_TABLES = WEIGHTED | {"head.sampler.rehash": False}
# By data: values of L and K other than the config's.
HASH_TABLES = {
  data: {f"L={num}": {"head.sampler.tables": num} for num in (10, 25, 100)}
  | {f"K={num}": {"head.sampler.codes": num} for num in codes}
  for data, codes in (("citeulike_t", (3, 5)), ("citeulike_t_uniform", (2, 4)))
}
REFERENCE = "full softmax"
SEEDS = (0, 1, 2)
LSH = {query: f"sampled/lsh_{query}" for query in ("embedding", "label")}
FORMS = ("", " weighted", " filled")
MAIN = tuple(f"LSH {query}{form}" for query in LSH for form in FORMS)


def runs():
  """Yields data, head, name and overrides of all runs with the seed 0."""
  for number, share in enumerate(("half a per cent", "five per cent")):
    for data, (_, budgets, bits) in SETS.items():
      m = budgets[number]
      size = {"head.num_samples": m}
      lsh = LSH["embedding"]
      if share == "half a per cent":
        yield data, "full", REFERENCE, {}
        own = size | {"head.sampler.per_example": True}
        yield data, "sampled/unigram", f"frequency of its own, m={m}", own
        exact = {"head.num_samples": budgets[1], "head.sampler.exact": m}
        exact |= {"head.loss.corrected": True}
        yield data, lsh, f"LSH union exact, {m} and pps {budgets[1]}", exact
        yield data, lsh, f"LSH half by counts, m={m}", size | HALF
      for head, name in SHARED.items():
        yield data, head, f"{name}, m={m}", size
      if data in LARGE and share == "five per cent":
        continue
      yield data, "sampled/top_k", f"top-k, m={m}", size
      for query, head in LSH.items():
        yield data, head, f"LSH {query}, m={m}", size | ACTIVE
        yield data, head, f"LSH {query} weighted, m={m}", size | WEIGHTED
      if data == "gowalla":
        continue
      mips = {"head.sampler.family": "mips", "head.sampler.codes": bits}
      mips |= size | {"head.sampler.tables": 100}
      yield data, lsh, f"LSH MIPS, m={m}", mips | ACTIVE
      stale = {"head.sampler.rehash": False}
      yield data, lsh, f"LSH MIPS weighted, m={m}", mips | WEIGHTED | stale


def hash_tables():
  """Yields runs with other hash tables, in the form of `runs`.

  They have other numbers of tables and codes, or tables that do not follow the rows
  between two rebuilds.
  """
  for data, tables in HASH_TABLES.items():
    few, many = SETS[data][1]
    for name, fields in tables.items():
      weighted = {"head.num_samples": few} | WEIGHTED | fields
      yield data, LSH["embedding"], f"LSH embedding weighted, {name}, m={few}", weighted
      if data not in LARGE:
        filled = {"head.num_samples": many} | FILLED | fields
        yield data, LSH["label"], f"LSH label filled, {name}, m={many}", filled
  for data in SETS:
    if data not in LARGE:
      few, _ = SETS[data][1]
      for query, head in LSH.items():
        name = f"LSH {query} weighted with old tables, m={few}"
        yield data, head, name, {"head.num_samples": few} | OLD_TABLES


def papers_own():
  """Yields runs of the paper's own procedures, in the form of `runs`.

  They take the classes of buckets until the budget is full, use the paper's loss with
  five per cent also on the large sets, or use the paper's Adam.
  """
  for number in (0, 1):
    for data, (_, budgets, _) in SETS.items():
      m, is_large = budgets[number], number == 1 and data in LARGE
      for query, head in LSH.items():
        size = {"head.num_samples": m}
        if is_large:
          yield data, head, f"LSH {query}, m={m}", size | ACTIVE
          size |= ROOM
        yield data, head, f"LSH {query} filled, m={m}", size | FILLED
  for data in ("citeulike_t", "citeulike_t_uniform"):
    yield data, "full,adam", f"{REFERENCE}{WITH_ADAM}", ADAM_EPOCHS
    for m in SETS[data][1]:
      size = ADAM_EPOCHS | {"head.num_samples": m}
      yield data, "sampled/unigram,adam", f"frequency{WITH_ADAM}, m={m}", size
      head, name = f"{LSH['embedding']},adam", f"LSH embedding filled{WITH_ADAM}"
      room = ROOM if m > 1000 else {}
      yield data, head, f"{name}, m={m}", size | room | FILLED


def sweep(add):
  def run(data, head, name, fields):
    overrides = {"train.epochs": SETS[data][0], "log.monitor_every_steps": 0}
    config = f"configs/xmlc.py:{head},data={data}"
    add(config, overrides | fields, name=f"{data}: {name}")

  every = [*runs(), *hash_tables(), *papers_own()]
  for each in every:
    run(*each)
  for seed in SEEDS[1:]:
    for data, head, name, fields in every:
      if has_seeds(data, name):
        run(data, head, name, fields | {"train.seed": seed})


def has_seeds(data, name):
  """Whether there are runs with all SEEDS.

  On the large sets, these are the runs that take a minute, and the paper's methods with
  the first budget. On the others they are all runs, except for those with Adam, which
  take longer.
  """
  if data not in LARGE:
    return WITH_ADAM not in name
  few, many = SETS[data][1]
  return name in (
    REFERENCE,
    *(f"{method}, m={m}" for method in SHARED.values() for m in (few, many)),
    *(f"{method}, m={few}" for method in MAIN),
    *(f"LSH embedding weighted, {t}, m={few}" for t in HASH_TABLES.get(data, ())),
  )


def metrics():
  epochs = ["epochs_to_50%", "epochs_to_90%"]
  return [*epochs, "speed", "test_p@1", "test_p@5", "test_psp@1"]


def comparison():
  return {"to": REFERENCE, "metric": "test_p@1"}


def derived(record, records):
  """Epochs to 50 % and to 90 % of the full softmax's final precision, and the speed.

  Precision is on validation data; the full softmax has the same seed and optimiser. The
  epochs are inf if the precision is never reached. `speed` is the step time of the full
  softmax divided by that of the method, on an idle core, where both were timed.
  """
  data = record["name"].partition(":")[0]
  if record.get("baseline"):
    return {}
  reference = REFERENCE + (WITH_ADAM if WITH_ADAM in record["name"] else "")
  seed = lambda r: r["overrides"].get("train.seed", SEEDS[0])
  full = [
    r
    for r in records
    if r["name"] == f"{data}: {reference}" and seed(r) == seed(record)
  ]
  if not full:
    return {}
  per_epoch = record["steps"] / record["overrides"]["train.epochs"]
  epochs = {}
  for share in (50, 90):
    goal = share / 100 * full[0]["valid_p@1"]
    curve = record.get("curve_p@1", [])
    reached = (step / per_epoch for step, value, _ in curve if value >= goal)
    epochs[f"epochs_to_{share}%"] = next(reached, float("inf"))
  if "idle_seconds" not in record or "idle_seconds" not in full[0]:
    return epochs
  step_seconds = lambda r: r["idle_seconds"] / r["steps"]
  return epochs | {"speed": step_seconds(full[0]) / step_seconds(record)}


def figures():
  """Figure 4 of the paper, and figure 5 for near-uniform labels."""
  baselines = ("frequency", "log-uniform", "NCE", "top-k")
  over = {"steps": "step", "time": "idle_time"}
  return [
    {
      **{"file": f"precision_over_{axis}_{data}", "x": over[axis], "y": "curve_p@1"},
      "band": True,
      "where": {
        "data": data,
        "method": [REFERENCE, *MAIN, *baselines],
        "head.num_samples": [None, budgets[0]],
        # Values other than the config's are in a table only.
        **{"head.sampler.tables": None, "head.sampler.codes": None},
      },
    }
    for data, (_, budgets, _) in SETS.items()
    for axis in (over if data in TIMED else ("steps",))
  ]
