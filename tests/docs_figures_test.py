"""docs: each figure under "Measured" is made again from the committed results.

They are of speed, of the estimates of one trained model, and of softmax regression at
the size of the paper. How well single runs do is said in words, with seeds and length.
"""

import math
import re

import pytest

from tests.claims import (
  BENCH,
  ENGLISH,
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
  Results,
  check,
)

METHODS = sorted(ROOT.glob("docs/methods/*.md"))
EXACT = f"exact training {TOY('exact', 'log_likelihood'):.4f}"
IMPORTANCE = "complement, importance, q=f+1"
FULL, ADAPTIVE = "full softmax", "adaptive softmax"

likelihood = lambda name: TOY(name, "log_likelihood")
bias = lambda name: f"{TOY(name, 'bias_exact'):.1f}"


def seeds(results: Results, name: str) -> str:
  number = len({row["run"] for row in results.rows if row["name"] == name})
  return "one seed" if number == 1 else f"{number} seeds"


def beginning(results: Results, name: str) -> str:
  """How long a run was that did not train to the end."""
  return f"{seeds(results, name)}, first {results.steps(name)}"


def tags(name: str) -> str:
  return f"{seeds(XMLC, name)}, {XMLC.setting(name, 'train.epochs')} epochs"


def full():
  shares = [r["memory_ratio"] for r in BENCH.rows if "in chunks" in r["name"]]
  (memory,) = {f"{share:.2f}" for share in shares}
  return [
    f"At 100,000 classes the chunks take {BENCH.span('softmax in chunks.*V=100,000')}",
    f"{memory} of their temporary memory",
  ]


def sampled():
  growth = BENCH("sampled step, V=1,000,000 / V=10,000", "ratio")
  dense = BENCH("sampled step, dense autodiff / rows, V=1,000,000", "ratio")
  return [
    f"takes {growth:.2f} times as long with a million classes as with ten thousand, "
    f"and 1/{dense:.0f} of one by dense autodiff",
    beginning(ITEMS, "diginetica: pps, shared, m=512"),
    tags("citeulike_t: LSH embedding, m=265"),
    f"training {bias('importance, true class corrected too')}, and "
    f"{bias(IMPORTANCE)} without",
  ]


def nce():
  (classes,) = {row["num_classes"] for row in TOY.rows}
  return [
    beginning(PTB, "nce, z = 1, K=100"),
    f"log likelihood {likelihood('NCE, z=1'):.2f}; knowing nothing has "
    f"{-math.log(classes):.2f}",
    tags("citeulike_t: NCE, m=2647"),
    tags("citeulike_t_uniform: NCE, m=330"),
    BENCH.span(r"^step, nce.* / sampled"),
  ]


def negative_sampling():
  return [
    beginning(PTB, "negative sampling, K=100"),
    f"log likelihood {likelihood('negative sampling'):.2f}, {EXACT}",
    BENCH.span(r"^step, negative_sampling / sampled"),
  ]


def ranking():
  likely = lambda alpha: likelihood(f"ranking, alpha={alpha}")
  return [
    beginning(PTB, "ranking, alpha = 1, K=100"),
    "with log(V-1) than with alpha = 1",
    f"log likelihood {likely(1):.3f} with 1, {likely('log(C-1)'):.4f} with log(V-1), "
    f"{likely(10):.4f} with 10, {EXACT}",
    BENCH.span(r"^step, ranking / sampled"),
  ]


def upper_bound():
  return [f"log likelihood {likelihood('bound, Bernoulli, b=(f+1)^a'):.2f}, {EXACT}"]


