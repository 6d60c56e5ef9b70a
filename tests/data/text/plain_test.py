"""PTB, text8, Europarl, One Billion Word and plain files, each in its own format."""

import gzip
import lzma

import numpy as np
import pytest

from largevocab.data import DATASETS
from largevocab.data.text.vocabulary import EOS
from largevocab.errors import UserError


def decoded(corpus, split):
  return corpus.vocabulary.decode(getattr(corpus, split))


@pytest.fixture
def ptb(tmp_path):
  (tmp_path / "ptb.train.txt").write_text(" a b <unk> \n b N \n")
  (tmp_path / "ptb.valid.txt.gz").write_bytes(gzip.compress(b" b a \n"))
  (tmp_path / "ptb.test.txt.xz").write_bytes(lzma.compress(b" N \n a \n"))
  return DATASETS["ptb"](path=str(tmp_path), cache_dir=str(tmp_path / "cache"))


def test_ptb_is_read_with_line_ends_and_unk(ptb):
  corpus = ptb.load()
  assert decoded(corpus, "train") == ["a", "b", "<unk>", EOS, "b", "N", EOS]
  assert decoded(corpus, "valid") == ["b", "a", EOS]
  assert decoded(corpus, "test") == ["N", EOS, "a", EOS]
  assert sorted(corpus.vocabulary.words) == ["<eos>", "<unk>", "N", "a", "b"]


def test_second_load_uses_the_cache(ptb, tmp_path, monkeypatch):
  first = ptb.load()
  monkeypatch.setattr("largevocab.data.text.text_corpus.encode", pytest.fail)
  second = ptb.load()
  np.testing.assert_array_equal(first.train, second.train)


def test_changed_file_or_option_is_encoded_again(ptb, tmp_path):
  ptb.load()
  (tmp_path / "ptb.train.txt").write_text("c d\n")
  assert decoded(ptb.load(), "train") == ["c", "d", EOS]
  smaller = DATASETS["ptb"](path=ptb.path, cache_dir=ptb.cache_dir, max_vocab=4)
  assert len(smaller.load().vocabulary) == 4


def test_ptb_without_its_files_is_refused(tmp_path):
  with pytest.raises(UserError, match=r"data.path is empty: set it to the directory"):
    DATASETS["ptb"]().load()
  with pytest.raises(UserError, match=r"data.path: no ptb.train.txt \(or .gz, .xz\)"):
    DATASETS["ptb"](path=str(tmp_path)).load()


def text(name, tmp_path, **settings):
  settings["cache_dir"] = str(tmp_path / "cache")
  return DATASETS[name](**settings)


def write(path, content):
  path.write_text(content, encoding="utf-8")
  return str(path)


def test_text_is_read_from_three_files(tmp_path):
  corpus = text(
    "text",
    tmp_path,
    train=write(tmp_path / "1", "It is.\n\nIt IS\n"),
    valid=write(tmp_path / "2", "is. it"),
    test=write(tmp_path / "3", "IS"),
  ).load()
  assert decoded(corpus, "train") == ["It", "is.", EOS, EOS, "It", "IS", EOS]
  assert decoded(corpus, "valid") == ["is.", "<unk>", EOS]
  assert decoded(corpus, "test") == ["IS", EOS]


def test_held_out_text_of_unknown_words_gives_a_warning(tmp_path, caplog):
  files = {"train": "a b c d\n", "valid": "a b c x\n", "test": "u v w d\n"}
  for split, content in files.items():
    write(tmp_path / split, content)
  places = {split: str(tmp_path / split) for split in files}
  text("text", tmp_path, **places).load()
  assert caplog.messages == [
    "60 % of the test text is <unk>, words that the training text does not have"
  ]


def test_held_out_file_among_the_training_files_gives_a_warning(tmp_path, caplog):
  for name in ("a", "b", "valid"):
    write(tmp_path / f"{name}.txt", "a b c d\n")
  places = {"train": str(tmp_path / "*.txt"), "valid": str(tmp_path / "valid.txt")}
  text("text", tmp_path, **places, test=str(tmp_path / "valid.txt")).load()
  assert caplog.messages == [
    f"the {split} text is part of the training text: {tmp_path / 'valid.txt'}"
    for split in ("valid", "test")
  ]


