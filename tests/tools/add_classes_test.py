"""A trained recommender continues with other users and items."""

import json

import numpy as np
import pytest

from largevocab import config as c, main, train
from largevocab.tools import add_classes
from largevocab.training.state import restore

DAY = {"a": "p q r s", "b": "q r s p", "c": "r s p q", "d": "s q p r", "e": "p r q s"}
# r is gone, x and y are new, and s is now the most frequent.
NEXT = {"a": "s s p x s", "b": "q s s p", "f": "x s y q s", "g": "s x s q y"}


def written(path, users):
  path.write_text("".join(f"{user} {items}\n" for user, items in users.items()))
  return str(path)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  """A trained workdir, and a file with the data of the next day."""
  root = tmp_path_factory.mktemp("days")
  settings = c.experiment(
    data=c.part(
      *("data", "interactions"),
      path=written(root / "day.txt", DAY),
      lines="histories",
      cache_dir=str(root / "cache"),
    ),
    model=c.part("model", "lstm", embed=4, hidden=4, layers=1),
    head=c.head("sampled/unigram", num_samples=3),
    optimizer=c.part("optimizer", "adam"),
    train=c.Training(max_steps=4, batch_size=4, unroll=3, lr=0.1),
    eval=c.Evaluating(every_epochs=0, batch_size=4, unroll=3, hit_k=(2,)),
    log=c.Logging(monitor_every_steps=0),
  )
  train.train(c.build(settings), settings.to_dict(), str(root / "run"))
  return root, written(root / "next.txt", NEXT)


def call(root, into, *flags):
  return add_classes.main([f"--workdir={root}/run", f"--into={into}", *flags])


def test_common_items_keep_their_rows(run, tmp_path, capsys):
  root, path = run
  into = str(tmp_path / "into")
  assert call(root, into, f"--config.data.path={path}") == 0
  assert capsys.readouterr().out == f"{into}: 3 items kept, 2 new, 1 left out\n"
  exp = c.build(c.of_workdir(str(root / "run")))
  before, old = restore(exp, str(root / "run"), "latest")
  exp = c.build(c.of_workdir(into))
  after, new = restore(exp, into, "latest")
  assert int(new.step) == 0
  assert after.vocabulary.words[0] == "s" != before.vocabulary.words[0]
  for now, item in enumerate(after.vocabulary.words):
    if item in before.vocabulary.words:
      was = list(before.vocabulary.words).index(item)
      for a, b in ((new.inputs, old.inputs), (new.head.table, old.head.table)):
        np.testing.assert_array_equal(a.w_VD[now], b.w_VD[was])
        for name, slot in b.slots.items():
          np.testing.assert_array_equal(a.slots[name][now], slot[was])
  for leaf in old.params:
    np.testing.assert_array_equal(new.params[leaf], old.params[leaf])

  query = tmp_path / "query"
  query.write_text("g\nnobody x s\n")
  flags = ["--mode=predict", f"--workdir={into}", f"--input={query}", "--top_k=3"]
  assert main.run(["main", *flags]) == 0
  users = [json.loads(line)["user"] for line in capsys.readouterr().out.splitlines()]
  assert users == ["g", "nobody"]

  settings = c.of_workdir(into)
  result = train.train(c.build(settings), settings.to_dict(), into)
  assert result["steps"] == 4
  assert np.isfinite(result["test_hr@2"])


def test_batch_size_can_change(run, tmp_path):
  """The saved state of the network has one row for each user of a batch."""
  root, path = run
  flags = [f"--config.data.path={path}", "--config.train.batch_size=2"]
  assert call(root, tmp_path / "into", *flags) == 0
  exp = c.build(c.of_workdir(str(tmp_path / "into")))
  _, state = restore(exp, str(tmp_path / "into"), "latest")
  assert {len(part) for layer in state.carry for part in layer} == {2}


def test_mistakes_are_one_line(run, tmp_path, capsys, monkeypatch):
  root, path = run
  monkeypatch.setattr("sys.argv", ["add_classes", f"--workdir={root}/run",
                                   f"--into={root}/run"])  # fmt: skip
  assert add_classes.cli() == 1
  assert "has a run already: choose another" in capsys.readouterr().err
  monkeypatch.setattr("sys.argv", ["add_classes", f"--workdir={tmp_path}/none",
                                   f"--into={tmp_path}/into"])  # fmt: skip
  assert add_classes.cli() == 1
  assert "config.json is missing" in capsys.readouterr().err
  with pytest.raises(c.UserError, match="there is no key 'paht'"):
    call(root, tmp_path / "into", f"--config.data.paht={path}")
  with pytest.raises(c.UserError, match=r"config\.head\.absolute = False, not True"):
    call(root, tmp_path / "into", "--config.head.absolute=True")
