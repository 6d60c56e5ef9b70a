"""docs: each figure under "Measured" is made again from the committed results."""

import math
import re

import pytest

from tests.claims import (
  BENCH,
  ENGLISH,
  FINAL,
  FRENCH,
  HARD,
  ITEMS,
  KERNEL,
  LAWS,
  LST,
  LST_SPEED,
  PTB,
  RELVAR,
  ROOT,
  SPEED,
  TOY,
  WIKIPEDIA,
  XMLC,
  check,
)

METHODS = sorted(ROOT.glob("docs/methods/*.md"))
EXACT = f"exact training {TOY('exact', 'log_likelihood'):.4f}"

ptb = lambda name: f"{PTB(name, 'test_ppl'):,.1f}"
likelihood = lambda name: TOY(name, "log_likelihood")
bias = lambda name: f"{TOY(name, 'bias_exact'):.1f}"
IMPORTANCE = "complement, importance, q=f+1"


def full():
  shares = [r["memory_ratio"] for r in BENCH.rows if "in chunks" in r["name"]]
  (memory,) = {f"{share:.2f}" for share in shares}
  ppl, paper = (f("full softmax", "test_ppl") for f in (FINAL, FINAL.paper))
  return [
    f"At 100,000 classes the chunks take {BENCH.span('softmax in chunks.*V=100,000')}",
    f"{memory} of their temporary memory",
    f"test perplexity {ppl:.1f}, where its paper has {paper}",
  ]


def sampled():
  exact, pps = "full softmax", "sampled, pps, 512"
  share = FINAL(pps, "train_seconds") / FINAL(exact, "train_seconds")
  growth = BENCH("sampled step, V=1,000,000 / V=10,000", "ratio")
  dense = BENCH("sampled step, dense autodiff / rows, V=1,000,000", "ratio")
  shop = lambda name: [
    ITEMS(f"diginetica: {name}", metric) for metric in ("test_nll", "train_seconds")
  ]
  few, all_items = shop("pps, shared, m=512"), shop(exact)
  active, weighted = (
    XMLC(f"citeulike_t: LSH embedding{how}, m=265", "test_p@1")
    for how in ("", " weighted")
  )
  return [
    f"512 shared: test perplexity {FINAL(pps, 'test_ppl'):.1f}, `full` "
    f"{FINAL(exact, 'test_ppl'):.1f}, in {share:.2f} of its time",
    f"takes {growth:.2f} times as long with a million classes as with ten thousand, "
    f"and 1/{dense:.0f} of one by dense autodiff",
    "nll {:.2f} after {:.0f} s, `full` {:.2f} after {:.0f} s".format(*few, *all_items),
    f"P@1 {active:.3f}, weighted {weighted:.3f}",
    f"training {bias('importance, true class corrected too')}, and "
    f"{bias(IMPORTANCE)} without",
  ]


def nce():
  one = "nce, z = 1, K=100"
  p1 = lambda name: f"{XMLC(name, 'test_p@1'):.3f}"
  return [
    f"Penn Treebank, {PTB.steps(one)}",
    f"with 20 {ptb('nce, z = 1, K=20')}, where `sampled/unigram` has "
    f"{ptb('importance, unigram, K=20')}; with 100 {ptb(one)}, and it "
    f"{ptb('importance, unigram, K=100')}.",
    f"With 100 and one learned z {ptb('nce, a learned z, K=100')}, with a z for each "
    f"word before {ptb('nce, z of each word before, K=100')}.",
    f"nll is {PTB(one, 'test_self_normalised_nll'):.2f} with 100, the true one "
    f"{math.log(PTB(one, 'test_ppl')):.2f}",
    f"log likelihood {likelihood('NCE, z=1'):.2f}; knowing nothing has "
    f"{-math.log(1000):.2f}",
    f"Tags, 2,647 shared: P@1 {p1('citeulike_t: NCE, m=2647')}, `full` "
    f"{p1('citeulike_t: full softmax')}; near-uniform tags, 330 shared: "
    f"{p1('citeulike_t_uniform: NCE, m=330')}, `full` "
    f"{p1('citeulike_t_uniform: full softmax')}",
    BENCH.span(r"^step, nce.* / sampled"),
  ]


def negative_sampling():
  name = "negative sampling, K=100"
  return [
    f"{PTB.steps(name)}, 100 negatives of each",
    f"perplexity {PTB(name, 'test_ppl'):,.0f}, `full` {ptb('full softmax')}, and "
    f"recall@10 {PTB(name, 'test_recall@10'):.3f}",
    f"log likelihood {likelihood('negative sampling'):.2f}, {EXACT}",
    BENCH.span(r"^step, negative_sampling / sampled"),
  ]


