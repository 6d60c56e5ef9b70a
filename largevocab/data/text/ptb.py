"""Penn Treebank as preprocessed by Mikolov: V = 10,000."""

from largevocab.data.encoded import SPLITS
from largevocab.data.files import find_file
from largevocab.data.lines import read_lines
from largevocab.data.text.text_corpus import Text, TextCorpus
from largevocab.data.text.vocabulary import EOS
from largevocab.fields import settings


@settings(kw_only=True)
class Ptb(TextCorpus):
  """A directory with ptb.{train,valid,test}.txt, each plain, .gz or .xz.

  A line is a sentence and gets one `<eos>`. Rare words are already `<unk>` in the
  files. The usual files have 929,589 / 73,760 / 82,430 tokens and 10,000 classes; both
  numbers include `<eos>` and `<unk>`.

  Attributes:
    path: the directory.
  """

  path: str = ""

  def texts(self):
    files = {s: find_file(self.path, f"ptb.{s}.txt", "data.path") for s in SPLITS}
    return {
      split: Text(([*self.words(line), EOS] for line in read_lines(path)), [path])
      for split, path in files.items()
    }
