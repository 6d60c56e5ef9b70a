"""Tables 2, 3 and 4 of paper 002 (methods and budgets), and 5 to 7 (hash tables)."""

# Epochs; budgets of half a per cent and of five per cent of the classes.
SETS = {
  "citeulike_t": (5, (265, 2647)),
  "citeulike_t_uniform": (8, (33, 330)),
  "stdlib_calls": (8, (20, 196)),
  "delicious": (6, (10, 49)),
  "gowalla": (5, (205, 2049)),
}
LARGE = ("citeulike_t", "gowalla")  # five per cent for each example take too long
SHARED = {
  "sampled/pps": "pps",
  "sampled/unigram": "frequency",
  "sampled/log_uniform": "log-uniform",
  "nce/log_uniform": "NCE",
}
# The paper's: the softmax over what the tables give, built anew every 50 steps.
ACTIVE = {"head.corrected": False, "head.sampler.rehash": False}
HALF = {"head.corrected": False, "head.sampler.unigram_share": 0.5}
WEIGHTED = {"head.corrected": True, "head.sampler.unigram_share": 0.5}
TABLES = ({"tables": 10}, {"tables": 25}, {"tables": 100}, {"codes": 3}, {"codes": 5})
REFERENCE = "full softmax"


def sweep(add):
  for data, (epochs, (few, many)) in SETS.items():

    def run(head, name, fields, data=data, epochs=epochs):
      length = {"train.epochs": epochs, "log.monitor_every_steps": 0}
      config = f"configs/xmlc.py:{data},head={head}"
      add(config, length | fields, name=f"{data}: {name}")

    run("full", REFERENCE, {})
    for m in (few, many):
      size = {"head.num_samples": m}
      is_dear = data in LARGE and m == many
      for query in () if is_dear else ("embedding", "label"):
        lsh = f"sampled/lsh_{query}"
        run(lsh, f"LSH {query}, m={m}", size | ACTIVE)
        run(lsh, f"LSH {query} weighted, m={m}", size | WEIGHTED)
      if not is_dear:
        run("sampled/top_k", f"top-k, m={m}", size)
      for head, name in SHARED.items():
        run(head, f"{name}, m={m}", size)
    lsh = "sampled/lsh_embedding"
    size = {"head.num_samples": few}
    run(lsh, f"LSH half by counts, m={few}", size | HALF)
    exact = {"head.num_samples": many, "head.sampler.exact": few}
    run(lsh, f"LSH union exact, {few} and pps {many}", exact | {"head.corrected": True})
    if data == "citeulike_t":
      for hashing in TABLES:
        ((key, value),) = hashing.items()
        letter = {"tables": "L", "codes": "K"}[key]
        fields = size | WEIGHTED | {f"head.sampler.{key}": value}
        run(lsh, f"LSH embedding weighted, {letter}={value}, m={few}", fields)
      size = {"head.num_samples": many}
      wide = {"head.sampler.tables": 400}
      run(lsh, f"LSH embedding, L=400, m={many}", size | ACTIVE | wide)
      run(lsh, f"LSH embedding weighted, m={many}", size | WEIGHTED)


def metrics():
  return ["epochs_to_50%", "epochs_to_90%", "test_p@1", "test_p@5", "test_psp@1"]


def derived(record, records):
  """When precision on validation data reached half, and nine tenths, of what the full
  softmax ended at; inf: never."""
  data = record["name"].partition(":")[0]
  full = next(r for r in records if r["name"] == f"{data}: {REFERENCE}")
  per_epoch = record["steps"] / record["overrides"]["train.epochs"]
  curve = [*record["curve_p@1"], [record["steps"], record["valid_p@1"], 0]]
  epochs = {}
  for share in (50, 90):
    goal = share / 100 * full["valid_p@1"]
    reached = (step / per_epoch for step, value, _ in curve if value >= goal)
    epochs[f"epochs_to_{share}%"] = next(reached, float("inf"))
  return epochs
