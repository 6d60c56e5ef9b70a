"""The report on numbers of negatives, for runs whose losses are formulas of m."""

import json
import math

import pytest

from largevocab.errors import UserError
from largevocab.tools import samples_report
from largevocab.tools.sweeps import records

SEEDS = (0, 1, 2)
EXACT = {0: 5.0, 1: 5.1, 2: 4.9}
NUMBERS = (1, 4, 16, 64, 256, 1024)


def row(name, config, seed, loss, **more):
  overrides = {**more, **({"train.seed": seed} if seed else {})}
  machine = {"device": "d", "python": "3", "jax": "0", "git": "a", "git_dirty": False}
  run = f"{name} {seed}"
  record = {"run": run, "name": name, "config": config, "overrides": overrides}
  return {**record, **machine, "test_nll": loss}


def sampled(sampler, bias_of, seeds=SEEDS, exact=EXACT):
  config = f"configs/xmlc.py:sampled/{sampler},data=citeulike_t"
  return [
    row(f"{sampler}, m={m}", config, s, exact[s] + bias_of(s, m), **number)
    for s in seeds
    for m in NUMBERS
    for number in [{"head.num_samples": m}]
  ]


@pytest.fixture
def results(tmp_path):
  """Writes rows and those of the exact softmax, and returns the file."""

  def write(*groups):
    exact = [row("full", "configs/xmlc.py:full", s, EXACT[s]) for s in SEEDS]
    path = tmp_path / "results.jsonl"
    rows = [*exact, *(each for group in groups for each in group)]
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return path

  return write


def read(path, *flags):
  output = path.with_name("needed.jsonl")
  arguments = [str(path), "--reference", "full", *flags, f"--output={output}"]
  assert samples_report.main(arguments) == 0
  return {each["name"].rpartition(": ")[2]: each for each in records.load(output)}


def test_sampler_is_read_from_a_config_that_names_its_head(results):
  """For example, `configs/ptb.py:blanc_rendle,head=sampled/uniform`."""
  rows = sampled("uniform", logarithmic(lambda seed: 10.0))
  for each in rows:
    each["config"] = "configs/ptb.py:blanc_rendle,head=sampled/uniform"
  assert read(results(rows))["uniform"]["negatives"] == pytest.approx(10.0)


def logarithmic(reaches):
  """A bias that is linear in log m, and 0.02 at m = `reaches(seed)`."""
  return lambda seed, m: 0.02 + 0.01 * math.log(reaches(seed) / m)


def test_report_finds_where_each_seed_reaches_the_gap(results):
  few = lambda seed: 10.0 * 2.0**seed
  got = read(
    results(
      sampled("uniform", logarithmic(lambda seed: 8 * few(seed))),
      sampled("quadratic", logarithmic(few)),
    )
  )
  own = got["quadratic"]
  assert (own["seeds"], own["negatives"]) == (3, pytest.approx(20.0))
  half = 4.302652729749 * math.log(2) / math.sqrt(3)  # Student's t, 2 degrees
  assert own["negatives_low"] == pytest.approx(20 * math.exp(-half))
  assert own["negatives_high"] == pytest.approx(20 * math.exp(half))
  for key in ("times_fewer", "times_fewer_low", "times_fewer_high"):
    assert own[key] == pytest.approx(8.0)  # for every seed
  assert "times_fewer" not in got["uniform"]


def test_sampler_can_have_its_own_reference(results):
  absolute = {s: EXACT[s] + 0.5 for s in SEEDS}
  rows = [
    *(row("absolute", "configs/xmlc.py:full", s, absolute[s]) for s in SEEDS),
    *sampled("quadratic", logarithmic(lambda seed: 5.0), exact=absolute),
  ]
  path = results(sampled("uniform", logarithmic(lambda seed: 50.0)), rows)
  assert "negatives" not in read(path)["quadratic"]
  own = read(path, "quadratic=absolute")["quadratic"]
  assert own["negatives"] == pytest.approx(5.0)
  assert own["times_fewer"] == pytest.approx(10.0)


def test_bounds_are_given_beyond_the_measured_numbers(results):
  """The gap is never large, or always is, also for one seed or if a run diverged."""
  got = read(
    results(
      sampled("uniform", lambda seed, m: 0.1),
      sampled("softmax", lambda seed, m: 0.01),
      sampled("block", lambda seed, m: 0.1 if m < 16 or seed else 0.0),
      sampled("unigram", lambda seed, m: math.inf if m == 1 else 0.0),
    )
  )
  bounds = ("more_than", "at_most", "times_fewer", "times_fewer_at_least")
  of = lambda name: tuple(got[name].get(key) for key in bounds)
  assert of("uniform") == (1024, None, None, None)
  assert of("softmax") == (None, 1, None, 1024)
  assert of("block") == (pytest.approx(4 * 4**0.8), None, None, None)
  assert of("unigram") == (1, 4, None, 256)


