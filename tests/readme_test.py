"""README: its example runs, its tables are those of the committed results."""

import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import records

ROOT = pathlib.Path(__file__).parents[1]
RUNS = ("full softmax", "sampled, pps, 512")
README = (ROOT / "README.md").read_text()


def test_the_example_trains():
  (example,) = re.findall(r"<!-- example -->\n```python\n(.*?)```", README, re.DOTALL)
  num_classes = 1000
  names = {
    "counts": np.arange(num_classes, 0, -1),
    "network": lambda params, x: jnp.tanh(x @ params["w"]),
  }
  exec(example, names)
  params = {"w": 0.1 * jax.random.normal(jax.random.key(0), (8, 64))}
  x = jax.random.normal(jax.random.key(1), (32, 8))
  labels = np.random.default_rng(0).integers(0, num_classes, 32)
  state, losses = names["head_state"], []
  for step in range(200):
    key = jax.random.key(step)
    params, state, loss = names["train_step"](params, state, x, labels, key)
    losses.append(float(loss))
  assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])


def test_what_it_names_exists():
  for path in re.findall(
    r"(?:configs|scripts|tests|experiments|docs)/[\w/.]+\w", README
  ):
    assert (ROOT / path).exists(), path


def test_the_claims_of_ptb_sampled_hold_in_its_results():
  rows = records.load(ROOT / "experiments" / "ptb_sampled" / "results.jsonl")
  full, sampled = ({row["name"]: row for row in rows}[name] for name in RUNS)
  assert full["test_ppl"] <= 117
  assert sampled["test_ppl"] <= 1.03 * full["test_ppl"]
  assert sampled["train_seconds"] <= full["train_seconds"] / 3


def ppl_of(name: str) -> float:
  """Test perplexity in kernel_bias, mean over seeds."""
  rows = records.load(ROOT / "experiments" / "kernel_bias" / "results.jsonl")
  return float(np.mean([row["test_ppl"] for row in rows if row["name"] == name]))


def test_the_claims_of_kernel_bias_hold_in_its_results():
  num_samples = (10, 20, 40, 80, 160, 320)
  softmax = [ppl_of(f"softmax, m={m}") for m in num_samples]
  assert max(softmax) <= 1.06 * min(softmax)
  assert ppl_of("quadratic, m=10") < ppl_of("uniform, m=320")
  first = [ppl_of(f"{name}, m=10") for name in ("quadratic", "quartic", "softmax")]
  assert first == sorted(first, reverse=True)
  assert ppl_of("quadratic_prior, m=32") <= 1.02 * ppl_of("full softmax")
  assert ppl_of("pps, shared, m=512") <= 1.02 * ppl_of("full softmax")


def test_the_claims_of_likelihood_ptb_hold_in_its_results():
  rows = records.load(ROOT / "experiments" / "likelihood_ptb" / "results.jsonl")
  ppl = {row["name"]: row["test_ppl"] for row in rows}
  own_nll = {row["name"]: row.get("test_self_normalised_nll") for row in rows}
  full = ppl["full softmax"]
  assert round(full) == 320
  for name in ("importance, unigram", "bernoulli, capped"):
    assert ppl[f"{name}, K=100"] < 1.04 * full
    assert ppl[f"{name}, K=500"] < 1.03 * full
  assert ppl["pps, shared, K=500"] < 1.03 * full
  assert ppl["bernoulli, f^alpha, K=100"] > 1.05 * ppl["bernoulli, capped, K=100"]
  few = [
    ppl[f"{name}, K=20"]
    for name in ("blackout", "bernoulli, capped", "importance, f^0.5")
  ]
  assert [round(value) for value in few] == [343, 412, 780]
  assert ppl["blackout, K=500"] < 1.03 * ppl["importance, unigram, K=500"]
  assert ppl["blackout, shared, K=20"] == max(
    value for name, value in ppl.items() if "shared, K=20" in name
  )
  assert ppl["nce, z = 1, K=20"] < 1.01 * ppl["importance, unigram, K=20"]
  for m in (20, 100, 500):
    name = f"nce, z = 1, K={m}"
    assert abs(own_nll[name] - np.log(ppl[name])) < 0.2
  for m in (100, 500):
    assert ppl[f"nce, z = 1, K={m}"] > 1.3 * ppl[f"importance, unigram, K={m}"]
  assert ppl["nce, a learned z, K=100"] > ppl["nce, z = 1, K=100"]
  assert ppl["nce, z of each word before, K=100"] < ppl["nce, z = 1, K=100"]
  for name in ("negative sampling", "ranking, log(V-1)"):
    assert min(ppl[f"{name}, K={m}"] for m in (20, 100, 500)) > 1e4
  assert ppl["ranking, alpha = 1, K=100"] < 1e3


