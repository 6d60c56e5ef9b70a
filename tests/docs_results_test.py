"""docs/results.md: each figure is made again from the committed results.

A function a section gives its claims, and asserts what the section says in words.
"""

import math
import re

import pytest

from largevocab import command_line
from tests.claims import (
  BENCH,
  FINAL,
  HARD,
  KERNEL,
  LAWS,
  LST,
  LST_SPEED,
  PEERS,
  PTB,
  RELVAR,
  ROOT,
  SPEED,
  TOY,
  WIKIPEDIA,
  XMLC,
  check,
  spread_of_seeds,
)

FULL, PPS = "full softmax", "sampled, pps, 512"
SECTIONS = re.split(
  r"^## (.*)\n", (ROOT / "docs" / "results.md").read_text(), flags=re.MULTILINE
)
SECTION = dict(zip(SECTIONS[1::2], SECTIONS[2::2], strict=True))
# Figures that nobody measured, in phrases, by section.
GIVEN = {
  "Penn Treebank": ["Zaremba et al. 2014"],
  "Which sampler": ["Blanc and Rendle 2018", "figure 2"],
  "Is M large enough?": ["min(1, lam f)"],
  "Likelihood, discrimination or ranking": [
    "Barber and Botev 2016",
    "figure 2",
    "`nce` with z = 1",
    "log(V-1)",
    "alpha = 1",
  ],
  "Extreme classification": ["Daghaghi et al. 2021", "tables 2 to 7 of the paper"],
  "Rare classes at less cost": ["Grave et al. 2017", "table 1", "text8"],
  "Exact steps that do not depend on V": [
    "Vincent et al. 2015",
    "table 1",
    "|o|^2",
    "O(D^2)",
    # What the test asserts that is named there.
    "after 1,000 steps it is off by less than 1e-8 in float64 and 1e-3 in float32",
    "SimLex-999",
  ],
  "Speed": ["Amazon-670K"],
}


def within(values, reference: float) -> str:
  """The largest excess over the reference, rounded up."""
  return f"within {math.ceil(1000 * (max(values) / reference - 1)) / 10:.1f} %"


def constant(path: str, name: str) -> int:
  """What a file says."""
  text = (ROOT / path).read_text()
  (value,) = re.findall(rf"\b{name}(?:: int)? = (\d+)", text)
  return int(value)


def config(results, name: str):
  (argument,) = {row["config"] for row in results.rows if row["name"] == name}
  return command_line.load(str(ROOT / argument))


def penn_treebank():
  ppl, seconds = FINAL.all("test_ppl"), FINAL.all("train_seconds")
  assert len(FINAL.rows) == len(ppl)  # one seed each
  assert ppl[PPS] <= 1.03 * ppl[FULL]
  assert seconds[PPS] <= seconds[FULL] / 3
  epochs, shared = (
    config(FINAL, FULL).train.epochs,
    FINAL.setting(PPS, "head.num_samples"),
  )
  return [f"{epochs:.0f} epochs; {shared} negatives shared by the batch"]


def which_sampler():
  ppl, seconds = KERNEL.all("test_ppl"), KERNEL.all("train_seconds")
  best = "pps, shared, m=512"
  assert seconds[best] == min(seconds.values())
  assert ppl[best] <= 1.02 * ppl[FULL]
  assert min(ppl[f"uniform, m={m}"] for m in (10, 20, 40, 80, 160, 320)) > 600
  assert {row["num_samples"] for row in LAWS.rows} == {64}
  assert {row["num_classes"] for row in LAWS.rows} == {10_000}
  chi2, ratio = LAWS.all("chi2"), LAWS.all("ratio")
  near = ("quadratic_prior:leaf_size=100:leaf=softmax", "block:leaf_size=100")
  others = set(chi2) - {*near, "block:leaf_size=100:mass=unigram", "softmax"}
  assert chi2["quadratic_prior"] == min(chi2[name] for name in others)
  worth = [64 * LAWS(name, "ess_share") for name in near]
  counts = ("unigram", "log_uniform", "bigram", "pps")
  random = [value for name, value in chi2.items() if name.startswith("random_features")]
  assert min(random) > max(chi2[name] for name in counts)
  assert min(ratio["quadratic"], ratio["quadratic_prior"]) > 0.9  # nothing saved
  sketch = "quadratic_prior:leaf_size=100:rank=16"
  features = constant("scripts/random_features.py", "num_features")
  end = lambda name: f"test perplexity {ppl[name]:.0f} after {seconds[name]:.0f} s"
  return [
    f"({KERNEL.steps('uniform, m=10')}; one seed;",
    "normaliser with 64 negatives",
    "V = 10,000:",
    f"`pps` with 512 ends at {end(best)}, where `softmax` with 10 of each token's own "
    f"ends at {end('softmax, m=10')} and `quadratic_prior` with 40 at "
    f"{end('quadratic_prior, m=40')}",
    f"64 draws are worth {worth[1]:.0f} and {worth[0]:.0f} of its own",
    f"positive ones, {features:,} of them",
    "a sketch of 16 coordinates, at "
    f"{chi2[sketch] / chi2['quadratic_prior']:.2f} times the chi2",
  ]


