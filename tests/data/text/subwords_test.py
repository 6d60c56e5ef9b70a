"""Text in subwords, with tokenizers that are trained here."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest

from largevocab import config as c
from largevocab.data import DATASETS
from largevocab.data.text.subwords import Subwords
from largevocab.data.text.vocabulary import EOS, UNK
from largevocab.errors import UserError
from largevocab.evaluation import predict
from largevocab.evaluation.evaluate import evaluate_workdir
from largevocab.evaluation.queries import Line, Source
from largevocab.train import train

TEXT = "the cat saw the dog\nthe dog  saw naïve cats\n\n" * 30
LIBRARY = "tokenizers"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  """A text, and a tokenizer of bytes that was trained on it."""
  tokenizers = pytest.importorskip(LIBRARY)
  folder = tmp_path_factory.mktemp("subwords")
  (folder / "text.txt").write_text(TEXT)
  tokenizer = tokenizers.ByteLevelBPETokenizer()
  tokenizer.train([str(folder / "text.txt")], vocab_size=280, min_frequency=2)
  tokenizer.enable_truncation(3)  # as in some files; here no text may be truncated
  tokenizer.save(str(folder / "tokenizer.json"))
  return folder


def corpus_of(folder, **fields):
  files = {"train": str(folder / "text.txt"), "cache_dir": str(folder / "cache")}
  given = {"tokenizer": str(folder / "tokenizer.json"), "min_count": 9}
  return DATASETS["text"](**files | given | fields)


def test_all_tokens_are_classes_and_decode_to_the_text(folder):
  data = corpus_of(folder)
  corpus = data.load()
  own = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
  assert set(corpus.vocabulary.words) == {*own, EOS, UNK}
  counts_V = corpus.vocabulary.counts_V
  assert (np.diff(counts_V) <= 0).all()
  assert counts_V.min() == 0
  parts = [corpus.vocabulary.decode(part) for part in (corpus.train, corpus.valid)]
  parts.append(corpus.vocabulary.decode(corpus.test))
  assert "".join(map(data.subwords.text, parts)) == TEXT
  assert any(len(word) > 2 for word in parts[0] if word not in (EOS, UNK))
  again = corpus_of(folder).load()  # from the cache
  np.testing.assert_array_equal(corpus.train, again.train)
  assert again.sizes == corpus.sizes


def test_tokens_are_not_drawn_at_random(folder, tmp_path):
  """Although the file asks for it, as in training with subword regularisation."""
  saved = json.loads((folder / "tokenizer.json").read_text())
  saved["model"]["dropout"] = 0.5
  (tmp_path / "tokenizer.json").write_text(json.dumps(saved))
  drawn = corpus_of(folder, tokenizer=str(tmp_path / "tokenizer.json"))
  line = "the cat saw the dog" * 20
  assert drawn.words(line) == drawn.words(line) == corpus_of(folder).words(line)


def test_character_that_no_token_has_is_refused(folder, tmp_path):
  """The tokenizer itself would drop it from the text, without an error."""
  tokenizers = pytest.importorskip(LIBRARY)
  tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
  tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
  tokenizer.decoder = tokenizers.decoders.BPEDecoder()
  tokenizer.train_from_iterator(["the cat saw"], tokenizers.trainers.BpeTrainer())
  tokenizer.save(str(tmp_path / "tokenizer.json"))
  assert tokenizer.encode("cät").tokens == ["c", "t"]
  data = corpus_of(folder, tokenizer=str(tmp_path / "tokenizer.json"))
  assert data.words("saw  the cat") == ["saw", "the", "cat"]
  with pytest.raises(UserError, match=r"cannot encode 'a cät' \(no token has 'ä'\)"):
    data.words("a cät")


def test_other_tokenizer_gives_another_corpus(folder):
  words = corpus_of(folder, tokenizer="", min_count=1).load()
  assert "cat" in words.vocabulary.words
  assert not words.sizes
  assert words.evaluation_batches("valid", 2, 3).size is None
  assert len(words.vocabulary) < 20 < len(corpus_of(folder).load().vocabulary)


def test_sizes_equal_those_of_the_text(folder):
  data = corpus_of(folder)
  corpus = data.load()
  text = data.subwords.text(corpus.vocabulary.decode(corpus.valid))
  size = corpus.evaluation_batches("valid", 2, 3).size
  assert size.bytes == len(text.encode()) > len(text)  # an ï has two bytes
  assert size.words == len(text.split()) + text.count("\n")
  metrics = size.per_unit(nll=100.0)
  assert metrics["bits_per_byte"] * size.bytes * math.log(2) == pytest.approx(100.0)
  assert math.log(metrics["word_ppl"]) * size.words == pytest.approx(100.0)


def test_subwords_without_a_decoder_are_refused(folder):
  """Joined by blanks, each subword would count as a word."""
  tokenizers = pytest.importorskip(LIBRARY)
  tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="?"))
  tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
  tokenizer.train([str(folder / "text.txt")], tokenizers.trainers.BpeTrainer())
  tokenizer.save(str(folder / "no_decoder.json"))
  with pytest.raises(UserError, match=r"no_decoder.json has no decoder"):
    corpus_of(folder, tokenizer=str(folder / "no_decoder.json")).load()


def test_text_that_the_tokenizer_cannot_encode_is_named(folder):
  """The tokenizer does not contain its unknown token."""
  tokenizers = pytest.importorskip(LIBRARY)
  model = tokenizers.models.WordLevel({"the": 0, "cat": 1}, unk_token="?")
  tokenizer = tokenizers.Tokenizer(model)
  tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
  tokenizer.save(str(folder / "no_unknown.json"))
  with pytest.raises(UserError, match=r"no_unknown.json cannot encode '.*' \(.*\): "):
    corpus_of(folder, tokenizer=str(folder / "no_unknown.json")).load()


def test_next_subwords_are_shown_as_text(folder):
  data = corpus_of(folder)
  words = data.words("the cat")
  assert data.added(words, "Ġ") == " "
  assert data.added(words, EOS) == EOS
  part, rest = data.words("ï")[:2] if len(data.words("ï")) > 1 else ("Ã", "¯")
  assert data.added(words, part) == "\ufffd"  # half a character
  assert data.added([*words, part], rest) == rest  # changes what was shown before


def test_run_reports_metrics_per_word_and_per_byte(folder, tmp_path, capsys):
  """It also answers queries; its tokenizer has names with blanks."""
  tokenizers = pytest.importorskip(LIBRARY)
  vocabulary = {" ": 0, "the": 1, "cat": 2, "dog": 3, "saw": 4, "?": 5, "s": 6}
  model = tokenizers.models.WordLevel(vocabulary, unk_token="?")
  tokenizer = tokenizers.Tokenizer(model)
  tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(" ", "isolated")
  tokenizer.decoder = tokenizers.decoders.Fuse()
  tokenizer.save(str(tmp_path / "words.json"))
  data = corpus_of(folder, tokenizer=str(tmp_path / "words.json"))
  settings = c.experiment(
    data=data,
    model=c.part("model", "transformer", embed=8, hidden=8, layers=1, max_length=4),
    head=c.head("full"),
    optimizer=c.part("optimizer", "adagrad"),
    train=c.Training(batch_size=2, unroll=4, max_steps=3),
    eval=c.Evaluating(batch_size=2, unroll=4),
  )
  exp, workdir = c.build(settings), str(tmp_path / "run")
  result = train(exp, settings.to_dict(), workdir)
  corpus = data.load()
  assert corpus.vocabulary.index["\\u0020"] in corpus.train
  for split, tokens in (("valid", corpus.valid), ("test", corpus.test)):
    size = corpus.sizes[split]
    bits = result[f"{split}_nll"] * len(tokens) / math.log(2) / size.bytes
    assert result[f"{split}_bits_per_byte"] == pytest.approx(bits)
    assert result[f"{split}_word_ppl"] > result[f"{split}_ppl"]
  assert evaluate_workdir(exp, workdir, "latest")["test_word_ppl"] == pytest.approx(
    result["test_word_ppl"], rel=1e-5
  )
  model = predict.load(exp, workdir, "latest")
  lines = [Line(1, b"the cat saw the dog"), Line(2, b"the")]
  predict.answer(model, Source("here", [lines]), k=9)
  long, short = map(json.loads, capsys.readouterr().out.splitlines())
  assert long["words"][:3] == ["the", "\\u0020", "cat"]
  assert long["perplexity"] > 1
  shown = {entry["name"]: entry["id"] for entry in short["top"]}
  assert shown[" "] == corpus.vocabulary.index["\\u0020"]
  assert shown.keys() == {" ", "the", "cat", "dog", "saw", "?", "s", EOS, UNK}


@pytest.mark.parametrize(
  ("content", "message"),
  [
    (None, r"^data\.tokenizer: cannot read .* \(No such file or directory\); "),
    (b"{}", r"^data\.tokenizer: .* is not a tokenizer\.json \(.*\): save one with"),
    (b"\xff", r"^data\.tokenizer: cannot read .* \(it is not UTF-8\); give a"),
  ],
)
def test_invalid_file_is_named(content, message, tmp_path):
  pytest.importorskip(LIBRARY)
  path = tmp_path / "tokenizer.json"
  if content is not None:
    path.write_bytes(content)
  with pytest.raises(UserError, match=message):
    Subwords(path).checked()


def test_directory_in_place_of_a_file_is_named(tmp_path):
  pytest.importorskip(LIBRARY)
  with pytest.raises(UserError, match=r"cannot read .*; give a tokenizer\.json$"):
    Subwords(tmp_path).checked()


def test_missing_library_is_named():
  program = (
    "import sys, pathlib; sys.modules['tokenizers'] = None\n"
    "from largevocab.data.text.subwords import Subwords\n"
    "Subwords(pathlib.Path('any.json')).checked()"
  )
  done = subprocess.run(
    [sys.executable, "-c", program], capture_output=True, text=True, check=False
  )
  *_, last = done.stderr.splitlines()
  assert last.endswith(
    "needs the package tokenizers: install it, as with pip install \
tokenizers"
  )