def test_the_claims_of_bench_hold_in_its_results():
  rows = records.load(ROOT / "experiments" / "bench" / "results.jsonl")
  ratio = {row["name"]: row.get("ratio") for row in rows}
  assert round(ratio["sampled step, V=1,000,000 / V=10,000"], 2) == 1.08
  assert round(ratio["sampled step, dense autodiff / rows, V=1,000,000"]) == 78
  update = "update, dense optax / 1,512 rows, V=800,000 D=200"
  assert round(ratio[f"sgd {update}"], -2) == 700
  assert round(ratio[f"adam {update}"], -1) == 260
  sets = "sets of 1,024, capped"
  assert round(ratio[f"{sets}, V=1,000,000 / V=10,000"], 1) == 1.2
  mask = f"{sets}, mask of all classes / bernoulli, V=1,000,000"
  assert round(ratio[mask]) == 163
  assert round(ratio["draws, quadratic, V=1,000,000 / V=10,000, D=16"], 1) == 3.6
  assert round(ratio["draws, all logits / quadratic, V=1,000,000 D=64"]) == 18
  chunks = [v for k, v in ratio.items() if k.startswith("exact softmax in chunks")]
  assert (round(min(chunks), 2), round(max(chunks), 2)) == (0.94, 1.16)
  assert round(ratio["64 draws from buckets, V=1,000,000 / V=10,000"], 1) == 1.3
  step = lambda head: round(ratio[f"training step, full / {head}, V=670,091"])
  assert (step("LSH embedding, m=32"), step("LSH label, m=32")) == (19, 21)
  assert step("LSH embedding, m=128") == 15
  assert step("frequency, m=4096 shared") == 33


def test_the_claims_of_relvar_hold_in_its_results():
  rows = records.load(ROOT / "experiments" / "relvar" / "results.jsonl")
  mean = {row["name"].removesuffix(":num_samples=512"): row["relvar"] for row in rows}
  median = {
    row["name"].removesuffix(":num_samples=512"): row["relvar_median"] for row in rows
  }
  power = "bernoulli:inclusion=power"
  assert 2.3 < mean[power] / mean["bernoulli"] < 2.7
  assert 20 < median[power] / median["bernoulli"] < 26
  assert mean["unigram"] > 2 * mean["pps"]
  assert mean["block:leaf_size=100:num_samples=64"] < mean["pps"] / 9
  for row in rows:  # the estimate is unbiased
    error = 6 * np.sqrt(row["relvar"] / row["draws"])
    assert abs(row["mean_ratio"] - 1) < error, row["name"]


@pytest.mark.parametrize("data", ["diginetica", "video_games"])
def test_the_claims_of_next_item_hold_in_its_results(data):
  rows = records.load(ROOT / "experiments" / "next_item" / "results.jsonl")
  nll = {row["name"]: row["test_nll"] for row in rows}
  full = nll[f"{data}: full softmax"]
  for name in ("quadratic", "quartic", "softmax", "quadratic_prior", "block"):
    assert nll[f"{data}: {name}, m=20"] < nll[f"{data}: unigram, m=20"] - 0.25
    assert abs(nll[f"{data}: {name}, m=160"] - full) < 0.05
  assert nll[f"{data}: unigram, m=20"] < nll[f"{data}: uniform, m=20"]


def test_the_claims_of_negatives_hold_in_its_results():
  rows = records.load(ROOT / "experiments" / "negatives" / "results.jsonl")
  mass = {row["name"]: row["mass"] for row in rows}
  uniform = "citeulike_t_uniform: {}:num_samples=33"
  frequent = mass[uniform.format("unigram")]
  lsh = mass[uniform.format("lsh_embedding:unigram_share=0") + ":codes=3"]
  assert 11 < lsh / frequent < 12
  union = mass["citeulike_t_uniform: lsh_embedding:exact=33:num_samples=1:codes=3"]
  assert 35 < union / frequent < 36
  tags = "citeulike_t: {}:num_samples=265"
  assert mass[tags.format("unigram")] > 10 * mass[tags.format("uniform")]