def ranking():
  large, one = "ranking, log(V-1), K=100", "ranking, alpha = 1, K=100"
  recall = lambda name: f"{PTB(name, 'test_recall@10'):.3f}"
  assert PTB(large, "test_ppl") > 20e6
  likely = lambda alpha: likelihood(f"ranking, alpha={alpha}")
  return [
    f"{PTB.steps(one)}, 100 negatives of each",
    f"recall@10 {recall(large)} with log(V-1) and {recall(one)} with 1, `full` "
    f"{recall('full softmax')}; perplexity {ptb(one)} with 1, and above 20 million "
    "with log(V-1)",
    f"log likelihood {likely(1):.3f} with 1, {likely('log(C-1)'):.4f} with log(V-1), "
    f"{likely(10):.4f} with 10, {EXACT}",
    BENCH.span(r"^step, ranking / sampled"),
  ]


def blackout():
  shared = BENCH(
    "step, blackout / sampled, V=100,000 D=64 N=256, 512 negatives, shared", "ratio"
  )
  return [
    f"{PTB.steps('blackout, K=20')}, test perplexity (`full` {ptb('full softmax')}): "
    f"with 20 negatives of each token's own {ptb('blackout, K=20')}, where "
    f"`sampled/bernoulli` has {ptb('bernoulli, capped, K=20')}, and `sampled` with the "
    f"same law {ptb('importance, f^0.5, K=20')}; with 500 {ptb('blackout, K=500')}, "
    f"`sampled/unigram` {ptb('importance, unigram, K=500')}",
    f"with 20 {PTB('blackout, shared, K=20', 'test_ppl'):,.0f}, with 500 "
    f"{ptb('blackout, shared, K=500')}, `sampled/pps` {ptb('pps, shared, K=500')}",
    f"training {bias('BlackOut')}, of `sampled` {bias(IMPORTANCE)}",
    f"takes {shared:.2f} times that of `sampled` with shared negatives, "
    f"{BENCH.span('^step, blackout / sampled.*own')}",
  ]


def spherical():
  growth = LST_SPEED("factored step, V=10,000,000 / V=10,000, D=64", "ratio")
  at = "{}, naive / factored, V=793,471"
  ours, papers = (
    [f(at.format(where), "ratio") for where in ("output layer", "whole model")]
    for f in (LST_SPEED, LST_SPEED.paper)
  )
  ppl = lambda name: f"{LST(name, 'test_ppl'):.0f}"
  (steps,) = {r["steps"] for r in LST.rows if r["name"] in ("taylor", "spherical")}
  return [
    f"{growth:.2f} times as long with ten million classes as with ten thousand",
    f"At 793,471 it takes 1/{ours[0]:.0f} of the dense step, a whole model "
    f"1/{ours[1]:.0f}, where the paper has 1/{papers[0]:.0f} and 1/{papers[1]:.0f}",
    f"which has {FINAL('full softmax', 'test_ppl'):.0f}: test perplexity "
    f"{ppl('PTB: taylor')} (`taylor`) and {ppl('PTB: spherical')} (`spherical`)",
    f"{steps:,} steps: {ppl('taylor')} and {ppl('spherical')}, `sampled` "
    f"{ppl('sampled softmax')}",
  ]


def in_adaptive(results, *names):
  """Perplexities of heads on a set, the last of which is `full`."""
  return [f"{results(name, 'test_ppl'):.1f}" for name in (*names, "full softmax")]


def step(name=None):
  """A training step over one with `full`; of `adaptive`, to which all are compared."""
  to_adaptive = lambda each: SPEED(
    f"training step, {each} / adaptive softmax, V=67,852", "ratio"
  )
  own = to_adaptive(name) if name else 1
  return f"1/{to_adaptive('full softmax') / own:.1f}"


def adaptive():
  name = "adaptive softmax"
  less = f"{WIKIPEDIA(f'{name} (70 %)', 'test_ppl'):.1f}"
  own, exact = in_adaptive(WIKIPEDIA, name)
  english, english_full = in_adaptive(ENGLISH, name)
  french, french_full = in_adaptive(FRENCH, name)
  best = SPEED("planned cutoffs / best of 50, V=100,000", "ratio")
  error = SPEED("predicted / measured time, V=100,000", "median_error")
  return [
    f"{WIKIPEDIA.steps(name)}: test perplexity {own}, `full` {exact}; {less} with 70 % "
    "in place of 80 %",
    f"English, {ENGLISH.steps(name)}: {english}, `full` {english_full}",
    f"French, {FRENCH.steps(name)}: {french}, `full` {french_full}",
    f"takes {step()} of one with `full`. The plan was {best:.2f} times as slow as the "
    "best of 50 random cutoffs, whose times were predicted to a median of "
    f"{100 * error:.0f} %",
  ]