def is_m_large_enough():
  mean = {
    name.removesuffix(":num_samples=512"): value
    for name, value in RELVAR.all("relvar").items()
  }
  power = "bernoulli:inclusion=power"
  others = ("uniform", "unigram", "unigram:power=0.75", power)
  assert max(mean["pps"], mean["bernoulli"]) < min(mean[name] for name in others)
  assert mean["block:leaf_size=100:num_samples=64"] < mean["pps"] / 9
  for row in RELVAR.rows:
    if row["relvar"] < 0.1:
      assert row["log_z_bias"] == pytest.approx(-row["relvar"] / 2, rel=0.15)
    error = 6 * math.sqrt(row["relvar"] / row["draws"])  # the estimate is unbiased
    assert abs(row["mean_ratio"] - 1) < error, row["name"]
  examples = constant("largevocab/heads/sampling.py", "_MONITORED")
  shared = RELVAR("pps:num_samples=512", "classes")
  own = {"quadratic", "quadratic_prior", "block:leaf_size=100", "softmax"}
  assert {f"{name}:num_samples=64" for name in own} <= set(mean)
  return [
    f"from all logits of {examples} examples",
    f"about {shared:.0f} classes that the batch shares, and 64 of each example's own",
    f"f^alpha has {mean[power] / mean['bernoulli']:.1f} times their variance",
  ]


def likelihood_discrimination_or_ranking():
  ppl, seconds = PTB.all("test_ppl"), PTB.all("train_seconds")
  own_nll = PTB.all("test_self_normalised_nll")
  few, some, many = sorted({int(name.partition("K=")[2]) for name in set(ppl) - {FULL}})
  sampled = ("importance, unigram", "bernoulli, capped")
  with_some, with_many = (
    within([ppl[f"{name}, K={m}"] for name in sampled], ppl[FULL]) for m in (some, many)
  )
  shared = f"pps, shared, K={many}"
  assert ppl[shared] < min(ppl[f"{name}, K={many}"] for name in sampled)
  slower = min(seconds[f"{name}, K={many}"] for name in sampled)
  classes = {row["num_classes"] for row in TOY.rows}
  drawn = constant("experiments/likelihood_toy/run.py", "NEGATIVES")

  at = lambda name, m: ppl[f"{name}, K={m}"]
  assert at("bernoulli, f^alpha", some) > 1.05 * at("bernoulli, capped", some)
  assert at("blackout", few) == min(v for k, v in ppl.items() if f"K={few}" in k)
  assert at("blackout", many) < 1.03 * at("importance, unigram", many)
  assert at("blackout, shared", few) == max(
    value for name, value in ppl.items() if f"shared, K={few}" in name
  )
  assert at("nce, z = 1", few) < 1.01 * at("importance, unigram", few)
  for m in (few, some, many):
    assert abs(own_nll[f"nce, z = 1, K={m}"] - math.log(at("nce, z = 1", m))) < 0.2
    assert min(at("negative sampling", m), at("ranking, log(V-1)", m)) > 1e4
  for m in (some, many):
    assert at("nce, z = 1", m) > 1.3 * at("importance, unigram", m)
  assert at("nce, a learned z", some) > at("nce, z = 1", some)
  assert at("nce, z of each word before", some) < at("nce, z = 1", some)
  assert at("ranking, alpha = 1", some) < 1e3
  toy = TOY.all("log_likelihood")
  assert abs(toy["NCE, z=1"] + math.log(*classes)) < 0.05  # as without training
  assert toy["ranking, alpha=log(C-1)"] > toy["ranking, alpha=1"] / 10
  return [
    "softmax regression, {} classes, {} negatives for each".format(*classes, drawn),
    f"(Penn Treebank, {PTB.steps(FULL)}, one seed; test perplexity, exact; the full "
    f"softmax has {ppl[FULL]:.0f}, and seeds differ by {spread_of_seeds():.0f} %)",
    f"With {some} negatives of each token's own, importance and Bernoulli sampling "
    f"come {with_some} of the full softmax, with {many} {with_many}; `pps` gets nearer "
    f"with {many} that the batch shares, in {seconds[shared] / slower:.2f} of the time",
    f"({at('blackout', few):.0f} against {at(sampled[1], few):.0f} with {few}; a "
    f"sampled softmax with BlackOut's law has {at('importance, f^0.5', few):.0f}, so",
    f"level with the others at {many}",
    f"as good as importance sampling with {few} negatives",
  ]


