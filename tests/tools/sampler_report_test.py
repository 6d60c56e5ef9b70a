"""The report on samplers, against naive formulas and actual draws."""

import dataclasses
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

from largevocab import config, main
from largevocab.errors import UserError
from largevocab.labels import Counts, Targets, single_targets
from largevocab.samplers import MIDX, SAMPLERS
from largevocab.tools import sampler_report, tabulate
from largevocab.tools.reports import measure, positions
from largevocab.tools.reports.random_features import random_feature_law
from largevocab.training.state import restore
from tests.long import others_long

REPOSITORY = pathlib.Path(sampler_report.__file__).parents[2]
M = 16


def tiny_run(path, absolute):
  """A run whose softmax is far from flat."""
  flags = ["--config.head.init_scale=3.0", f"--config.head.absolute={absolute}"]
  given = f"--config={REPOSITORY}/configs/ptb.py:full,runlocal"
  assert main.run(["main", given, f"--workdir={path}", *flags]) == 0
  return str(path)


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
  return tiny_run(tmp_path_factory.mktemp("run"), absolute=False)


@pytest.fixture(autouse=True)
def short_turns(monkeypatch):
  monkeypatch.setattr(sampler_report, "SECONDS", 0.01)
  monkeypatch.setattr(measure, "TURN_SECONDS", 0.001)