def test_gap_that_comes_back_counts(results):
  wave = lambda seed, m: {1: 0.1, 4: 0.0, 16: 0.04}.get(m, 0.0)
  own = read(results(sampled("uniform", wave)))["uniform"]
  assert own["negatives"] == pytest.approx(32.0)


def test_only_common_seeds_are_used(results):
  path = results(
    sampled("uniform", logarithmic(lambda seed: 50.0)),
    sampled("softmax", logarithmic(lambda seed: 5.0 + seed), seeds=(1,)),
  )
  own = read(path)["softmax"]
  assert (own["seeds"], own["negatives"]) == (1, pytest.approx(6.0))
  assert not own.keys() & {"negatives_low", "times_fewer_low"}


def test_method_names_can_contain_equals_signs(results):
  exact = [row("full, lr=2", "configs/xmlc.py:full", s, EXACT[s]) for s in SEEDS]
  path = results(exact, sampled("uniform", logarithmic(lambda seed: 50.0)))
  for references in (["full, lr=2"], ["full", "uniform=full, lr=2"]):
    output = path.with_name(f"{len(references)}.jsonl")
    flags = ["--reference", *references, f"--output={output}"]
    assert samples_report.main([str(path), *flags]) == 0
    (own,) = records.load(output)
    assert own["negatives"] == pytest.approx(50.0)
    assert own["reference"] == "full, lr=2"


def test_methods_with_the_same_sampler_are_told_apart(results):
  """Draws shared by a batch and draws of each example are two curves, not one."""
  of_batch = sampled("uniform", logarithmic(lambda seed: 500.0))
  for each in of_batch:
    each["name"] = f"shared {each['name']}"
    each["run"] = f"shared {each['run']}"
    each["overrides"]["head.sampler.per_example"] = False
  path = results(sampled("uniform", logarithmic(lambda seed: 50.0)), of_batch)
  with pytest.raises(UserError, match="'uniform, m=1' and 'shared uniform, m=1' both"):
    samples_report.main([str(path), "--reference", "full"])
  own = read(path, "--rows=^uniform")["uniform"]
  assert own["negatives"] == pytest.approx(50.0)
  assert read(path, "--rows=^shared")["uniform"]["negatives"] == pytest.approx(500.0)


def test_one_seed_at_two_rates_is_refused(results):
  """Neither of the two losses may be chosen silently."""
  good = sampled("uniform", logarithmic(lambda seed: 50.0))
  again = [{**good[0], "run": "again", "overrides": {**good[0]["overrides"]}}]
  again[0]["overrides"]["train.lr"] = 0.3
  with pytest.raises(UserError, match="'uniform, m=1' is not the only run with this"):
    samples_report.main([str(results(good, again)), "--reference", "full"])
  exact = row("full", "configs/xmlc.py:full", 0, 4.0, **{"train.lr": 0.3})
  path = results(good, [exact | {"run": "full again"}])
  with pytest.raises(UserError, match="'full' is not the only run with this"):
    samples_report.main([str(path), "--reference", "full"])


def test_wrong_arguments_are_one_line(results):
  good = sampled("uniform", logarithmic(lambda seed: 50.0))
  path = results(good, sampled("block", lambda seed, m: 0.0, seeds=(1,))[1:])
  cases = [
    (["--reference", "none"], "no run of 'none' has 'test_nll'"),
    (["--reference", "full", "other"], "give METHOD once"),
    (["--reference", "uniform=full"], "give METHOD once"),
    (["--reference", "full", "--to=pps"], "no runs of 'pps' among the samplers: unif"),
    (
      ["--reference", "full", "blok=full"],
      "no runs of 'blok' among the samplers: unif",
    ),
    (["--reference", "full", "--rows=("], r"--rows=\( is not a regular expression"),
    (["--reference", "full", "--gap=0"], "--gap=0.0: must be positive"),
    (["--reference", "full", "--metric=steps"], "must be a loss"),
  ]
  for flags, message in cases:
    with pytest.raises(UserError, match=message):
      samples_report.main([str(path), *flags])
  longest = [sampled("block", lambda seed, m: 0.0, seeds=(1,))[-1]]
  others = sampled("block", lambda seed, m: 0.0, seeds=(2,))[:-1]
  path = results(good, longest, others)
  with pytest.raises(UserError, match="block has no seed for which all of its runs"):
    samples_report.main([str(path), "--reference", "full"])
