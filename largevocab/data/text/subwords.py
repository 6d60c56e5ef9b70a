"""Subwords of a `tokenizer.json`, the file format of Hugging Face's `tokenizers`."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from largevocab.data.batches import TextSize
from largevocab.data.text.vocabulary import EOS
from largevocab.errors import UserError, remedy


def _name(token: str) -> str:
  r"""The name of a token without blanks, as a file of classes requires.

  >>> print(_name("Ġthe"), _name("a b"))
  Ġthe a\u0020b
  """
  return "".join(f"\\u{ord(c):04x}" if c.isspace() else c for c in token)


@dataclass(frozen=True)
class Subwords:
  """A trained tokenizer, whose tokens serve as the words of text data.

  Special tokens that the tokenizer would add, such as marks of the beginning, are left
  out. Blanks within the name of a token are written as in `\\u0020`.

  Attributes:
    path: the file `tokenizer.json`.

  Raises:
    UserError: the package `tokenizers` or the file is missing, or the file is not a
      tokenizer, or it is a tokenizer of subwords without a decoder.
  """

  path: Path

  @cached_property
  def _tokenizer(self) -> Any:
    try:
      import tokenizers  # pyrefly: ignore
    except ImportError as error:
      raise UserError(
        "data.tokenizer needs the package tokenizers: install it, as with pip install "
        "tokenizers"
      ) from error
    try:
      text = self.path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
      reason = getattr(error, "strerror", None) or "it is not UTF-8"
      code = None if self.path.is_dir() else getattr(error, "errno", None)
      what_to_do = remedy(code, "give a tokenizer.json")
      raise UserError(
        f"data.tokenizer: cannot read {self.path} ({reason}); {what_to_do}"
      ) from error
    try:
      tokenizer = tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # errors of the Rust code have no type of their own
      reason = " ".join(str(error).split())[:200]
      raise UserError(
        f"data.tokenizer: {self.path} is not a tokenizer.json ({reason}): save one "
        "with Tokenizer.save of the library tokenizers"
      ) from error
    if tokenizer.decoder is None and not isinstance(
      tokenizer.model, tokenizers.models.WordLevel
    ):  # tokens would be joined with blanks, so that each would count as a word
      raise UserError(
        f"data.tokenizer: {self.path} has no decoder, so word_ppl would be wrong: set "
        "Tokenizer.decoder, for instance to tokenizers.decoders.ByteLevel(), and save "
        "it again"
      )
    tokenizer.no_truncation()  # the file may ask for long lines to be cut
    tokenizer.no_padding()
    # Some models draw the tokens of a word at random, for training; here a text has one
    # encoding.
    for of_sampling in ("dropout", "alpha", "nbest_size"):
      if getattr(tokenizer.model, of_sampling, None) is not None:
        setattr(tokenizer.model, of_sampling, None)
    return tokenizer

  def checked(self) -> Path:
    """The path of the file, after it was read and checked."""
    _ = self._tokenizer
    return self.path

  @cached_property
  def _id_of(self) -> dict[str, int]:
    """The tokenizer's own id of each name, in the order of these ids."""
    vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
    by_id = sorted(vocabulary.items(), key=lambda pair: pair[1])
    return {_name(token): id for token, id in by_id}

  @property
  def names(self) -> Sequence[str]:
    """All tokens."""
    return [*self._id_of]

  @cached_property
  def _characters(self) -> set[str] | None:
    """The characters of all tokens, if others would be dropped without an error.

    BPE drops them if it has neither an unknown token nor tokens of all bytes.
    """
    import tokenizers  # pyrefly: ignore

    model: Any = self._tokenizer.model
    is_bpe = isinstance(model, tokenizers.models.BPE)
    if not is_bpe or model.unk_token is not None or model.byte_fallback:
      return None
    found = {*"".join(self._tokenizer.get_vocab(with_added_tokens=True))}
    has_bytes = found.issuperset(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    return None if has_bytes else found

  def split(self, line: str) -> list[str]:
    """The tokens of a line, without its end."""
    text = line.rstrip("\r\n")
    try:
      self._check_characters(text)
      encoding = self._tokenizer.encode(text, add_special_tokens=False)
    except Exception as error:  # e.g. its unknown token is not in its vocabulary
      reason = " ".join(str(error).split())[:200]
      raise UserError(
        f"data.tokenizer: {self.path} cannot encode {text[:40]!r} ({reason}): save one "
        "that can, with an unknown token or with bytes as its alphabet"
      ) from error
    return [_name(token) for token in encoding.tokens]

  def _check_characters(self, text: str) -> None:
    """Raises a ValueError if the text has a character that would be dropped."""
    if self._characters is None:
      return
    own = self._tokenizer
    text = own.normalizer.normalize_str(text) if own.normalizer else text
    pieces = (
      own.pre_tokenizer.pre_tokenize_str(text) if own.pre_tokenizer else [(text,)]
    )
    if lost := {*"".join(piece for piece, *_ in pieces)} - self._characters:
      raise ValueError(f"no token has {min(lost)!r}")

  def text(self, names: Iterable[str]) -> str:
    """The text of some tokens, with a line feed at the end of each line."""
    return "".join(self._lines(names))

  def added(self, names: Sequence[str], name: str) -> str:
    """What one more token adds to the text of other tokens, to be shown to people.

    This is the token's name if it is not text, or if it changes the text before it.
    """
    if name not in self._id_of:
      return name
    before, after = self.text(names), self.text([*names, name])
    return after[len(before) :] if after.startswith(before) else name

  def size(self, names: Iterable[str]) -> TextSize:
    """The size of the text that tokens decode to."""
    num_words = num_bytes = 0
    for line in self._lines(names):
      num_words += len(line.split()) + line.endswith("\n")
      num_bytes += len(line.encode())
    return TextSize(num_words, num_bytes)

  def _lines(self, names: Iterable[str]) -> Iterator[str]:
    """Decoded lines, each with a line feed, and the text after the last line."""
    line: list[str] = []
    for name in names:
      if name == EOS:
        yield self._decoded(line) + "\n"
        line = []
      else:
        line.append(name)
    yield self._decoded(line)

  def _decoded(self, names: Sequence[str]) -> str:
    ids = [self._id_of[name] for name in names if name in self._id_of]
    return self._tokenizer.decode(ids, skip_special_tokens=False)