def extreme_classification():
  tags, uniform = "citeulike_t", "citeulike_t_uniform"
  p1 = {name: 100 * value for name, value in XMLC.all("test_p@1").items()}
  ms = XMLC.all("ms_per_step")
  few = {tags: 265, uniform: 33, "gowalla": 205, "stdlib_calls": 20, "delicious": 10}
  many = {uniform: 330, "stdlib_calls": 196, "delicious": 49}
  shared = {tags: 2647, "gowalla": 2049}
  full = {data: p1[f"{data}: {FULL}"] for data in few}
  static = ("pps", "frequency", "log-uniform", "NCE")
  lsh = lambda data, m: f"{data}: LSH embedding weighted, m={m}"
  points = lambda values: f"within {math.ceil(10 * max(values)) / 10:.1f} points"
  behind = lambda data, name: full[data] - p1[name]

  classes = {row["name"].partition(":")[0]: row["num_classes"] for row in HARD.rows}
  shares = {f"{100 * few[data] / V:.1f}" for data, V in classes.items()}
  (percent,), more = shares, 100 * many[uniform] / classes[uniform]
  mass = HARD.all("mass")
  frequent = mass[f"{uniform}: unigram:num_samples=33"]
  drawn = mass[f"{uniform}: lsh_embedding:unigram_share=0:num_samples=33:codes=3"]
  union = mass[f"{uniform}: lsh_embedding:exact=33:num_samples=1:codes=3"]
  of_tags = lambda name: mass[f"{tags}: {name}:num_samples=265"]
  assert of_tags("unigram") > 10 * of_tags("uniform")

  for data, m in few.items():
    assert p1[lsh(data, m)] > p1[f"{data}: frequency of its own, m={m}"]
  like_all = [behind(data, lsh(data, m)) for data, m in many.items()]
  like_all.append(behind("gowalla", lsh("gowalla", few["gowalla"])))
  near = {
    data: [f"{data}: {name}, m={m}" for name in static] for data, m in shared.items()
  }
  for data, names in near.items():
    assert max(ms[name] for name in names) < ms[lsh(data, few[data])]
  for data, margin in (("delicious", 20), ("stdlib_calls", 3)):
    too_few = [f"{data}: {name}, m={many[data]}" for name in static]
    assert min(behind(data, name) for name in too_few) > margin
  on_uniform = [p1[f"{uniform}: {name}, m=330"] / 100 for name in static]
  active = [p1[f"{data}: LSH embedding, m={few[data]}"] for data in (*shared, uniform)]
  as_near = points(behind(data, name) for data in near for name in near[data])
  assert len(full) == 5
  return [
    f"(citeulike-t, {classes[tags]:,} tags; and its near-uniform variant, "
    f"{classes[uniform]:,})? At the same number of draws, {percent} % of the classes",
    f"{drawn / frequent:.0f} times the mass of frequent classes on the near-uniform "
    f"set, and {union / frequent:.0f} times if",
    f"P@1 {points(like_all)} of the full softmax with {more:.0f} % of the classes for "
    f"each example, on Gowalla with {percent} %, and with {percent} % ahead of",
    f"near-uniform, P@1 of the full softmax is {full[uniform] / 100:.2f}, of LSH "
    f"{p1[lsh(uniform, 330)] / 100:.2f}, of static ones {min(on_uniform):.2f} to "
    f"{max(on_uniform):.2f}",
    f"With one, {min(shared.values()):,} classes and more, drawn once for the batch, "
    f"come {as_near}, in less time; {many['delicious']} on Delicious and "
    f"{many['stdlib_calls']} on stdlib_calls do not.",
    f"P@1 is {min(active):.0f} to {max(active):.0f} % on the three sets with most",
  ]


