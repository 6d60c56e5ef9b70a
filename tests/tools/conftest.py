"""A local server that misbehaves on demand."""

import http.server
import re
import threading

import pytest


class Site:
  """Files by path, and how they are sent.

  Attributes:
    breaks: number of further answers that are cut off after half of their length.
    ranges: whether the server supports ranges.
    others: number of further answers with a range that was not asked for.
    seen: path and range of each request.
  """

  def __init__(self, address: str):
    self.address = address
    self.files: dict[str, bytes] = {}
    self.redirects: dict[str, str] = {}
    self.breaks = 0
    self.ranges = True
    self.others = 0
    self.seen: list[tuple[str, str]] = []

  def put(self, name: str, content: bytes) -> str:
    """Returns the address of a new file."""
    self.files[f"/{name}"] = content
    return f"{self.address}/{name}"


@pytest.fixture
def site():
  class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
      asked = self.headers.get("Range", "")
      site.seen.append((self.path, asked))
      if self.path in site.redirects:
        self.send_response(302)
        self.send_header("Location", site.redirects[self.path])
        self.end_headers()
        return
      if self.path not in site.files:
        self.send_error(404)
        return
      content, start = site.files[self.path], 0
      if asked and site.ranges:
        start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1])
        if site.others:
          site.others, start = site.others - 1, start + 1
      if start >= len(content) and asked:
        self.send_response(416)
        self.send_header("Content-Range", f"bytes */{len(content)}")
        self.end_headers()
        return
      self.send_response(206 if start else 200)
      if start:
        of = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self.send_header("Content-Range", of)
      content = content[start:]
      self.send_header("Content-Length", str(len(content)))
      self.end_headers()
      if site.breaks:
        site.breaks -= 1
        content = content[: len(content) // 2]
      self.wfile.write(content)

    def log_message(self, *args):
      pass

  with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
    site = Site(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield site
    server.shutdown()
    thread.join()