def test_the_claims_of_xmlc_lns_hold_in_its_results():
  rows = records.load(ROOT / "experiments" / "xmlc_lns" / "results.jsonl")
  p1 = {row["name"]: 100 * row["test_p@1"] for row in rows}
  few = {"citeulike_t": 265, "citeulike_t_uniform": 33, "gowalla": 205}
  few |= {"stdlib_calls": 20, "delicious": 10}
  many = {"citeulike_t_uniform": 330, "stdlib_calls": 196, "delicious": 49}
  full = {data: p1[f"{data}: full softmax"] for data in few}
  lsh = lambda data, m: p1[f"{data}: LSH embedding weighted, m={m}"]
  for data, m in many.items():
    assert full[data] - lsh(data, m) < 1.5
  for data, m in few.items():
    assert lsh(data, m) > p1[f"{data}: frequency of its own, m={m}"]
  assert full["gowalla"] - lsh("gowalla", 205) < 0.6
  assert full["citeulike_t"] - lsh("citeulike_t", 265) < 1.7
  for data, sizes in {"citeulike_t": (265, 2647), "gowalla": (205, 2049)}.items():
    exact = "{}: LSH union exact, {} and pps {}".format(data, *sizes)
    assert full[data] - p1[exact] < 0.6
  static = ("pps", "frequency", "log-uniform", "NCE")
  on_uniform = [p1[f"citeulike_t_uniform: {name}, m=330"] for name in static]
  assert 3.5 < min(on_uniform) < max(on_uniform) < 11.5
  assert min(full["citeulike_t_uniform"], lsh("citeulike_t_uniform", 330)) > 15
  for name in static:
    assert p1[f"citeulike_t: {name}, m=2647"] > full["citeulike_t"] - 1.5
    assert p1[f"gowalla: {name}, m=2049"] > full["gowalla"] - 1.5
    assert p1[f"delicious: {name}, m=49"] < full["delicious"] - 20
    assert p1[f"stdlib_calls: {name}, m=196"] < full["stdlib_calls"] - 3
  for data in ("citeulike_t", "citeulike_t_uniform", "gowalla"):
    assert p1[f"{data}: LSH embedding, m={few[data]}"] < 2


def test_the_claims_of_lst_hold_in_its_results():
  rows = {r["name"]: r for r in records.load(ROOT / "experiments/lst/results.jsonl")}
  ppl = {name: round(row.get("test_ppl", 0)) for name, row in rows.items()}
  assert (ppl["PTB: taylor"], ppl["PTB: spherical"]) == (150, 152)
  assert (ppl["taylor"], ppl["spherical"], ppl["sampled softmax"]) == (949, 984, 682)
  assert ppl["full softmax"] == 1041
  similar = [
    v for r in rows.values() for k, v in r.items() if k.startswith("valid_Sim")
  ]
  assert len(similar) == 10
  assert max(abs(rho) for rho in similar) < 1.5 * 0.033


def test_the_claims_of_lst_speed_hold_in_its_results():
  rows = records.load(ROOT / "experiments" / "lst_speed" / "results.jsonl")
  ratio = {row["name"]: row["ratio"] for row in rows}
  assert round(ratio["factored step, V=10,000,000 / V=10,000, D=64"], 2) == 1.13
  assert ratio["factored step, V=1,000,000 / V=10,000, D=300"] < 1.3
  for where, times in (("output layer", (333, 18)), ("whole model", (175, 19))):
    for head, factor in zip(("factored", "hierarchical"), times, strict=True):
      assert round(ratio[f"{where}, naive / {head}, V=793,471"]) == factor


def test_the_claims_of_adaptive_hold_in_its_results():
  rows = records.load(ROOT / "experiments" / "adaptive" / "results.jsonl")
  full = next(row for row in rows if row["name"] == "full softmax")
  ppl = {row["name"]: row["test_ppl"] / full["test_ppl"] for row in rows}
  assert ppl["adaptive softmax"] < 1.015
  assert round(ppl["sampling"], 2) == 1.29
  assert round(ppl["adaptive softmax (70 %)"], 2) == 1.05
  assert round(ppl["D-softmax [*]"], 2) == 1.02
  assert round(ppl["D-softmax"], 2) == 1.26
  assert round(ppl["HSM (sim)"], 2) == 0.88
  assert ppl["HSM (freq)"] < 1