def test_text_in_one_file_is_cut_in_order(tmp_path):
  lines = "".join(f"w{n % 9} w{n % 7}\n" for n in range(100))
  file = write(tmp_path / "all", lines)
  corpus = text("text", tmp_path, train=file, valid_share=0.1, test_share=0.1).load()
  assert [len(decoded(corpus, s)) for s in ("train", "valid", "test")] == [240, 30, 30]
  assert decoded(corpus, "test")[:3] == ["w0", "w6", EOS]


def test_text_of_several_files_is_read_in_order_of_names(tmp_path):
  write(tmp_path / "b.txt", "b")
  write(tmp_path / "a.txt", "a")
  file = write(tmp_path / "v", "a")
  pattern = str(tmp_path / "*.txt")
  corpus = text("text", tmp_path, train=pattern, valid=file, test=file).load()
  assert decoded(corpus, "train") == ["a", EOS, "b", EOS]


def test_text_can_be_lower_cased_and_tokenised(tmp_path):
  file = write(tmp_path / "t", "L'État, c'est <unk> (1,5%)!\n" * 9)
  corpus = text(
    "text", tmp_path, train=file, lower_case=True, tokenize=True, valid=file, test=file
  ).load()
  assert " ".join(decoded(corpus, "test")[:11]) == (
    "l'état , c'est <unk> ( 1,5 % ) ! <eos> l'état"
  )


@pytest.mark.parametrize(
  ("line", "words"),
  [
    ("İstanbul'da", "i\u0307stanbul'da"),
    ("cafe\u0301, cafe\u0301", "café , café"),
    ("हिन्दी में.", "हिन्दी में ."),
    ("x\U000e0100-y\u20d7!", "x\U000e0100-y\u20d7 !"),
    ("l\u2019été \u2013 «où»…", "l\u2019été \u2013 « où » …"),
  ],
)
def test_combining_marks_belong_to_words(line, words):
  assert DATASETS["europarl"]().split(line) == words.split(" ")


def test_only_tokenised_text_has_a_version_in_its_key(tmp_path):
  """A version for other text would make all users encode their text again."""
  file = write(tmp_path / "t", "a")
  version = lambda **more: DATASETS["text"](train=file, **more).texts()["train"].version
  assert version() == version(tokenize=True, tokenizer="tokenizer.json") == ""
  assert version(tokenize=True)


@pytest.mark.parametrize("content", ["", " \t\n\n"])
def test_file_without_words_is_refused(tmp_path, content):
  good, blank = write(tmp_path / "g", "a b"), write(tmp_path / "blank", content)
  with pytest.raises(UserError, match=r"the valid text has no words: .*blank"):
    text("text", tmp_path, train=good, valid=blank, test=good).load()


def test_missing_file_is_refused(tmp_path):
  with pytest.raises(UserError, match=r"data.train is empty: set it"):
    text("text", tmp_path).load()
  with pytest.raises(UserError, match=r"data.train: no file /no/where: give"):
    text("text", tmp_path, train="/no/where").load()


def test_text8_is_a_single_stream(tmp_path):
  words = [f"w{n % 6}" for n in range(1000)] + ["once"]
  file = write(tmp_path / "text8", " " + " ".join(words))
  corpus = text("text8", tmp_path, train=file).load()
  assert [len(decoded(corpus, s)) for s in ("train", "valid", "test")] == [901, 50, 50]
  assert decoded(corpus, "train") == words[:901]
  assert decoded(corpus, "test")[-2:] == ["w3", "<unk>"]
  assert corpus.vocabulary.counts_V[corpus.vocabulary.eos] == 0


def test_europarl_drops_mark_up_and_empty_lines(tmp_path):
  file = write(
    tmp_path / "ep",
    '<CHAPTER ID=1>\nReprise\n<SPEAKER ID=1 NAME="La Présidente">\n\n'
    "<P>\n  Je déclare, reprise. \n",
  )
  corpus = text("europarl", tmp_path, train=file, valid=file, test=file).load()
  assert " ".join(decoded(corpus, "train")) == (
    "reprise <eos> je déclare , reprise . <eos>"
  )