def rare_classes_at_less_cost():
  name, full = "adaptive softmax", WIKIPEDIA(FULL, "test_ppl")
  ppl = {name: value / full for name, value in WIKIPEDIA.all("test_ppl").items()}
  assert ppl["D-softmax [*]"] < 1.03 < 1.2 < ppl["D-softmax"]
  assert ppl["sampling"] > 1.2
  assert ppl["HSM (sim)"] < 0.9 < ppl["HSM (freq)"] < 1
  step = {
    rival: SPEED(f"training step, {rival} / {name}, V=67,852", "ratio")
    for rival in set(ppl) - {name, f"{name} (70 %)"}
  }
  others = [1 / ratio for rival, ratio in step.items() if rival != FULL]
  assert max(others) < 1
  assert SPEED("planned cutoffs / best of 50, V=100,000", "ratio") < 1
  predicted = 50 * SPEED("predicted / measured time, V=100,000", "within_a_quarter")
  common = "cutoffs (20000, 60000)"
  torch, planned = (
    [SPEED(f"{pair}, V={V:,}", "ratio") for V in (100_000, 800_000)]
    for pair in (f"torch / adaptive, {common}", f"torch, {common} / adaptive, planned")
  )
  start = "optimizer.initial_accumulator"
  sums = WIKIPEDIA.setting("sampling", start), config(WIKIPEDIA, name).optimizer
  assert start not in WIKIPEDIA.rows[0]["overrides"]
  power = lambda value: f"{value:.0e}".replace("e-0", "e-")
  return [
    f"{WIKIPEDIA.steps(name).replace(' ', ' small ')}; one seed",
    f"{within([ppl[name]], 1)} of its perplexity",
    f"takes 1/{step[FULL]:.1f} of one with the full softmax, and {min(others):.2f} to "
    f"{max(others):.2f} of one with any other of these",
    "faster than the best of 50 random ones, and the times of "
    f"{predicted:.0f} of the 50 predicted to within 25 %",
    f"takes {torch[0]:.1f} times as long at 100,000 classes and {torch[1]:.1f} at "
    f"800,000, and with the common 20,000 and 60,000 {planned[0]:.1f} and "
    f"{planned[1]:.1f} times as long as ours",
    f"starts them at {power(sums[0])}, the others at "
    f"{power(sums[1].initial_accumulator)})",
    f"{within([FINAL(PPS, 'test_ppl')], FINAL(FULL, 'test_ppl'))} of the full softmax",
  ]


def exact_steps_that_do_not_depend_on_v():
  name = "output layer, naive / factored, V=793,471"
  (row,) = (row for row in LST_SPEED.rows if row["name"] == name)
  growth = LST_SPEED("factored step, V=10,000,000 / V=10,000, D=64", "ratio")
  assert LST_SPEED("factored step, V=1,000,000 / V=10,000, D=300", "ratio") < 1.3
  ppl = lambda name: f"{LST(name, 'test_ppl'):.0f}"
  return [
    f"{row['V']:,} classes, D = {row['D']}, batches of {row['N']}",
    f"takes {growth:.2f} times as long with ten million classes as with ten thousand; "
    f"with {row['V']:,} 1/{row['ratio']:.0f} of the naive step (the paper: "
    f"1/{LST_SPEED.paper(name, 'ratio'):.0f} on its CPU)",
    f"the LSTM of {config(FINAL, FULL).train.epochs:.0f} epochs above: test perplexity "
    f"{ppl('PTB: taylor')} with the Taylor softmax and {ppl('PTB: spherical')} with "
    f"the spherical one, where the softmax has {FINAL(FULL, 'test_ppl'):.0f}",
  ]