def naive(workdir):
  """p f64[N, V] and the true classes at all positions, one stream at a time."""
  exp = config.build(config.of_workdir(workdir))
  corpus, state = restore(exp, workdir, "latest")
  length = -(-len(corpus.valid) // exp.eval.batch_size)
  before = np.append(corpus.vocabulary.eos, corpus.valid[:-1])
  parts = []
  for start in range(0, len(corpus.valid), length):
    rows_BTE = state.inputs.w_VD[before[start : start + length]][None]
    carry = exp.model.initial_carry(1)
    h_BTD, _ = exp.model.apply({"params": state.params}, rows_BTE, carry)
    parts.append(np.float64(h_BTD[0]))
  h_ND, w_VD = np.concatenate(parts), np.float64(state.head.table.w_VD)
  dim = h_ND.shape[1]
  o_NV = h_ND @ w_VD[:, :dim].T + w_VD[None, :, dim]
  e_NV = np.exp(np.abs(o_NV) if exp.head.absolute else o_NV)
  return corpus, e_NV / e_NV.sum(axis=1, keepdims=True), np.array(corpus.valid)


@pytest.mark.parametrize("absolute", others_long([False, True], [True]))
def test_figures_match_naive_formulas(workdir, absolute, tmp_path, capsys):
  workdir = tiny_run(tmp_path / "run", absolute) if absolute else workdir
  tmp_path = tmp_path / "report"
  args = [f"--workdir={workdir}", "--samplers=unigram,softmax", "--positions=100000"]
  args += [f"--num_samples={M}", "--chunk=7", f"--output={tmp_path}/report.jsonl"]
  assert sampler_report.main(args) == 0
  lines = (tmp_path / "report.jsonl").read_text().splitlines()
  unigram, softmax = map(json.loads, lines)

  corpus, p_NV, y_N = naive(workdir)
  q_V = (corpus.vocabulary.counts_V + 1) / (corpus.vocabulary.counts_V + 1).sum()
  tv_N, chi2_N, relvar_N = [], [], []
  for p_V, y in zip(p_NV, y_N, strict=True):
    tv_N.append(0.5 * np.abs(p_V - q_V).sum())
    chi2_N.append((p_V**2 / q_V).sum() - 1)
    p_V, q_rest = np.delete(p_V, y), np.delete(q_V, y)
    relvar_N.append(((p_V**2 / q_rest).sum() - p_V.sum() ** 2) / M)
  assert unigram["positions"] == len(y_N)
  assert unigram["tv"] == pytest.approx(np.mean(tv_N), rel=1e-4)
  assert unigram["chi2"] == pytest.approx(np.mean(chi2_N), rel=1e-4)
  assert unigram["chi2_median"] == pytest.approx(np.median(chi2_N), rel=1e-4)
  assert unigram["relvar"] == pytest.approx(np.mean(relvar_N), rel=1e-4)
  ess = np.mean(M / (1 + np.array(chi2_N)))
  assert unigram["ess"] == pytest.approx(ess, rel=1e-4)
  assert unigram["chi2"] > 0.1

  assert 0 <= softmax["chi2"] < 1e-6
  assert softmax["ess"] == pytest.approx(M, rel=1e-6)
  assert unigram["ms"] > 0

  assert {path.suffix for path in tmp_path.iterdir()} == {".jsonl", ".png", ".svg"}
  assert "| unigram |" in capsys.readouterr().out
  # The tool `tabulate` can read the file.
  assert tabulate.main([str(tmp_path / "report.jsonl")]) == 0


def test_positions_are_spread_over_the_validation_data(workdir):
  exp = config.build(config.of_workdir(workdir))
  corpus, state = restore(exp, workdir, "latest")
  batches = corpus.evaluation_batches("valid", exp.eval.batch_size, exp.eval.unroll)
  take = lambda num: positions.positions_of(
    exp, state, batches, num, corpus.counts.num_classes
  )
  every, some = take(10**6), take(7)
  assert len(every.x_ND) == len(corpus.valid)
  rows_ND = np.array(every.x_ND)
  where = [np.flatnonzero((rows_ND == x_D).all(1))[0] for x_D in np.array(some.x_ND)]
  assert len(where) == 7
  gaps = np.diff(where)
  assert gaps.max() - gaps.min() <= 1
  assert (where[0], where[-1]) == (0, len(corpus.valid) - 1)
  np.testing.assert_array_equal(some.y.ids_NP, np.array(every.y.ids_NP)[where])


# The law leaves out classes that are summed exactly: the report skips such samplers.
WITH_EXACT_SETS = {"ivf"}


# One random number places all draws, so that they are spread over the classes: the
# variance is below the formula's, which is that of independent draws (here by 13 %).
SYSTEMATIC = {"pps"}


# `top_k`, `sce` and `rece` always leave out the same classes, so no number of draws is
# enough. The draws of `in_batch` and `cbns` do not depend on the key.
WITHOUT_CHANCE = {"top_k", "sce", "rece", "in_batch", "cbns"}


@pytest.mark.long
def test_report_covers_every_kind_of_sampler_and_random_features(
  workdir, tmp_path, capsys
):
  """The laws of all other samplers are compared with their draws below."""
  shown = ["unigram", "softmax", "pps", "quadratic_prior", "lsh_embedding", "top_k"]
  left_out = {
    **dict.fromkeys(WITHOUT_CHANCE - {"top_k"}, "its law depends on other examples"),
    **dict.fromkeys(WITH_EXACT_SETS, "it sums classes exactly"),
    "block:whole_leaves=true": "its draws depend on one another; drop whole_leaves",
  }
  names = ",".join([*shown, *sorted(left_out), sampler_report.RANDOM_FEATURES])
  args = [f"--workdir={workdir}", "--positions=20", f"--output={tmp_path}/report.jsonl"]
  assert sampler_report.main([*args, f"--samplers={names}"]) == 0
  lines = capsys.readouterr().err.splitlines()
  for line, (name, why) in zip(lines, sorted(left_out.items()), strict=True):
    assert line.startswith(f"without {name}: {why}")
  rows = (tmp_path / "report.jsonl").read_text().splitlines()
  chi2 = {row["name"]: row["chi2"] for row in map(json.loads, rows)}
  features = [f"random_features, scale {scale}" for scale in (2, 4, 8)]
  assert list(chi2) == [*shown, *features]
  assert chi2["softmax"] < chi2["unigram"]
  assert min(value for name, value in chi2.items() if "random" in name) > 0.01


@pytest.mark.parametrize(
  "name",
  others_long(
    sorted(SAMPLERS.keys() - WITH_EXACT_SETS - WITHOUT_CHANCE),
    ["pps", "bigram", "quadratic", "bernoulli"],
  ),
)
def test_variance_matches_actual_draws(name):
  """For each sampler; this checks that its draws are as independent as assumed."""
  num_classes, n, m, repeats = 60, 5, 12, 4000
  rng = np.random.default_rng(0)
  tokens = (num_classes * rng.random(3000) ** 3).astype(np.int32)
  counts = Counts(np.bincount(tokens, minlength=num_classes), tokens)
  w_VD = jnp.asarray(0.5 * rng.normal(size=(num_classes, 8)), jnp.float32)
  x_ND = jnp.asarray(rng.normal(size=(n, 8)), jnp.float32)
  y = single_targets(rng.integers(0, num_classes, n))
  sampler = config.part("sampler", name)
  if hasattr(sampler, "absolute"):
    sampler = dataclasses.replace(sampler, absolute=False)
  stats = sampler.init(counts, w_VD, m)
  p_NV = softmax(np.float64(x_ND @ w_VD.T), axis=1)
  law = sampler_report.sampler_law(sampler, stats, w_VD)
  expected_NV = np.broadcast_to(law(x_ND, y), p_NV.shape)
  at_most_once = getattr(sampler, "distinct", False)
  told = sampler_report.figures(p_NV, expected_NV, y, m, at_most_once)["relvar"].mean()

  @jax.jit
  @jax.vmap
  def estimate(key):
    draw = sampler.sample(stats, w_VD, key, x_ND, y)
    assert draw.exact_ids is None
    ids_NM, log_NM, mask_NM = (
      jnp.broadcast_to(a, (n, a.shape[-1])) for a in (draw.ids, *draw[1:3])
    )
    weight_NM = jnp.where(mask_NM & (ids_NM != y.ids_NP), jnp.exp(-log_NM), 0)
    p_NM = jnp.take_along_axis(jnp.asarray(p_NV, jnp.float32), ids_NM, axis=1)
    return (weight_NM * p_NM).sum(axis=1)

  drawn_RN = estimate(jax.random.split(jax.random.key(1), repeats))
  found = np.var(drawn_RN, axis=0).mean()
  if name in SYSTEMATIC:
    assert 0.8 * told < found <= 1.05 * told
  else:
    assert found == pytest.approx(told, rel=0.1)


def test_index_is_refreshed_several_times():
  """Each refresh starts from the last codewords; the law approaches the softmax."""
  rng = np.random.default_rng(0)
  near_VD = rng.normal(size=(8, 4))[rng.integers(0, 8, 400)]
  w_VD = jnp.asarray(2 * near_VD + 0.1 * rng.normal(size=(400, 4)), jnp.float32)
  x_ND = jnp.asarray(rng.normal(size=(64, 4)), jnp.float32)
  p_NV = jax.nn.softmax(x_ND @ w_VD.T)
  sampler, counts = MIDX(codewords=8, iterations=1), Counts(np.ones(400, int))

  def far(stats):
    y = single_targets(np.zeros(64, int))
    log_NV = sampler.log_expected(stats, w_VD, x_ND, y, jnp.arange(400))
    return float(jnp.abs(jnp.exp(log_NV) / 16 - p_NV).sum(axis=1).mean())

  once = sampler.init(counts, w_VD, 16)
  stats = sampler_report.statistics(sampler, counts, w_VD, x_ND, 16)
  assert far(stats) < 0.9 * far(once)


def test_random_features_are_accurate_for_small_logits():
  """With many features, the law is the softmax, also for absolute logits."""
  rng = np.random.default_rng(0)
  w_VD = jnp.asarray(0.5 * rng.normal(size=(40, 4)), jnp.float32)
  x_ND = jnp.asarray(0.5 * rng.normal(size=(6, 4)), jnp.float32)
  o_NV = np.float64(x_ND @ w_VD.T)
  y = single_targets(np.zeros(6, int))
  even = lambda o: np.log(np.cosh(o))
  for absolute, scores_NV in ((False, o_NV), (True, even(o_NV))):
    law = random_feature_law(w_VD, absolute, 1.3, num_features=1 << 17)
    p_NV = softmax(scores_NV, axis=1)
    figures = sampler_report.figures(p_NV, law(x_ND, y), y, M, at_most_once=False)
    assert figures["chi2"].max() < 1e-3
    flat = sampler_report.figures(p_NV, np.ones_like(p_NV), y, M, at_most_once=False)
    assert flat["chi2"].mean() > 20 * figures["chi2"].mean()


def test_figures_for_true_classes_and_classes_never_drawn():
  p_NV = np.array([[0.5, 0.25, 0.25, 0.0]])
  y = Targets(np.array([[0, 1, 4]]), np.ones((1, 3)), np.zeros(1))
  q_NV = np.array([[0.0, 1.0, 1.0, 0.0]])
  figures = sampler_report.figures(p_NV, q_NV, y, 2, at_most_once=False)
  assert figures["chi2"] == np.inf
  assert figures["ess_share"] == 0
  # Only one of the negative classes can be drawn: 1/16 / (1/2) - 1/16.
  assert figures["relvar"] * 2 == 1 / 16
  pi_NV = np.array([[0.5, 0.5, 0.25, 0.75]])
  figures = sampler_report.figures(p_NV, pi_NV, y, 2, at_most_once=True)
  assert figures["relvar"] == 3 / 16


def test_wrong_arguments_are_named(workdir):
  for flag, message in (
    ("--samplers=unigrm", "unknown 'unigrm'"),
    ("--samplers=pps:powr=1", "'powr' is not a field; did you mean 'power'"),
    ("--samplers=pps:power=x", "power is 'x', but must be of type float"),
    ("--positions=0", "must be positive"),
  ):
    with pytest.raises(UserError, match=message):
      sampler_report.main([f"--workdir={workdir}", flag])
  with pytest.raises(UserError, match=r"config\.json is missing"):
    sampler_report.main([f"--workdir={workdir}/none"])


@pytest.mark.long
def test_number_of_negatives_defaults_to_that_of_the_run(tmp_path):
  path = tmp_path / "run"
  given = f"--config={REPOSITORY}/configs/ptb.py:sampled/pps,runlocal"
  assert main.run(["main", given, f"--workdir={path}"]) == 0
  samples = config.build(config.of_workdir(str(path))).head.num_samples
  of = lambda *more: sampler_report.report(
    sampler_report.parse_args([f"--workdir={path}", "--samplers=pps", *more])
  )[0]
  assert samples != sampler_report.SAMPLES
  assert of("--positions=8")["num_samples"] == samples
  assert of("--positions=8", "--num_samples=3")["num_samples"] == 3