def d_softmax():
  pair = ("D-softmax [*]", "D-softmax")
  both = "{} and {}, `full` {}"
  return [
    f"{WIKIPEDIA.steps(pair[0])}: {both.format(*in_adaptive(WIKIPEDIA, *pair))}",
    f"takes {step(pair[0])} and {step(pair[1])} of one with `full`, `adaptive` "
    f"{step()}",
    f"English: {both.format(*in_adaptive(ENGLISH, *pair))}",
    f"French: {both.format(*in_adaptive(FRENCH, *pair))}",
  ]


def hierarchical():
  pair = ("HSM (sim)", "HSM (freq)")
  both = "{} and {}, `full` {}"
  layer, whole = (
    LST_SPEED(f"{where}, naive / hierarchical, V=793,471", "ratio")
    for where in ("output layer", "whole model")
  )
  brown, root, exact = in_adaptive(WIKIPEDIA, *pair)
  return [
    f"Wikipedia, {WIKIPEDIA.steps(pair[0])}: 'brown' {brown}, 'sqrt' {root}, `full` "
    f"{exact}",
    f"English: {both.format(*in_adaptive(ENGLISH, *pair))}",
    f"French: {both.format(*in_adaptive(FRENCH, *pair))}",
    f"At 793,471 classes the output layer takes 1/{layer:.0f} of a dense step, a whole "
    f"model 1/{whole:.0f}",
  ]


def huffman():
  return [f"takes {step('HSM (Huffman)')} of one with `full`"]


def samplers_by_counts():
  relvar = lambda name: RELVAR(f"{name}:num_samples=512", "relvar")
  chi2 = lambda name: f"{LAWS(name, 'chi2'):.0f}"
  slower = lambda name: f"1/{1 / LAWS(name, 'ratio'):.0f}"
  ppl = lambda name: f"{KERNEL(name, 'test_ppl'):,.1f}"
  batch = RELVAR("pps:num_samples=512:exact_batch=true", "relvar")
  return [
    f"about 512 shared classes, Penn Treebank: `pps` {relvar('pps'):.3f}, `bernoulli` "
    f"{relvar('bernoulli'):.3f}, with 'power' "
    f"{relvar('bernoulli:inclusion=power'):.3f}, `unigram` {relvar('unigram'):.3f} "
    f"(with `power=0.75` {relvar('unigram:power=0.75'):.3f}), `uniform` "
    f"{relvar('uniform'):.2f}; `pps` with `exact_batch` {batch:.3f}",
    f"chi2 against the softmax of a trained model: `uniform` {chi2('uniform')}, "
    f"`unigram` {chi2('unigram')}, `log_uniform` {chi2('log_uniform')}, `pps` "
    f"{chi2('pps')}, `bigram` {chi2('bigram')}; a draw takes {slower('pps')} of one "
    f"from the softmax with `pps`, {slower('bigram')} with `bigram`",
    f"with 80 negatives of each token's own, {KERNEL.steps('uniform, m=80')}: "
    f"`uniform` {KERNEL('uniform, m=80', 'test_ppl'):,.0f}, `unigram` "
    f"{ppl('unigram, m=80')}, `bigram` {ppl('bigram, m=80')}; `pps` with 512 shared "
    f"{ppl('pps, shared, m=512')}, `full` {ppl('full softmax')}",
  ]


