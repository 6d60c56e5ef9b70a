"""Formats of interactions, and the sequences made from them."""

import gzip
import lzma
import random
from collections import Counter

import numpy as np
import pytest

from largevocab.data import DATASETS
from largevocab.data.items.interaction_lines import ByUser, core
from largevocab.data.items.sequences import number_sequences, open_sequences
from largevocab.errors import UserError

# Users with their items in temporal order; the last two of c have the same time.
HISTORIES = {"ann": "p q p r", "b": "q", "c": "q r s q", "d": "s p"}
USERS = {user: items.split() for user, items in HISTORIES.items()}
TIMED = "c q 1e3\nann p 5\nd s 1\nc r 2000\nann r 8.5\nb q 3\nann q 6\nann p 7\n"
TIMED += "c s 3000\nc q 3000\nd p 2\n"
ORDERED = "".join(f"{u}\t{item}\n" for u, items in USERS.items() for item in items)
ATOMIC = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n" + "".join(
  "{}\t{}\t4.5\t{}\n".format(*line.split()) for line in TIMED.splitlines()
)


def load(tmp_path, text, name="a.txt", **settings):
  path = tmp_path / name
  path.write_bytes(text if isinstance(text, bytes) else text.encode())
  return DATASETS["interactions"](
    path=str(path), cache_dir=str(tmp_path / "cache"), **settings
  ).load()


def histories(data):
  return {
    user: data.vocabulary.decode(data.history(number))
    for number, user in enumerate(data.users)
  }


def test_directory_name_with_brackets_is_not_a_pattern(tmp_path):
  """`[2]` is taken literally, and a missing directory is named."""
  for name, text in (("a[2]", ORDERED), ("a2", ORDERED.replace("ann", "eve"))):
    (tmp_path / name).mkdir()
    (tmp_path / name / "x.txt").write_text(text)
  make = lambda path: DATASETS["interactions"](
    path=str(path), file="x.*", cache_dir=str(tmp_path / "cache")
  )
  assert histories(make(tmp_path / "a[2]").load()) == USERS
  assert "eve" in histories(make(tmp_path / "a2").load())
  for path in ("", tmp_path / "a3"):
    with pytest.raises(UserError, match=r"data\.path is '.*: set it to the dir"):
      make(path).load()


@pytest.mark.parametrize(
  ("text", "name", "lines"),
  [
    (TIMED, "a.txt", "interactions"),
    (TIMED.replace(" ", ",\t").replace(",\t", ", "), "a.csv", "interactions"),
    ("userId,itemId,time\n" + TIMED.replace(" ", ","), "a.csv", "interactions"),
    ('"userId","itemId","time"\n' + "".join(
     '"{}","{}",{}\n'.format(*line.split()) for line in TIMED.splitlines()),
     "a.csv", "interactions"),
    ("movieId,userId,rating,timestamp\n" + "".join(
     "{1},{0},4.5,{2}\n".format(*line.split()) for line in TIMED.splitlines()),
     "a.csv", "interactions"),
    ("item user\n" + "\n".join(" ".join(line.split()[::-1])
     for line in ORDERED.splitlines()), "a.txt", "interactions"),
    (ORDERED + "\n", "a.txt", "interactions"),
    (ATOMIC, "a.inter", "interactions"),
    (lzma.compress(ATOMIC.encode()), "a.inter.xz", "interactions"),
    (gzip.compress(TIMED.encode(), mtime=0), "a.txt.gz", "interactions"),
    ("".join(f"{u} {items}\n" for u, items in HISTORIES.items()), "a", "histories"),
  ],
)  # fmt: skip
def test_every_format_is_read_in_temporal_order(tmp_path, text, name, lines):
  data = load(tmp_path, text, name, lines=lines)
  assert histories(data) == USERS
  assert data.summary == "4 users, 4 items, 11 interactions"


def test_header_without_a_known_time_gives_a_warning(tmp_path, caplog):
  text = "userId,itemId,when\n" + TIMED.replace(" ", ",")
  load(tmp_path, text, "a.csv")
  message = "no column is called timestamp or time among userId, itemId, when"
  assert message in caplog.text
  caplog.clear()
  load(tmp_path, text.replace("when", "ts"), "b.csv")
  assert not caplog.text


