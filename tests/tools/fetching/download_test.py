"""Downloads that break and resume."""

import fcntl
import http.server

import pytest

from largevocab.data.sources import File
from largevocab.errors import UserError
from largevocab.tools.fetching.download import download
from tests.tools.fetching.running import CONTENT, digest, ends, names, run


@pytest.mark.parametrize("ranges", [True, False])
def test_broken_connection_is_reopened(ranges, site, tmp_path):
  site.breaks, site.ranges = 2, ranges
  part = tmp_path / "part"
  download(site.put("a", CONTENT), part, len(CONTENT), pause=0)
  assert part.read_bytes() == CONTENT
  half, rest = len(CONTENT) // 2, 3 * len(CONTENT) // 4
  second = half if not ranges else rest  # a restarted download breaks there again
  assert [asked for _, asked in site.seen] == [
    *("", f"bytes={half}-", f"bytes={second}-")
  ]


def test_repeatedly_broken_download_can_be_resumed_later(site, tmp_path):
  url = site.put("a", CONTENT)
  file = File("a", url, len(CONTENT), digest(CONTENT))
  part = tmp_path / "a.part"
  site.breaks, site.ranges = 1000, False
  with pytest.raises(UserError, match=r"failed after 150,000 bytes .*same command"):
    download(url, part, pause=0)
  assert part.read_bytes() == CONTENT[:150_000]
  site.breaks, site.ranges = 0, True
  run(tmp_path, file)
  assert site.seen[-1][1] == "bytes=150000-"
  assert (tmp_path / "a").read_bytes() == CONTENT


def test_complete_download_is_not_sent_again(site, tmp_path):
  """Nor is one of unknown size, if the server says that there are no more bytes."""
  url = site.put("a", CONTENT)
  (tmp_path / "a.part").write_bytes(CONTENT)
  run(tmp_path, File("a", url, len(CONTENT), digest(CONTENT)))
  assert site.seen == []
  (tmp_path / "b.part").write_bytes(CONTENT)
  download(url, tmp_path / "b.part", pause=0)
  assert site.seen == [("/a", "bytes=300000-")]
  assert (tmp_path / "b.part").read_bytes() == CONTENT


def test_part_of_a_longer_file_is_downloaded_again(site, tmp_path):
  url = site.put("a", b"short")
  for size in (0, 5):
    (tmp_path / "part").write_bytes(CONTENT)
    download(url, tmp_path / "part", size, pause=0)
    assert (tmp_path / "part").read_bytes() == b"short"


def test_wrong_range_restarts_the_download(site, tmp_path):
  url, part = site.put("a", CONTENT), tmp_path / "part"
  part.write_bytes(CONTENT[:100])
  site.others = 1
  download(url, part, len(CONTENT), pause=0)
  assert part.read_bytes() == CONTENT
  assert [asked for _, asked in site.seen] == ["bytes=100-", ""]


def test_refused_connection_is_reported(tmp_path):
  with http.server.HTTPServer(
    ("127.0.0.1", 0), http.server.BaseHTTPRequestHandler
  ) as s:
    address = f"http://127.0.0.1:{s.server_port}/a"
  with pytest.raises(UserError, match=r"failed after 0 bytes .*refused.*network"):
    download(address, tmp_path / "part", pause=0)


def test_part_of_another_file_is_detected(site, tmp_path):
  (tmp_path / "a.part").write_bytes(bytes(1000))
  file = File("a", site.put("a", CONTENT), len(CONTENT), digest(CONTENT))
  ends(tmp_path, file, says="the download is deleted")
  run(tmp_path, file)
  assert (tmp_path / "a").read_bytes() == CONTENT


def test_redirects_are_followed_with_the_range(site, tmp_path):
  site.redirects["/old"] = site.put("new", CONTENT)
  (tmp_path / "a.part").write_bytes(CONTENT[:100])
  run(tmp_path, File("a", f"{site.address}/old", sha256=digest(CONTENT)))
  assert (tmp_path / "a").read_bytes() == CONTENT
  assert site.seen == [("/old", "bytes=100-"), ("/new", "bytes=100-")]


def test_missing_address_is_requested_once(site, tmp_path):
  gone = f"{site.address}/gone"
  ends(tmp_path, File("a", gone), says=f"{gone}: 404 .*put it into the directory")
  assert len(site.seen) == 1
  site.redirects["/gone"] = "/gone"
  ends(tmp_path, File("a", gone), says="302 .*no longer valid")
  assert names(tmp_path) == []


def test_simultaneous_download_is_refused(site, tmp_path):
  part = tmp_path / "part"
  url = site.put("a", CONTENT)
  with part.open("ab") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    with pytest.raises(UserError, match="another process is writing"):
      download(url, part, pause=0)
  download(url, part, pause=0)
  assert part.read_bytes() == CONTENT
