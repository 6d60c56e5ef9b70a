import gzip
import lzma
import tracemalloc

import pytest
from hypothesis import given, settings, strategies as st

from largevocab.data import lines
from largevocab.data.lines import read_chunks, read_lines
from largevocab.errors import UserError

TEXT = "první řádek\nzweite Zeile\n\nlast"
PACK = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}


@pytest.fixture(params=PACK)
def text_file(request, tmp_path):
  path = tmp_path / f"text.txt{request.param}"
  path.write_bytes(PACK[request.param](TEXT.encode()))
  return path


def test_plain_and_compressed_files_are_read(text_file):
  assert [line.rstrip("\n") for line in read_lines(text_file)] == TEXT.split("\n")


def test_chunks_end_between_words(text_file, monkeypatch):
  for size in range(1, 40):
    monkeypatch.setattr(lines, "_CHUNK", size)
    words = [word for chunk in read_chunks(text_file) for word in chunk.split()]
    assert words == TEXT.split()


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="aé \n\u2028", max_size=30), st.integers(1, 8))
def test_chunks_have_the_words_of_the_file(tmp_path_factory, text, size):
  path = tmp_path_factory.mktemp("d") / "f"
  path.write_text(text, encoding="utf-8", newline="\n")
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(lines, "_CHUNK", size)
    chunks = list(read_chunks(path))
  assert "".join(chunks) == text
  assert [word for chunk in chunks for word in chunk.split()] == text.split()


@pytest.mark.parametrize("suffix", [".GZ", ".XZ", ".Gz"])
@pytest.mark.parametrize("read", [read_lines, read_chunks])
def test_uppercase_suffixes_are_recognised(read, suffix, tmp_path):
  path = tmp_path / f"text.txt{suffix}"
  path.write_bytes(PACK[suffix.lower()](TEXT.encode()))
  assert "".join(read(path)) == TEXT


@pytest.mark.parametrize(
  ("read", "message"),
  [
    (read_lines, r"line 2: longer than 16 MiB; give .*data\.line_ends=False"),
    (read_chunks, r"line 2: more than 16 MiB without a blank; give a text"),
  ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_decompression_bomb_needs_little_memory(read, message, suffix, tmp_path):
  """40 kB unpack to 40 MB without a line end."""
  path = tmp_path / f"bomb{suffix}"
  path.write_bytes(PACK[suffix](b"a b\n" + b"a" * 40_000_000))
  tracemalloc.start()
  try:
    with pytest.raises(UserError, match=rf"^{path}, {message}"):
      list(read(path))
    assert tracemalloc.get_traced_memory()[1] < 60_000_000
  finally:
    tracemalloc.stop()


@pytest.mark.parametrize("longest", [4, 100])
def test_lines_that_end_in_cr_alone_are_refused(tmp_path, monkeypatch, longest):
  monkeypatch.setattr(lines, "_LONGEST", longest)
  path = tmp_path / "t"
  path.write_bytes(b"a b\rc d\r")
  with pytest.raises(UserError, match=r"ends its lines in CR alone; .* tr '\\r' '\\n'"):
    list(read_lines(path))
  for text in (b"a\r\nb\r\n", b"a\r", b"a\rb\n"):
    path.write_bytes(text)
    assert "".join(read_lines(path)).encode() == text


def test_lines_of_the_maximal_length_are_read(tmp_path, monkeypatch):
  monkeypatch.setattr(lines, "_LONGEST", 4)
  path = tmp_path / "t"
  path.write_text("abc\n\nabcd")
  assert list(read_lines(path)) == ["abc\n", "\n", "abcd"]
  path.write_text("abc\nabcd\n")
  with pytest.raises(UserError, match="line 2: longer than"):
    list(read_lines(path))


@pytest.mark.parametrize("read", [read_lines, read_chunks])
class TestFaults:
  @pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-16-le", "utf-32"])
  def test_utf_16_and_utf_32_are_named(self, read, encoding, tmp_path):
    path = tmp_path / "t.txt"
    path.write_text(TEXT, encoding=encoding)
    name = encoding.upper()
    marked = encoding.count("-") == 1
    message = (
      f"is in {name}; convert it to UTF-8, as with iconv -f {name} " if marked else "1:"
    )
    with pytest.raises(UserError, match=message):
      list(read(path))

  def test_missing_file_is_named(self, read, tmp_path):
    with pytest.raises(UserError, match=r"no.txt cannot be read: No such file"):
      list(read(tmp_path / "no.txt"))

  @pytest.mark.parametrize("suffix", [".gz", ".xz"])
  def test_truncated_file_is_named(self, read, tmp_path, suffix):
    path = tmp_path / f"t{suffix}"
    path.write_bytes(PACK[suffix](TEXT.encode() * 1000)[:-20])
    with pytest.raises(UserError, match=rf"t\{suffix} is cut short: copy or download"):
      list(read(path))

  @pytest.mark.parametrize("suffix", [".gz", ".xz"])
  def test_uncompressed_file_with_a_compressed_suffix_is_named(
    self, read, tmp_path, suffix
  ):
    path = tmp_path / f"t{suffix}"
    path.write_text(TEXT)
    with pytest.raises(UserError, match=rf"not a valid \{suffix} file"):
      list(read(path))

  def test_damaged_compressed_file_is_named(self, read, tmp_path):
    for suffix in (".gz", ".xz"):
      path = tmp_path / f"t{suffix}"
      data = bytearray(PACK[suffix](TEXT.encode() * 1000))
      data[len(data) // 2] ^= 0xFF
      path.write_bytes(data)
      with pytest.raises(UserError, match=rf"t\{suffix} is not a valid \{suffix} file"):
        list(read(path))

  def test_binary_file_is_named(self, read, tmp_path):
    path = tmp_path / "t.txt"
    path.write_bytes(b"one\ntwo\0\nthree\n")
    with pytest.raises(UserError, match=r"t.txt, line 2: a NUL byte; give a text"):
      list(read(path))

  def test_line_that_is_not_utf8_is_named(self, read, tmp_path):
    path = tmp_path / "t.txt"
    path.write_bytes("one\ntwo\nd\xe9j\xe0 vu\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"t.txt, line 3: bytes that are not UTF-8"):
      list(read(path))

  def test_byte_order_mark_is_removed(self, read, tmp_path):
    path = tmp_path / "t.txt"
    path.write_text("one two\n", encoding="utf-8-sig")
    assert next(iter(read(path))) == "one two\n"
