"""A synthetic language with a known conditional distribution."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from largevocab.data.text.corpus import Corpus
from largevocab.data.text.vocabulary import EOS, UNK, Vocabulary
from largevocab.fields import Between, Seed, settings

# Limited, since synthetic data is held in memory.
NumClasses = Annotated[int, Between(2, 2**24)]
NumExamples = Annotated[int, Between(1, 2**28)]
Exponent = Annotated[float, Between(0, 100)]


@dataclass(frozen=True)
class Language:
  """A Markov chain: p(c | previous) ~ exp(log_base_c + u_previous . v_c).

  Attributes:
    log_base_V: f64[V].
    u_VE, v_VE: f64[V, E], rows of norm sqrt(coupling).
    coupling: upper bound of u . v.
  """

  log_base_V: np.ndarray
  u_VE: np.ndarray
  v_VE: np.ndarray
  coupling: float

  def log_prob(self, context_N: np.ndarray) -> np.ndarray:
    """log p(c | context) of all classes, f64[N, V], in nats."""
    logits_NV = self.log_base_V[None, :] + self.u_VE[context_N] @ self.v_VE.T
    logits_NV -= logits_NV.max(axis=1, keepdims=True)
    return logits_NV - np.log(np.exp(logits_NV).sum(axis=1, keepdims=True))

  def relabel(self, order_V: np.ndarray) -> "Language":
    """The same language in which class order_V[i] is renamed to i."""
    parts = (self.log_base_V[order_V], self.u_VE[order_V], self.v_VE[order_V])
    return Language(*parts, self.coupling)

  def successors(self, rng: np.random.Generator, context_N: np.ndarray) -> np.ndarray:
    """Draws once from p(. | context) for each context, i64[N], by rejection."""
    cumulative_V = np.cumsum(np.exp(self.log_base_V))
    drawn_N = np.empty(len(context_N), np.int64)
    waiting = np.arange(len(context_N))
    while len(waiting):
      height = rng.random(len(waiting)) * cumulative_V[-1]
      proposal = np.searchsorted(cumulative_V, height, side="right")
      tilt = np.sum(self.u_VE[context_N[waiting]] * self.v_VE[proposal], axis=1)
      accepted = rng.random(len(waiting)) < np.exp(tilt - self.coupling)
      drawn_N[waiting[accepted]] = proposal[accepted]
      waiting = waiting[~accepted]
    return drawn_N

  def sample(self, rng: np.random.Generator, num_tokens: int, eos: int) -> np.ndarray:
    """The first tokens, i32[num_tokens], of the chain that starts after `eos`.

    The text between two `eos` is independent of the rest. Many such sentences are
    therefore sampled in parallel and concatenated, which gives exactly the chain.
    """
    texts = []
    missing = num_tokens
    while missing > 0:
      end_prob = np.exp(self.log_prob(np.array([eos]))[0, eos])
      texts.append(self._sentences(rng, int(missing * end_prob) + 1, eos))
      missing -= len(texts[-1])
    return np.concatenate(texts)[:num_tokens].astype(np.int32)

  def _sentences(self, rng: np.random.Generator, number: int, eos: int) -> np.ndarray:
    alive = np.arange(number)
    last = np.full(number, eos)
    lengths = np.zeros(number, np.int64)
    columns = []
    while len(alive):
      last = self.successors(rng, last)
      columns.append((alive, last))
      lengths[alive] += 1
      alive, last = alive[last != eos], last[last != eos]
    begins = np.cumsum(lengths) - lengths
    text = np.empty(lengths.sum(), np.int64)
    for place, (sentences, words) in enumerate(columns):
      text[begins[sentences] + place] = words
    return text


@dataclass(frozen=True)
class ZipfCorpus(Corpus):
  """Text of a known language."""

  language: Language

  def true_log_prob(self, context_N: np.ndarray) -> np.ndarray:
    """log p(c | context) of all classes, f64[N, V], in nats. Exact."""
    return self.language.log_prob(context_N)


@settings(kw_only=True)
class Zipf:
  """Words with Zipf's distribution, modulated by the previous word.

  p(c | previous) is proportional to rank_c ** -exponent * exp(u_previous . v_c), with u
  and v uniform on spheres. Class ids are in order of decreasing count, as in all
  corpora. `<eos>` is the word of rank 1 and `<unk>` the word of rank 2; otherwise they
  are ordinary words.

  Attributes:
    num_classes: V.
    num_tokens: length of the training text; validation and test have a tenth each.
    exponent: exponent of Zipf's law; 0: all ranks are equally likely.
    coupling: the largest u . v; 0: words do not depend on the previous word. Sampling
      takes time proportional to exp(coupling).
    rank: width of u and v.
    seed: seed of the language and of the text.
  """

  num_classes: NumClasses = 1000
  num_tokens: NumExamples = 1_000_000
  exponent: Exponent = 1.0
  coupling: Annotated[float, Between(0, 10)] = 2.0
  rank: Annotated[int, Between(1, 1024)] = 8
  seed: Seed = 0

  def tiny(self) -> "Zipf":
    return Zipf(num_tokens=1000)

  def load(self) -> ZipfCorpus:
    """Samples the texts.

    >>> corpus = Zipf(num_classes=5, num_tokens=100).load()
    >>> len(corpus.train), len(corpus.valid), len(corpus.vocabulary)
    (100, 10, 5)
    """
    rng = np.random.default_rng(self.seed)
    ranks_V = np.arange(1, self.num_classes + 1)
    language = Language(
      -self.exponent * np.log(ranks_V), self._spheres(rng), self._spheres(rng),
      self.coupling,
    )  # fmt: skip
    texts = [
      language.sample(rng, max(tokens, 1), eos=0)
      for tokens in (self.num_tokens, self.num_tokens // 10, self.num_tokens // 10)
    ]
    counts_V = np.bincount(texts[0], minlength=self.num_classes)
    order_V = np.argsort(-counts_V, kind="stable")
    class_of_V = np.argsort(order_V).astype(np.int32)
    words = [EOS, UNK, *(f"w{rank}" for rank in ranks_V[2:])]
    vocabulary = Vocabulary([words[i] for i in order_V], counts_V[order_V])
    train, valid, test = (class_of_V[text] for text in texts)
    return ZipfCorpus(vocabulary, train, valid, test, language.relabel(order_V))

  def words(self, line: str) -> list[str]:
    """The words of a line, without `<eos>`."""
    return line.split()

  def added(self, words: list[str], word: str) -> str:
    """How to show a next word: as the word itself."""
    return word

  def _spheres(self, rng: np.random.Generator) -> np.ndarray:
    x_VE = rng.standard_normal((self.num_classes, self.rank))
    norm_V = np.linalg.norm(x_VE, axis=1)
    return np.sqrt(self.coupling) * x_VE / norm_V[:, None]