@pytest.fixture
def lm1b(tmp_path):
  train = tmp_path / "training-monolingual.tokenized.shuffled"
  heldout = tmp_path / "heldout-monolingual.tokenized.shuffled"
  train.mkdir()
  heldout.mkdir()
  for shard in range(1, 4):
    lines = "".join(f"shard{shard} line{n}\n" for n in range(20))
    write(train / f"news.en-0000{shard}-of-00100", lines)
  for shard in range(3):
    write(heldout / f"news.en.heldout-0000{shard}-of-00050", f"shard{shard}\n" * 3)
  return lambda **settings: text("lm1b", tmp_path, path=str(tmp_path), **settings)


def sentences(corpus, split):
  text = " ".join(decoded(corpus, split))
  return [s.strip() for s in text.split(EOS)][:-1]


def test_lm1b_is_shuffled_by_shard_and_line(lm1b):
  train = sentences(lm1b().load(), "train")
  assert len(train) == len(set(train)) == 60
  shards = [s.split()[0] for s in train]
  numbers = [int(s.split("line")[1]) for s in train]
  for i in (0, 20, 40):
    assert sorted(numbers[i : i + 20]) == list(range(20)) != numbers[i : i + 20]
  assert all(len(set(shards[i : i + 20])) == 1 for i in (0, 20, 40))
  assert train != sentences(lm1b(seed=1).load(), "train")
  assert train == sentences(lm1b(seed=0, max_vocab=30).load(), "train")


def test_lm1b_directory_name_with_brackets_is_not_a_pattern(lm1b, tmp_path):
  """`[2]` is taken literally, not as a pattern that matches another directory."""
  want = sentences(lm1b().load(), "train")
  inner, other = tmp_path / "lm[2]", tmp_path / "lm2"
  inner.mkdir(), other.mkdir()
  for directory in tmp_path.glob("*-monolingual*"):
    directory.rename(inner / directory.name)
  of = lambda path: text("lm1b", tmp_path, path=str(path)).load()
  assert sentences(of(inner), "train") == want
  with pytest.raises(UserError, match=r"data.train: no file .*lm2/train"):
    of(other)


def test_lm1b_reads_the_held_out_shards(lm1b):
  corpus = lm1b().load()
  assert sentences(corpus, "valid") == ["shard1"] * 3
  assert sentences(corpus, "test") == ["<unk>"] * 3  # shard0 is not in training


def test_lm1b_can_insert_a_begin_token(lm1b):
  corpus = lm1b(begin="<S>").load()
  assert decoded(corpus, "valid") == ["<S>", "shard1", EOS] * 3
  counts_V = corpus.vocabulary.counts_V
  assert counts_V[corpus.vocabulary.index["<S>"]] == 60


@pytest.mark.parametrize("name", ["news.en-00002", "news.en.heldout-00001"])
def test_lm1b_names_a_shard_of_blank_lines(lm1b, tmp_path, name):
  """The other shards have sentences."""
  (shard,) = tmp_path.glob(f"*/{name}*")
  write(shard, " \n\n\t\n")
  with pytest.raises(UserError, match=rf"{shard} has no sentences"):
    lm1b().load()
  write(shard, "\n a sentence\n")
  lm1b().load()


def test_lm1b_refuses_invalid_settings(lm1b):
  with pytest.raises(UserError, match=r"data.path is empty"):
    DATASETS["lm1b"]().load()
  with pytest.raises(UserError, match=r"data.valid: no file .*/nothing"):
    lm1b(valid="nothing").load()
  with pytest.raises(UserError, match=r"^Lm1b\.seed is -1; it must"):
    lm1b(seed=-1)
  for begin in ("<S> <T>", " "):
    with pytest.raises(UserError, match=r"^Lm1b\.begin is .*; it must have no blanks"):
      lm1b(begin=begin)