def test_several_files_are_one_data_set(tmp_path):
  (tmp_path / "1.csv").write_text("user,item,time\nann,p,5\nann,q,6\n")
  (tmp_path / "2.csv").write_text("time,item,user\n3,r,ann\n9,s,ann\n")
  files = {"path": f"{tmp_path}/*.csv", "cache_dir": str(tmp_path / "cache")}
  assert histories(DATASETS["interactions"](**files).load()) == {"ann": [*"rpqs"]}


@pytest.mark.parametrize(
  ("text", "name", "lines", "words"),
  [
    ("u a 3\n\nu b x\n", "a.txt", "interactions", "a.txt, line 3: 'x' is not a time"),
    ("u a nan\n", "a.txt", "interactions", "line 1: 'nan' is not a time"),
    ("u a 3\nu b\n", "a.txt", "interactions", "line 2: 2 columns, but the first line"),
    ("u a b c\n", "a.txt", "interactions", "set data.lines='histories'"),
    ("u,my item\n", "a.txt", "interactions", "line 1: 'my item' is not an id"),
    ("u,\n", "a.txt", "interactions", "line 1: '' is not an id"),
    ("user_id,item_id\nu,a\nuser_id,item_id\n", "a", "interactions", "line 3: the he"),
    ("u:token\titem_id:token\n", "a.inter", "interactions", "a header with user_id"),
    ("customer product\n17 204\n", "a.txt", "interactions", "'customer product' seem"),
    ("who what\nann a1\nb a2\n", "a.txt", "interactions", "line 1: 'who what' seem"),
    ("userId,filmId\n1,31\n", "a.csv", "interactions", "call them user_id, item_id"),
    ("userId,filmId,when,stars\n", "a.csv", "interactions", "header without item_id"),
    ("person\titem\ttime\n", "a", "interactions", "header without user_id: person"),
    ("user_id item_id\nu1 a1\n", "a", "histories", "set data.lines='interactions'"),
    ("users items\n\nu a1\nv a2 a3\n", "a", "histories", "line 1: 'users items' seem"),
    ("u a b c d\nv\n", "a.txt", "histories", "line 2: a user without items"),
    ("u a\xff", "a.txt", "histories", "u a"),
    ("u a b\nv a b\n", "a.txt", "histories", "users with at least 4 items"),
    ("u a a a a\n", "a.txt", "histories", "1 different items"),
  ],
)
def test_invalid_files_are_reported_in_one_line(tmp_path, text, name, lines, words):
  if "\xff" in text:
    text, words = text.encode("latin1"), "line 1: bytes that are not UTF-8"
  with pytest.raises(UserError) as error:
    load(tmp_path, text, name, lines=lines)
  assert words in str(error.value)
  assert name in str(error.value)
  assert "\n" not in str(error.value)


def test_empty_path_is_reported_in_one_line(tmp_path):
  with pytest.raises(UserError, match=r"^data\.path is empty"):
    DATASETS["interactions"](cache_dir=str(tmp_path)).load()


@pytest.mark.parametrize("names", [("1.csv", "2.csv"), ("2.csv", "1.csv")])
def test_header_in_only_one_of_several_files_is_refused(tmp_path, names):
  with_header, without = (tmp_path / name for name in names)
  with_header.write_text("item,user\np,ann\nq,ann\n")
  without.write_text("r,ann\ns,ann\n")
  files = {"path": f"{tmp_path}/*.csv", "cache_dir": str(tmp_path / "cache")}
  with pytest.raises(UserError) as error:
    DATASETS["interactions"](**files).load()
  assert f"{tmp_path}/2.csv, line 1: " in str(error.value)
  assert f"{tmp_path}/1.csv has " in str(error.value)
  assert "give all files a header, or none of them" in str(error.value)


def test_ids_without_digits_are_not_taken_for_a_header(tmp_path):
  """Even if later ids have digits."""
  text = "ann p\nb q7\nann q8\nann r\nann s9\n"
  assert load(tmp_path, text).summary == "2 users, 5 items, 5 interactions"


