"""Valid, damaged and hostile archives."""

import tarfile

import pytest

from largevocab.data.sources import File
from tests.tools.fetching.packing import link, tar_of, tar_with, zip_link, zip_of
from tests.tools.fetching.running import CONTENT, ends, names, run


@pytest.mark.parametrize("packed_as", ["tar", "zip"])
def test_archive_is_not_needed_once_unpacked(packed_as, site, tmp_path):
  contents = {"x/a_train.txt": b"train", "x/more/b.txt": CONTENT, "x/c": b"c"}
  packed = tar_of(**contents) if packed_as == "tar" else zip_of(contents)
  wanted = {"*train.txt": "train.txt", "x/more/*": ""}
  file = File("packed", site.put("packed", packed), members=wanted)
  run(tmp_path, file)
  expected = ["mine.sha256", "packed", "train.txt", "x/more/b.txt"]
  assert names(tmp_path) == expected
  assert (tmp_path / "train.txt").read_bytes() == b"train"
  assert (tmp_path / "x/more/b.txt").read_bytes() == CONTENT
  (tmp_path / "packed").unlink()
  run(tmp_path, file)
  assert len(site.seen) == 1
  (tmp_path / "train.txt").unlink()
  run(tmp_path, file)
  assert names(tmp_path) == expected


GOOD = (tarfile.TarInfo("good"), b"good")
HOSTILE = {
  "above": tar_with(GOOD, (tarfile.TarInfo("../above"), b"bad")),
  "deeper": tar_with(GOOD, (tarfile.TarInfo("a/../../deeper"), b"bad")),
  "link": tar_with(GOOD, link("link", "/etc/passwd")),
  "hard": tar_with(GOOD, link("hard", "good", tarfile.LNKTYPE)),
  "device": tar_with(GOOD, link("device", "", tarfile.CHRTYPE)),
  "line": tar_with(GOOD, (tarfile.TarInfo("new\nline"), b"bad")),
  "zip above": zip_of({"good": b"good", "../zip above": b"bad"}),
  "zip link": zip_of({"good": b"good", zip_link("zip link"): b"/etc/passwd"}),
}


@pytest.mark.parametrize("name", [*HOSTILE, "root"])
def test_hostile_archive_is_not_unpacked(name, site, tmp_path):
  directory = tmp_path / "place" / "data"
  root = tar_with(GOOD, (tarfile.TarInfo(f"{tmp_path}/root"), b"bad"))
  content = root if name == "root" else HOSTILE[name]
  file = File("packed", site.put("a", content), members={"*": ""})
  ends(directory, file, says=r"its member '.*' (lies|is a link|has a name).*delete")
  assert names(tmp_path) == ["place/data/packed"]


def test_invalid_archives_are_refused(site, tmp_path):
  wanted = {"a": "a"}
  whole = tar_of(a=CONTENT)
  for content, says in {
    b"<html>you have to log in": "neither tar nor zip; it starts with b'<html>",
    whole[: len(whole) // 2]: "not a valid archive",
    zip_of({"a": CONTENT})[:-9]: "neither tar nor zip|not a valid archive",
    tar_of(b=b""): "0 members match a; it has b: it is another archive",
    zip_of({}): "it has no files",
  }.items():
    (tmp_path / "packed").unlink(missing_ok=True)
    ends(tmp_path, File("packed", site.put("p", content), members=wanted), says=says)
    assert names(tmp_path) == ["packed"]
  two = tar_of(**{"x/a": b"1", "y/a": b"2"})
  (tmp_path / "packed").unlink()
  file = File("packed", site.put("p", two), members={"*/a": "a"})
  ends(tmp_path, file, says=r"2 members match \*/a; it has x/a, y/a")


def test_damaged_member_is_detected(site, tmp_path):
  """A zip file's own checksum of a member is verified."""
  packed = bytearray(zip_of({"a": CONTENT}))
  packed[1000] ^= 1
  file = File("packed", site.put("p", bytes(packed)), members={"a": "a"})
  ends(tmp_path, file, says="not a valid archive .*CRC")
  assert names(tmp_path) == ["packed"]


def test_file_that_only_a_person_can_get_is_named(tmp_path, capsys):
  file = File("by_hand.zip", members={"*train.txt": "train.txt"})
  ends(tmp_path, file, says="ask Ann; put it into .*same command", by_hand="ask Ann")
  (tmp_path / "by_hand.zip").write_bytes(zip_of({"E/e_train.txt": b"1"}))
  run(tmp_path, file, by_hand="ask Ann")
  assert (tmp_path / "train.txt").read_bytes() == b"1"
  assert "no checksum of by_hand.zip" in capsys.readouterr().out
  assert (tmp_path / "by_hand.zip").exists()
