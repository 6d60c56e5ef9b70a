"""Files of pairs of words."""

import pytest

from largevocab.data.text.word_pairs import read_word_pairs
from largevocab.errors import UserError

SIMLEX = "word1\tword2\tPOS\tSimLex999\tconc(w1)\nold\tnew\tA\t1.58\t2.72\n"
WORDSIM = "Word 1,Word 2,Human (mean)\r\nJerusalem,Israel,8.46\r\n\r\nbed,cup,.5\r\n"


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    (SIMLEX, [("old", "new", 1.58)]),
    (WORDSIM, [("Jerusalem", "Israel", 8.46), ("bed", "cup", 0.5)]),
    ("a\tb\tscore\nold\tnew, as it is\t3\n", [("old", "new, as it is", 3.0)]),
    ("a,b,c\n", []),
  ],
)
def test_columns_are_found(tmp_path, text, expected):
  path = tmp_path / "pairs.txt"
  path.write_text(text, newline="")
  assert read_word_pairs(path) == expected


@pytest.mark.parametrize(
  ("text", "message"),
  [
    ("", "line 1: the header must name the columns"),
    ("word1 word2 score\n", "line 1: the header must name the columns"),
    ("old\tnew\t1.58\n", "line 1: the header must name the columns"),
    (SIMLEX + "hard\teasy\tA\n", "line 3: .* in column 4, a number, separated by tabs"),
    (WORDSIM + "bed,cup,much\n", "line 5: .* in column 3, a number, .* commas"),
    (WORDSIM + "bed,,1\n", "line 5: give two words"),
    (WORDSIM + "bed,cup,nan\n", "line 5: give two words"),
  ],
)
def test_invalid_lines_are_named_with_file_and_line(tmp_path, text, message):
  path = tmp_path / "pairs.txt"
  path.write_text(text, newline="")
  with pytest.raises(UserError, match=rf"pairs\.txt, {message}"):
    read_word_pairs(path)
