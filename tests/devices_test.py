"""The trainer on several devices: metrics and checkpoints do not depend on how many."""

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


def test_the_number_of_devices_changes_no_metric(on_four_devices):
  on_four_devices(PROGRAM)