def test_the_claims_of_adaptive_speed_hold_in_its_results():
  rows = records.load(ROOT / "experiments" / "adaptive_speed" / "results.jsonl")
  by_name = {row["name"]: row for row in rows}
  ratio = {name: row["ratio"] for name, row in by_name.items()}
  predicted = by_name["predicted / measured time, V=100,000"]
  assert round(50 * predicted["within_a_quarter"]) == 48
  assert abs(predicted["worst_error"]) < 0.3
  assert abs(predicted["ratio"] - 1) < 0.06
  assert round(ratio["planned cutoffs / best of 50, V=100,000"], 2) == 0.96
  common = "cutoffs (20000, 60000)"
  for name, figures in {
    f"torch / adaptive, {common}": (1.4, 2.3),
    f"torch, {common} / adaptive, planned": (2.7, 3.7),
    f"adaptive, {common} / adaptive, planned": (1.9, 1.6),
    f"adaptive, {common} / adaptive, planned, 70 %": (4.3, 1.9),
  }.items():
    found = [ratio[f"{name}, V={V:,}"] for V in (100_000, 800_000)]
    assert [round(value, 1) for value in found] == list(figures), name
  step = lambda name: ratio[f"training step, {name} / adaptive softmax, V=67,852"]
  assert round(step("full softmax"), 1) == 6.6
  others = ("sampling", "HSM (freq)", "HSM (sim)", "D-softmax", "D-softmax [*]")
  assert min(map(step, others)) == step("D-softmax") > 1.95
  assert round(step("HSM (Huffman)"), 2) == 0.75


def test_the_claims_of_the_clusters_hold_in_their_records():
  rows = records.load(ROOT / "experiments" / "adaptive" / "clusters.jsonl")
  measured = [row for row in rows if "measured_ms" in row]
  errors = {
    row["run"]: row["predicted_ms"] / row["measured_ms"] - 1 for row in measured
  }
  assert sum(abs(error) <= 0.17 for error in errors.values()) == len(errors) - 1
  ms = {
    row["num_clusters"]: row["measured_ms"]
    for row in measured
    if row["name"] == "clusters"
  }
  (full,) = (row["measured_ms"] for row in rows if row["name"] == "full softmax")
  assert round(full / ms[5]) == 65
  assert ms[2] > 4 * ms[4]
  assert ms[4] < 1.3 * ms[9]
  lists = [row for row in measured if row["name"] == "short list"]
  best = min(lists, key=lambda row: row["measured_ms"])
  assert (best["short_list"], round(best["short_list_mass"], 2)) == (2253, 0.9)


def test_the_claims_of_peers_hold_in_their_results():
  rows = records.load(ROOT / "experiments" / "peers" / "results.jsonl")
  ratio = {row["name"]: row["ratio"] for row in rows}
  sampled = lambda name: [
    ratio[f"sampled step, {name} / rows, V={size} N=512"]
    for size in ("100,000 D=512", "800,000 D=200")
  ]
  torch = [*sampled("sgd: torch"), *sampled("adam: torch")]
  assert (round(min(torch), 1), round(max(torch), 1)) == (1.3, 1.8)
  assert [round(value, 1) for value in sampled("sgd: tensorflow")] == [1.2, 1.6]
  assert [round(value) for value in sampled("adam: tensorflow")] == [13, 78]
  exact = lambda name, D: ratio[
    f"exact softmax: torch {name} / chunks, V=100,000 D={D} N=512"
  ]
  full = [exact("cross_entropy, float32", D) for D in (200, 512)]
  assert [round(value, 1) for value in full] == [1.5, 1.1]
  assert round(exact("cross_entropy, bfloat16", 512), 1) == 0.7
  assert round(exact("linear_cross_entropy, float32", 200)) == 27
  best = [
    ratio[f"top 5: torch / streamed, V={V:,} D=200 N=512"] for V in (100_000, 800_000)
  ]
  assert [round(value, 1) for value in best] == [1.1, 1.3]
