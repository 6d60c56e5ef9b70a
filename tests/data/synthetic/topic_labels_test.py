"""Documents of hidden topics: their law, and the Bayes classifier by enumeration."""

import numpy as np
import pytest

from largevocab.data import DATASETS
from largevocab.errors import UserError

TopicLabels = DATASETS["topic_labels"]
SMALL = {
  **{"num_classes": 30, "num_features": 40, "num_topics": 12, "labels_per_topic": 4},
  **{"features_per_topic": 5, "features_per_example": 4.0, "num_examples": 8000},
}


@pytest.fixture(scope="module")
def data():
  return TopicLabels(**SMALL).load()


def posterior(law, features, values):
  """p(t | x) of a document, from the probabilities of its draws."""
  p_T = []
  for prior, own in zip(law.prior_T, law.own_TK, strict=True):
    p = prior
    for feature, times in zip(features, values, strict=True):
      share = np.mean(own == feature)
      p *= (law.noise * law.noise_D[feature] + (1 - law.noise) * share) ** times
    p_T.append(p)
  return np.array(p_T) / sum(p_T)


def naive(data, number):
  part, law = data.test, data.law
  row = slice(*part.feature_ptr[number : number + 2])
  p_T = posterior(law, part.feature_ids[row], part.values[row].astype(np.float64))
  q_V = np.zeros(law.num_classes)
  for p, labels in zip(p_T, law.labels_TL, strict=True):
    for label in labels:
      q_V[label] += p / len(labels)
  return q_V


def test_classifier_equals_the_enumerated_posterior(data):
  number_N = np.arange(100)[::-1]  # more than a chunk
  q_NV = np.stack([naive(data, number) for number in number_N])
  model = data.true_law("test")
  ids_NV = np.tile(np.arange(30), (100, 1))
  np.testing.assert_allclose(np.exp(model.log_p(number_N, ids_NV)), q_NV, rtol=1e-9)
  for k in (1, 7, 30):
    best_NK = model.top_k(number_N, k)
    found = np.take_along_axis(q_NV, best_NK, axis=1)
    expected = -np.sort(-q_NV, axis=1)[:, :k]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert all(len(set(best)) == k for best in best_NK.tolist())


def test_classifier_is_calibrated(data):
  """For all training documents, by deciles of q. Another law is rejected."""
  model, part = data.true_law("train"), data.train
  number_N = np.arange(part.number)
  (best_N,) = model.top_k(number_N, 1).T
  q_N = np.exp(model.log_p(number_N, best_N[:, None]))[:, 0]
  share, own = 0.6, 4
  p_N = q_N * own * (share + (1 - share) ** own / own)
  document = np.repeat(number_N, np.diff(part.label_ptr))
  hit_N = np.zeros(part.number)
  hit_N[document[part.label_ids == best_N[document]]] = 1
  for rows in np.array_split(np.argsort(p_N), 10):
    error = np.sqrt(np.mean(p_N[rows] * (1 - p_N[rows])) / len(rows))
    assert abs(hit_N[rows].mean() - p_N[rows].mean()) < 4 * error
  assert p_N.min() < 0.5 < p_N.max()
  # The first decile alone distinguishes q from p.
  assert abs(hit_N.mean() - q_N.mean()) > 0.2


def test_documents_have_the_requested_sizes(data):
  lengths = data.train.lengths
  expected = 4 * 0.6 + 0.4**4
  assert lengths[:, 1].min() == 1
  assert lengths[:, 1].mean() == pytest.approx(expected, abs=0.05)
  draws = np.add.reduceat(data.train.values, data.train.feature_ptr[:-1])
  assert draws.mean() == pytest.approx(4.0, abs=0.15)
  times_V = np.bincount(data.law.labels_TL.ravel(), minlength=30)
  assert times_V.sum() == 48
  assert all(len(set(row)) == 4 for row in data.law.labels_TL.tolist())
  assert data.law.marginal_V.sum() == pytest.approx(1)


def test_long_documents_do_not_overflow():
  fields = SMALL | {"features_per_example": 3000.0, "num_examples": 20, "noise": 0.01}
  model = TopicLabels(**fields).load().true_law("test")
  p = np.exp(model.log_p(np.arange(2), np.tile(np.arange(30), (2, 1))))
  assert p.sum(axis=1) == pytest.approx(1)


def test_more_labels_per_topic_than_classes_are_refused():
  with pytest.raises(
    UserError, match="labels_per_topic is 5, but there are only 4 labels"
  ):
    TopicLabels(num_classes=4).load()


def test_held_out_documents_do_not_change_training_documents():
  few, many = (
    TopicLabels(num_examples=50, held_out_share=share).load() for share in (0.05, 0.5)
  )
  assert [len(data.test.label_ptr) - 1 for data in (few, many)] == [3, 25]
  assert few.train.label_ids.tolist() == many.train.label_ids.tolist()