def speed():
  ratio = BENCH.all("ratio")
  update, sets = (
    "update, dense optax / 1,512 rows, V=800,000 D=200",
    "sets of 1,024, capped",
  )
  mask = ratio[f"{sets}, mask of all classes / bernoulli, V=1,000,000"]
  draws = ratio["draws, quadratic, V=1,000,000 / V=10,000, D=16"]
  faster = ratio["draws, all logits / quadratic, V=1,000,000 D=64"]
  heads = ("LSH embedding, m=32", "LSH label, m=32", "LSH embedding, m=128")
  step = lambda head: ratio[f"training step, full / {head}, V=670,091"]
  query, label, more = map(step, heads)
  (batch,) = {row["N"] for row in BENCH.rows if "V=670,091" in row["name"]}
  (memory,) = {
    f"{row['memory_ratio']:.2f}" for row in BENCH.rows if "in chunks" in row["name"]
  }
  sampled = lambda peer: [
    PEERS(f"sampled step, {peer} / rows, V={size} N=512", "ratio")
    for size in ("100,000 D=512", "800,000 D=200")
  ]
  torch = [*sampled("sgd: torch"), *sampled("adam: torch")]
  sgd, adam = sampled("sgd: tensorflow"), sampled("adam: tensorflow")
  exact = lambda kind, D: PEERS(
    f"exact softmax: torch cross_entropy, {kind} / chunks, V=100,000 D={D} N=512",
    "ratio",
  )
  return [
    f"takes {ratio['sampled step, V=1,000,000 / V=10,000']:.2f} times as long with a "
    "million classes as with ten thousand, and "
    f"1/{ratio['sampled step, dense autodiff / rows, V=1,000,000']:.0f} of a step",
    f"row updates alone take 1/{ratio[f'sgd {update}']:.0f} (SGD) to "
    f"1/{ratio[f'adam {update}']:.0f} (lazy Adam) of dense ones at 800,000 classes",
    f"set of 1,024 takes {ratio[f'{sets}, V=1,000,000 / V=10,000']:.1f} times as long "
    f"to draw from a million classes as from ten thousand, and 1/{mask:.0f} of drawing",
    f"takes {draws:.1f} times as long over that range at D = 16, and is {faster:.0f} "
    "times as fast as all logits at D = 64 and a million",
    "64 draws from hash tables take "
    f"{ratio['64 draws from buckets, V=1,000,000 / V=10,000']:.1f} times as long",
    f"(670,091 classes, batches of {batch:,}) with 32 negatives for each example from "
    f"them takes 1/{min(query, label):.0f} to 1/{max(query, label):.0f} of one with "
    f"the full softmax, with 128 1/{more:.0f}; with 4,096 shared by frequency "
    f"1/{step('frequency, m=4096 shared'):.0f}",
    f"takes {memory} of the memory of all logits, in {BENCH.span('softmax in chunks')} "
    "the time",
    f"takes torch {min(torch):.1f} to {max(torch):.1f} times as long, and TensorFlow "
    f"{min(sgd):.1f} to {max(sgd):.1f} times with plain SGD, {min(adam):.0f} to "
    f"{max(adam):.0f} times with Adam",
    f"takes torch {exact('float32', 200):.1f} times as long at width 200 and "
    f"{exact('float32', 512):.1f} at 512 in float32, in bfloat16 "
    f"{exact('bfloat16', 200):.1f} and {exact('bfloat16', 512):.1f} times",
  ]


CLAIMS = [
  *(penn_treebank, which_sampler, is_m_large_enough),
  *(likelihood_discrimination_or_ranking, extreme_classification),
  *(rare_classes_at_less_cost, exact_steps_that_do_not_depend_on_v, speed),
]
slug = lambda heading: "_".join(re.findall(r"\w+", heading.lower()))


def test_every_section_has_claims():
  assert [slug(heading) for heading in SECTION] == [f.__name__ for f in CLAIMS]
  assert set(GIVEN) <= set(SECTION)
  check(SECTIONS[0], [])


@pytest.mark.parametrize(("heading", "claims"), list(zip(SECTION, CLAIMS, strict=True)))
def test_figures_are_those_of_the_committed_results(heading, claims):
  check(SECTION[heading], claims(), GIVEN[heading])


def test_a_figure_that_is_changed_or_added_is_found():
  text = "After Ours 2014:\n`m=5` takes 1.08 times\nas long, as [tables](t2.md) show."
  claims, given = ["takes 1.08 times as long"], ["Ours 2014"]
  check(text, claims, given)
  for old, new in (("1.08", "1.09"), ("1.08", "1.080"), ("2014", "2015")):
    with pytest.raises(AssertionError, match="should say"):
      check(text.replace(old, new), claims, given)
  for more in (" It has 7 more.", " Of 11.08 times.", " In 2014."):
    with pytest.raises(AssertionError, match="nothing makes anew"):
      check(text + more, claims, given)