def samplers_by_model():
  chi2 = lambda name: f"{LAWS(name, 'chi2'):.1f}"
  relvar = lambda name: f"{RELVAR(f'{name}:num_samples=64', 'relvar'):.3f}"
  ppl = lambda name: f"{KERNEL(f'{name}, m=10', 'test_ppl'):.1f}"
  nll = lambda name: f"{ITEMS(f'diginetica: {name}, m=20', 'test_nll'):.2f}"
  exact, exact_absolute = (
    f"{KERNEL(f'full {kind}softmax', 'test_ppl'):.1f}" for kind in ("", "absolute ")
  )
  classes = lambda dim: BENCH(
    f"classes from which quadratic draws faster than all logits, D={dim}", "break_even"
  )
  faster = BENCH("draws, all logits / quadratic, V=1,000,000 D=64", "ratio")
  return [
    f"chi2 against the softmax of a trained model, 10,000 classes: `quadratic` "
    f"{chi2('quadratic')}, `quadratic_prior` {chi2('quadratic_prior')}, with "
    f"`leaf='softmax'` {chi2('quadratic_prior:leaf_size=100:leaf=softmax')}, `block` "
    f"{chi2('block:leaf_size=100')} (`leaf_size=100`), `unigram` "
    f"{LAWS('unigram', 'chi2'):.0f}",
    f"with 64 draws of each example's own: `quadratic` {relvar('quadratic')}, "
    f"`quadratic_prior` {relvar('quadratic_prior')}, `block` "
    f"{relvar('block:leaf_size=100')}, `softmax` {relvar('softmax')}; 512 shared `pps` "
    f"{RELVAR('pps:num_samples=512', 'relvar'):.3f}",
    f"{KERNEL.steps('softmax, m=10')}, 10 negatives: `softmax` {ppl('softmax')}, "
    f"`quadratic_prior` {ppl('quadratic_prior')}, `block` {ppl('block')}, `unigram` "
    f"{ppl('unigram')}, `full` {exact}; with |o| `quartic` {ppl('quartic')}, "
    f"`quadratic` {ppl('quadratic')}, `full` {exact_absolute}",
    f"20 negatives, nll: `quartic` {nll('quartic')}, `softmax` {nll('softmax')}, "
    f"`block` {nll('block')}, `quadratic_prior` {nll('quadratic_prior')}, `quadratic` "
    f"{nll('quadratic')}, `unigram` {nll('unigram')}, `full` "
    f"{ITEMS('diginetica: full softmax', 'test_nll'):.2f}",
    f"from {classes(16):,.0f} classes on at D = 16, from {classes(64):,.0f} at D = 64 "
    f"and from {classes(200):,.0f} at D = 200; {faster:.0f} times as fast at a million "
    "and D = 64",
  ]


def samplers_by_hashing():
  step = lambda head: BENCH(f"training step, full / {head}, V=670,091", "ratio")
  growth = BENCH("64 draws from buckets, V=1,000,000 / V=10,000", "ratio")
  p1 = lambda name: f"{XMLC(name, 'test_p@1'):.3f}"
  tags = lambda name: p1(f"citeulike_t_uniform: {name}, m=330")
  places = lambda name: p1(f"gowalla: {name}, m=205")
  methods = ("LSH embedding weighted", "LSH label weighted", "top-k", "pps")
  held = lambda name: f"{HARD(f'citeulike_t_uniform: {name}', 'mass'):.3f}"
  index, counts = "ivf:num_samples=480:probes=1", "pps:num_samples=512"
  return [
    f"against `full`: 1/{step('LSH embedding, m=32'):.0f} with 32 of `lsh_embedding`, "
    f"1/{step('LSH embedding, m=128'):.0f} with 128, "
    f"1/{step('LSH label, m=32'):.0f} with 32 of `lsh_label`",
    "Amazon-670K",
    f"takes {growth:.2f} times as long from a million classes as from ten thousand",
    "P@1, near-uniform tags, 330 negatives: `lsh_embedding` {}, `lsh_label` {}, "
    "`top_k` {}, shared `pps` {}, `full` {}".format(
      *map(tags, methods), p1("citeulike_t_uniform: full softmax")
    ),
    "Places of Gowalla, 205: {}, {}, {}, {}, `full` {}".format(
      *map(places, methods), p1("gowalla: full softmax")
    ),
    f"`lsh_embedding` has {tags('LSH embedding')} and {places('LSH embedding')}",
    "that 33 negatives hold: `lsh_embedding` "
    f"{held('lsh_embedding:unigram_share=0:num_samples=33:codes=3')}, with `exact` "
    f"{held('lsh_embedding:exact=33:num_samples=1:codes=3')}, `unigram` "
    f"{held('unigram:num_samples=33')}, `top_k` {held('top_k:num_samples=33')}",
    f"about 512 classes: relative variance {RELVAR(index, 'relvar'):.3f}, `pps` "
    f"{RELVAR(counts, 'relvar'):.3f}; medians {RELVAR(index, 'relvar_median'):.4f} and "
    f"{RELVAR(counts, 'relvar_median'):.4f}",
  ]


CLAIMS = [
  *(full, sampled, nce, negative_sampling, ranking, blackout, spherical, adaptive),
  *(d_softmax, hierarchical, huffman),
  *(samplers_by_counts, samplers_by_model, samplers_by_hashing),
]


def test_every_page_of_a_method_has_claims():
  assert {f.__name__ for f in CLAIMS} == {page.stem for page in METHODS}


@pytest.mark.parametrize("claims", CLAIMS, ids=lambda f: f.__name__)
def test_figures_are_those_of_the_committed_results(claims):
  page = (ROOT / "docs" / "methods" / f"{claims.__name__}.md").read_text()
  (section,) = re.findall(r"^## Measured\n(.*?)^## ", page, re.DOTALL | re.MULTILINE)
  check(section, claims())