def blackout():
  shared = BENCH(
    "step, blackout / sampled, V=100,000 D=64 N=256, 512 negatives, shared", "ratio"
  )
  return [
    beginning(PTB, "blackout, K=20"),
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
  return [
    f"{growth:.2f} times as long with ten million classes as with ten thousand",
    f"At 793,471 it takes 1/{ours[0]:.0f} of the dense step, a whole model "
    f"1/{ours[1]:.0f}, where the paper has 1/{papers[0]:.0f} and 1/{papers[1]:.0f}",
    beginning(LST, "taylor"),
  ]


def step(name=None):
  """A training step over one with `full`; of `adaptive`, to which all are compared."""
  to_adaptive = lambda each: SPEED(
    f"training step, {each} / {ADAPTIVE}, V=67,852", "ratio"
  )
  own = to_adaptive(name) if name else 1
  return f"1/{to_adaptive(FULL) / own:.1f}"


def three_texts(name: str) -> list[str]:
  return [beginning(results, name) for results in (WIKIPEDIA, ENGLISH, FRENCH)]


def adaptive():
  best = SPEED("planned cutoffs / best of 50, V=100,000", "ratio")
  error = SPEED("predicted / measured time, V=100,000", "median_error")
  return [
    *three_texts(ADAPTIVE),
    "70 % in place of 80 % of the text",
    f"takes {step()} of one with `full`. The plan was {best:.2f} times as slow as the "
    "best of 50 random cutoffs, whose times were predicted to a median of "
    f"{100 * error:.0f} %",
  ]


def d_softmax():
  pair = ("D-softmax [*]", "D-softmax")
  return [
    *three_texts(pair[0]),
    f"takes {step(pair[0])} and {step(pair[1])} of one with `full`, `adaptive` "
    f"{step()}",
  ]


def hierarchical():
  layer, whole = (
    LST_SPEED(f"{where}, naive / hierarchical, V=793,471", "ratio")
    for where in ("output layer", "whole model")
  )
  return [
    *three_texts("HSM (sim)"),
    f"At 793,471 classes the output layer takes 1/{layer:.0f} of a dense step, a whole "
    f"model 1/{whole:.0f}",
  ]


def huffman():
  return [f"takes {step('HSM (Huffman)')} of one with `full`"]


def samplers_by_counts():
  relvar = lambda name: RELVAR(f"{name}:num_samples=512", "relvar")
  chi2 = lambda name: f"{LAWS(name, 'chi2'):.0f}"
  slower = lambda name: f"1/{1 / LAWS(name, 'ratio'):.0f}"
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
    beginning(KERNEL, "uniform, m=80"),
    "`pps` with 512 that the batch shares",
  ]


def samplers_by_model():
  chi2 = lambda name: f"{LAWS(name, 'chi2'):.1f}"
  relvar = lambda name: f"{RELVAR(f'{name}:num_samples=64', 'relvar'):.3f}"
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
    beginning(KERNEL, "softmax, m=10"),
    beginning(ITEMS, "diginetica: softmax, m=20"),
    f"from {classes(16):,.0f} classes on at D = 16, from {classes(64):,.0f} at D = 64 "
    f"and from {classes(200):,.0f} at D = 200; {faster:.0f} times as fast at a million "
    "and D = 64",
  ]


def samplers_by_hashing():
  step = lambda head: BENCH(f"training step, full / {head}, V=670,091", "ratio")
  growth = BENCH("64 draws from buckets, V=1,000,000 / V=10,000", "ratio")
  held = lambda name: f"{HARD(f'citeulike_t_uniform: {name}', 'mass'):.3f}"
  index, counts = "ivf:num_samples=480:probes=1", "pps:num_samples=512"
  return [
    f"against `full`: 1/{step('LSH embedding, m=32'):.0f} with 32 of `lsh_embedding`, "
    f"1/{step('LSH embedding, m=128'):.0f} with 128, "
    f"1/{step('LSH label, m=32'):.0f} with 32 of `lsh_label`",
    "Amazon-670K",
    f"takes {growth:.2f} times as long from a million classes as from ten thousand",
    tags("citeulike_t_uniform: LSH embedding weighted, m=330"),
    tags("gowalla: LSH embedding weighted, m=205"),
    "that 33 negatives hold: `lsh_embedding` "
    f"{held('lsh_embedding:unigram_share=0:num_samples=33:codes=3')}, with `exact` "
    f"{held('lsh_embedding:exact=33:num_samples=1:codes=3')}, `unigram` "
    f"{held('unigram:num_samples=33')}, `top_k` {held('top_k:num_samples=33')}",
    f"about 512 classes: relative variance {RELVAR(index, 'relvar'):.3f}, `pps` "
    f"{RELVAR(counts, 'relvar'):.3f}; medians {RELVAR(index, 'relvar_median'):.4f} and "
    f"{RELVAR(counts, 'relvar_median'):.4f}",
  ]


CLAIMS = [
  *(full, sampled, nce, negative_sampling, ranking, blackout, upper_bound),
  *(spherical, adaptive),
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
