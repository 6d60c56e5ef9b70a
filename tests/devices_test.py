"""The trainer on several devices, whose number must not matter."""

import pytest

pytestmark = pytest.mark.long

PROGRAM = """
import json, pathlib, tempfile
import numpy as np
from largevocab.main import main

ROOT = pathlib.Path(tempfile.mkdtemp())
CONFIG = "--config=configs/quickstart.py:sampled/quadratic_prior,runlocal"
SAME = {"mesh.blocks": 4, "train.batch_size": 8, "eval.batch_size": 6}
SAME["train.clip_norm"] = 0.1

def run(name, **keys):
  given = SAME | {k.replace("_", ".", 1): v for k, v in keys.items()}
  flags = [f"--config.{key}={value}" for key, value in given.items()]
  main(["", CONFIG, f"--workdir={ROOT / name}", *flags])

def metrics(name):
  lines = map(json.loads, (ROOT / name / "metrics.jsonl").read_text().splitlines())
  keys = "loss", "nll", "chi2", "relvar"
  return {(m["step"], m["split"], k): m[k] for m in lines for k in keys if k in m}

run("one", mesh_num=1, train_max_steps=6)
run("four", mesh_num=0, train_max_steps=6)
run("two, then four", mesh_num=2, train_max_steps=3)
run("two, then four", mesh_num=4, train_max_steps=6)
run("other blocks", mesh_num=1, train_max_steps=6, mesh_blocks=2)
want = metrics("one")
last = [key for key in want if key[0] == 6]
assert {"valid", "test", "train"} <= {split for _, split, _ in last}
for name in ("four", "two, then four"):
  got = metrics(name)
  for key in want if name == "four" else last:
    np.testing.assert_allclose(got[key], want[key], rtol=1e-5, err_msg=f"{name} {key}")
other = metrics("other blocks")
assert any(abs(other[key] / want[key] - 1) > 1e-4 for key in last)  # another run

for name in ("one", "four"):  # on all four devices
  main(["", "--mode=evaluate", f"--workdir={ROOT / name}"])
"""
# What a run on four devices ends with, evaluates to and predicts, there and on one.
READ = """
import contextlib, io, json, pathlib, re, sys, tempfile
import jax, numpy as np
from largevocab import config
from largevocab.main import main
from largevocab.training.state import restore

ROOT = pathlib.Path(tempfile.mkdtemp())
CONFIG, QUERY = sys.argv[1:]

def said(name, *flags):
  out = io.StringIO()
  with contextlib.redirect_stdout(out):
    main(["", f"--workdir={ROOT / name}", *flags])
  return out.getvalue()

def trained(name, num, steps):
  keys = {"mesh.blocks": 4, "mesh.num": num, "train.max_steps": steps}
  keys |= {"train.batch_size": 8, "eval.batch_size": 6, "train.clip_norm": 0.1}
  flags = [f"--config.{key}={value}" for key, value in keys.items()]
  said(name, f"--config={CONFIG}", *flags)
  return json.loads((ROOT / name / "result.json").read_text())

def evaluated(name, num):
  return json.loads(said(name, "--mode=evaluate", f"--config.mesh.num={num}"))

def scores(name, num):
  text = said(name, "--mode=predict", f"--config.mesh.num={num}", f"--text={QUERY}")
  return [float(x) for x in re.findall(r"-?[0-9]+[.][0-9]+", text)]

def assert_equal(got, want):
  names = [key for key in want if key.startswith(("valid_", "test_"))]
  assert len(names) > 4
  for key in names:
    np.testing.assert_allclose(got[key], want[key], rtol=1e-4, err_msg=key)

want = trained("four", 4, 4)
trained("two, then one", 2, 2)
assert_equal(trained("two, then one", 1, 4), want)
for num in (1, 4):
  assert_equal(evaluated("four", num), want)
one, four = (scores("four", num) for num in (1, 4))
assert len(set(one)) > 4
np.testing.assert_allclose(four, one, rtol=1e-4)

exp = config.build(config.of_workdir(str(ROOT / "four")))
_, state = restore(exp, str(ROOT / "four"), "latest")
for leaf in jax.tree.leaves((state.inputs.rows.w_VD, state.inputs.rows.slots)):
  assert len(leaf.sharding.device_set) == 4
  assert 4 * len(leaf.addressable_shards[0].data) == len(leaf)
"""
INPUTS = {
  "words": ("configs/quickstart.py:full,runlocal", "w1 w2"),
  "item histories": ("configs/next_item.py:full,data=zipf_items,runlocal", "1 2"),
  "bags": ("configs/xmlc.py:full,data=synthetic,runlocal", "3:0.5 7:1"),
}


def test_metrics_do_not_depend_on_the_number_of_devices(on_four_devices):
  on_four_devices(PROGRAM)


@pytest.mark.parametrize("kind", INPUTS)
def test_run_can_be_read_on_any_number_of_devices(on_four_devices, kind):
  on_four_devices(READ, *INPUTS[kind])
