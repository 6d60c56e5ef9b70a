"""Fetching data by one command, from a real server on this machine."""

import pytest

from largevocab.data import sources
from largevocab.data.sources import File
from largevocab.errors import UserError
from largevocab.tools import entry, fetch
from tests.tools.fetching.packing import zip_of
from tests.tools.fetching.running import CONTENT, digest, ends, names, run, source


def test_file_is_fetched_verified_and_then_kept(site, tmp_path, capsys):
  url = site.put("a.bin", CONTENT)
  file = File("a.txt", url, len(CONTENT), digest(CONTENT))
  directory = tmp_path / "new place" / "data"
  assert run(directory, file) == 0
  assert (directory / "a.txt").read_bytes() == CONTENT
  assert names(directory) == ["a.txt", "mine.sha256"]
  told = capsys.readouterr().out
  assert "licence: free" in told
  assert "no checksum" not in told
  command = (
    f"python -m largevocab.main --config=c --x='{directory}' --workdir=runs/mine"
  )
  assert told.splitlines()[-1] == command
  assert run(directory, file) == 0
  assert len(site.seen) == 1
  told = capsys.readouterr().out
  assert "already" in told
  assert told.splitlines()[-1] == command


def test_missing_file_is_fetched_again_and_changed_file_named(site, tmp_path):
  one, two = File("1", site.put("1", b"one")), File("2", site.put("2", b"two"))
  run(tmp_path, one, two)
  (tmp_path / "2").unlink()
  run(tmp_path, one, two)
  assert [path for path, _ in site.seen] == ["/1", "/2", "/2"]
  assert (tmp_path / "2").read_bytes() == b"two"
  (tmp_path / "1").write_bytes(b"eno")
  ends(tmp_path, one, two, says="1 has changed since .*mine.sha256 .*delete both")
  assert (tmp_path / "1").read_bytes() == b"eno"


def test_wrong_checksum_or_size_leaves_no_file(site, tmp_path):
  url = site.put("a", CONTENT)
  wrong = digest(b"")
  ends(
    tmp_path,
    File("a", url, sha256=wrong),
    says=f"{url} has the SHA-256 checksum {digest(CONTENT)} instead of {wrong}",
  )
  assert names(tmp_path) == []
  ends(tmp_path, File("a", url, 7), says="has 300,000 bytes, but 7 are expected")
  assert names(tmp_path) == []


def test_empty_file_is_refused(site, tmp_path):
  url = site.put("a", b"")
  ends(tmp_path, File("a", url), says=f"{url} is empty: the download is deleted")
  assert names(tmp_path) == []
  (tmp_path / "a").write_bytes(b"")
  ends(tmp_path, File("a", ""), says="a is empty: delete it")
  assert names(tmp_path) == ["a"]


def test_empty_directory_name_is_refused(capsys):
  assert entry.run("fetch", lambda: fetch.main(["ptb", ""])) == 1
  assert "DIR is empty: name the directory" in capsys.readouterr().err


def test_full_disk_is_reported_before_the_download(site, tmp_path):
  file = File("a", site.put("a", CONTENT), 10**18)
  ends(tmp_path, file, says=r"bytes free, but 1,000,.* are needed: make room")
  assert site.seen == []


def test_disk_that_fills_up_is_reported(site, tmp_path):
  (tmp_path / "a.part").symlink_to("/dev/full")
  file = File("a", site.put("a", CONTENT))
  ends(tmp_path, file, says="No space left on device: make room, or give another")
  assert names(tmp_path) == []
  run(tmp_path, file)
  assert (tmp_path / "a").read_bytes() == CONTENT


def test_data_sets_do_not_overwrite_each_other(tmp_path):
  for name in ("one", "two"):
    (tmp_path / f"{name}.zip").write_bytes(zip_of({"train.txt": name.encode()}))
  members = {"train.txt": "train.txt"}
  table = {n: source(File(f"{n}.zip", members=members)) for n in ("one", "two")}
  fetch.main(["one", str(tmp_path)], table)
  with pytest.raises(UserError, match=r"has train.txt of another .*one\.sha256 says"):
    fetch.main(["two", str(tmp_path)], table)
  assert (tmp_path / "train.txt").read_bytes() == b"one"
  fetch.main(["one", str(tmp_path)], table)


def test_unwritable_directory_is_reported(site, tmp_path, capsys):
  (tmp_path / "file").write_bytes(b"")
  table = {"mine": source(File("a", site.put("a", CONTENT)))}
  place = str(tmp_path / "file" / "under")
  assert entry.run("fetch", lambda: fetch.main(["mine", place], table)) == 1
  assert f"fetch: {place}: Not a directory" in capsys.readouterr().err


def test_unpublished_checksum_is_recorded_and_then_verified(site, tmp_path, capsys):
  url = site.put("a", CONTENT)
  run(tmp_path, File("a", url))
  assert "no checksum of a is published" in capsys.readouterr().out
  line = f"{digest(CONTENT)}  a\n"
  assert (tmp_path / "mine.sha256").read_text() == line
  (tmp_path / "a").unlink()
  site.put("a", CONTENT[::-1])  # another file of the same length
  ends(tmp_path, File("a", url), says=f"instead of {digest(CONTENT)}")
  assert names(tmp_path) == ["mine.sha256"]
  site.put("a", CONTENT)
  run(tmp_path, File("a", url))
  assert "no checksum" not in capsys.readouterr().out
  assert (tmp_path / "mine.sha256").read_text() == line
  (tmp_path / "mine.sha256").write_text("not a record\n")
  ends(tmp_path, File("a", url), says=r"mine.sha256 has lines other than .*delete it")


def test_manually_added_file_is_verified_and_kept(site, tmp_path):
  (tmp_path / "a").write_bytes(b"mine")
  ends(tmp_path, File("a", site.put("a", CONTENT), 300_000), says="a has 4 bytes inst")
  ends(tmp_path, File("a", sha256=digest(CONTENT)), says="SHA-256.*delete it")
  assert (tmp_path / "a").read_bytes() == b"mine"
  run(tmp_path, File("a", "http://nowhere.invalid/", 4, digest(b"mine")))


def test_unknown_name_lists_the_names(tmp_path, capsys):
  asked = ["ptbb", str(tmp_path)]
  assert entry.run("fetch", lambda: fetch.main(asked)) == 1
  told = capsys.readouterr().err
  assert told.startswith("fetch: there is no data set 'ptbb' to fetch: name one of ")
  assert all(name in told for name in sources.SOURCES)
  assert len(told.splitlines()) == 1


def test_help_names_every_data_set(capsys):
  with pytest.raises(SystemExit, match="0"):
    fetch.main(["--help"])
  told = "".join(capsys.readouterr().out.split())
  assert all(name in told for name in sources.SOURCES)
