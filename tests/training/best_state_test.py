"""The choice of the best state of a run."""

import json

import pytest

from largevocab import config as c
from largevocab.errors import UserError
from largevocab.train import train


def settings(**evaluating):
  return c.experiment(
    data=c.part("data", "zipf_items"),
    model=c.part("model", "mlp", history=3, embed=4, hidden=4),
    head=c.head("full"),
    optimizer=c.part("optimizer", "sgd"),
    train=c.Training(batch_size=8, unroll=1, max_steps=4, lr=3.0),
    eval=c.Evaluating(batch_size=64, unroll=1, ranking_k=5, **evaluating),
    runlocal=True,
  )


def test_metric_can_choose_the_best_state(tmp_path):
  whole = settings(best="mrr@5")
  whole.eval.every_epochs = 0.001
  train(c.build(whole), whole.to_dict(), str(tmp_path))
  costs = json.loads((tmp_path / "checkpoints" / "valid_cost.json").read_text())
  lines = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
  valid = {str(m["step"]): m for m in lines if m["split"] == "valid"}
  assert len(costs) > 2
  for step, cost in costs.items():
    assert cost == pytest.approx(-valid[step]["mrr@5"])


@pytest.mark.parametrize(
  ("best", "measured", "message"),
  [
    ("ndcg@10", 5, r"eval\.best is 'ndcg@10', .*'recall@5', 'mrr@5'"),
    ("ppl", 0, r"eval\.best is 'ppl', .* measured are none: .* leave it empty for the"),
  ],
)
def test_unmeasured_metric_is_reported_in_one_line(best, measured, message):
  with pytest.raises(UserError, match=message):
    c.Evaluating(ranking_k=measured, best=best)


def test_metric_of_the_best_state_cannot_change_during_a_run(tmp_path):
  first = settings()
  train(c.build(first), first.to_dict(), str(tmp_path))
  other = settings(best="mrr@5")
  with pytest.raises(UserError, match=r"config\.eval\.best"):
    train(c.build(other), other.to_dict(), str(tmp_path))