def naive_core(pairs, of_user, of_item):
  while True:
    users, items = (Counter(column) for column in zip(*pairs, strict=True))
    left = [p for p in pairs if users[p[0]] >= of_user and items[p[1]] >= of_item]
    if left == pairs:
      return pairs
    pairs = left


@pytest.mark.parametrize(("of_user", "of_item"), [(1, 1), (4, 1), (1, 5), (5, 5)])
def test_core_equals_that_of_a_loop(of_user, of_item):
  draw = random.Random(0)
  pairs = sorted(
    (min(draw.randrange(50), draw.randrange(50)), draw.randrange(40) // 2)
    for _ in range(250)
  )
  names = [str(i) for i in range(50)]
  columns = (np.array(column) for column in zip(*pairs, strict=True))
  found = core(ByUser(names, names, *columns), of_user, of_item)
  expected = naive_core(pairs, of_user, of_item)
  assert 0 < len(expected) <= len(pairs)
  assert [
    (int(found.users[user]), int(found.items[item]))
    for user, item in zip(found.user_I, found.item_I, strict=True)
  ] == expected
  assert len(set(found.user_I)) == len(found.users)
  assert len(set(found.item_I)) == len(found.items)


def test_minimal_counts_can_be_set(tmp_path):
  data = load(tmp_path, TIMED, min_of_user=3, min_of_item=2)
  assert histories(data) == {"ann": [*"pqpr"], "c": [*"qrq"]}


LONG = {"u": [*"abcdefg"], "v": [*"ba"], "w": [*"bcba"], "x": [*"abc"], "y": [*"g"]}


@pytest.fixture(scope="module")
def long(tmp_path_factory):
  """Loads `LONG`, with any fields given."""
  text = "".join(f"{user} {' '.join(items)}\n" for user, items in LONG.items())
  directory = tmp_path_factory.mktemp("long")
  return lambda **more: load(directory, text, lines="histories", **more)


def examples(data, split, steps):
  """(inputs, labels, seen) as names, for the examples with weight."""
  names = [*data.vocabulary.words, "-"]
  named = lambda row: "".join(names[id] for id in row)
  found = []
  for batch in data.evaluation_batches(split, 3, steps):
    assert bool(batch.start)
    size = len(batch.x)
    y, w = (leaf.reshape(size, -1) for leaf in (batch.y.ids_NP, batch.y.w_NP))
    for b in range(size):
      labels = "".join(names[i] for i, of in zip(y[b], w[b], strict=True) if of)
      if labels:
        seen = "" if batch.seen is None else named(batch.seen[b])
        found.append((named(batch.x[b]), labels, seen))
      if batch.at is not None:
        assert batch.y.context_N[b] == batch.x[b, batch.at[b]]
  return sorted(found)


def test_last_items_are_held_out(long):
  data, pad = long(), lambda seen: seen + "-" * (8 - len(seen))
  assert examples(data, "train", 3) == [("b--", "a", ""), ("b--", "c", ""),
                                        ("bcd", "cde", "")]  # fmt: skip
  assert examples(data, "valid", 3) == [
    ("a--", "b", pad("a")), ("bc-", "b", pad("bc")), ("cde", "f", pad("abcde")),
  ]  # fmt: skip
  assert examples(data, "test", 3) == [
    ("ab-", "c", pad("ab")), ("bcb", "a", pad("bcb")), ("def", "g", pad("abcdef")),
  ]  # fmt: skip


def test_one_label_gives_examples_with_a_single_label(long):
  data = long(one_label=True)
  assert examples(data, "train", 2) == [
    ("a-", "b", ""), ("ab", "c", ""), ("b-", "a", ""), ("b-", "c", ""),
    ("bc", "d", ""), ("cd", "e", ""),
  ]  # fmt: skip
  assert examples(data, "test", 9) == examples(long(), "test", 9)


def test_packed_rows_have_the_same_examples(long):
  """Each appears once and separately, also if a row has room for only one."""
  for steps in (3, 4, 6, 20):
    data = long(packed=True)
    batches = data.training_batches(1, steps)
    found = []
    for step in range(batches.steps_per_epoch):
      x_T, y = batches.batch(step).x[0], batches.batch(step).y
      is_missing_T = x_T == data.counts.num_classes
      for part in np.split(np.arange(steps), np.flatnonzero(is_missing_T)):
        inputs = part[~is_missing_T[part]]
        if len(inputs):
          np.testing.assert_array_equal(y.w_NP[inputs, 0], 1)
          np.testing.assert_array_equal(y.context_N[inputs], x_T[inputs])
          named = lambda ids: "".join(data.vocabulary.words[id] for id in ids)  # noqa: B023
          found.append((named(x_T[inputs]), named(y.ids_NP[inputs, 0])))
      assert (y.w_NP[is_missing_T] == 0).all()
      assert (y.ids_NP[is_missing_T] == data.counts.num_classes).all()
    apart = examples(long(), "train", steps)
    assert sorted(found) == [(x.rstrip("-"), labels) for x, labels, _ in apart]
  assert batches.steps_per_epoch == 1


def test_row_weights_apply_to_their_labels(long):
  data = long(packed=True)
  rows = data.training_batches(2, 4).examples
  batch = rows.batch(np.array([1, 0, 1]), np.array([1.0, 0.0, 1.0]))
  w_BT = batch.y.w_NP.reshape(3, 4)
  assert w_BT[1].sum() == 0 < w_BT[0].sum()
  np.testing.assert_array_equal(w_BT[0], w_BT[2])
  np.testing.assert_array_equal(batch.x[0], batch.x[2])


def test_packing_examples_of_one_label_is_refused(long):
  with pytest.raises(UserError, match=r"data\.packed .* set data\.one_label=False"):
    long(packed=True, one_label=True).training_batches(1, 4)


def test_counts_are_over_training_labels(long):
  data = long()
  counts = dict(zip(data.vocabulary.words, data.counts.unigram_V, strict=True))
  assert counts == {"c": 2, "a": 1, "b": 1, "d": 1, "e": 1, "f": 0, "g": 0}
  assert data.vocabulary.words[0] == "c"
  labels = Counter("".join(labels for _, labels, _ in examples(data, "train", 20)))
  assert labels == {item: count for item, count in counts.items() if count}


def test_every_input_has_a_label_with_its_context(long):
  data = long()
  batch = data.training_batches(3, 4).batch(0)
  assert (batch.at, batch.seen) == (None, None)
  num = data.counts.num_classes
  for n, (x, y, w) in enumerate(
    zip(batch.x.ravel(), batch.y.ids_NP[:, 0], batch.y.w_NP[:, 0], strict=True)
  ):
    assert w == (x < num)
    assert (y < num) == (x < num)
    assert batch.y.context_N[n] == (x if w else 0)


def test_long_histories_are_in_separate_batches():
  lengths_H = 3 + np.arange(300) ** 6 // 300**5
  item_I = np.random.default_rng(0).integers(0, 50, lengths_H.sum())
  user_I = np.repeat(np.arange(300), lengths_H)
  names = [str(i) for i in range(300)]
  data = number_sequences(ByUser(names, names, user_I, item_I))
  batches = data.evaluation_batches("test", 4, 5)
  widths = [batch.seen.shape[1] for batch in batches]
  assert widths == sorted(widths)
  assert len(set(widths)) == len([*batches.one_of_each_shape()]) > 1
  weights = sum(batch.y.w_NP.sum() for batch in batches)
  assert weights == batches.num_examples == 300
  for batch in batches:
    num_NS = (batch.seen < data.counts.num_classes).sum(axis=1)
    np.testing.assert_array_equal(batch.at, np.minimum(num_NS, 5) - 1)


def test_damaged_cache_is_reported(long, tmp_path):
  data = long()
  directory = data.items.filename.parent
  for name in ("items.npy", "users.txt", "sequences.json"):
    copy = tmp_path / name.partition(".")[0]
    copy.mkdir()
    for path in directory.iterdir():
      (copy / path.name).write_bytes(path.read_bytes())
    (copy / name).write_bytes((copy / name).read_bytes()[:-3])
    with pytest.raises(UserError, match=r"is damaged .* delete that directory"):
      open_sequences(copy)
