"""Which files count as changes of the source."""

import subprocess

from largevocab import provenance
from largevocab.provenance import RESULTS


def test_new_result_rows_do_not_count_as_changes(tmp_path):
  """Any other changed file does."""
  results = tmp_path / "experiments" / "name" / "results.jsonl"
  source = tmp_path / "experiments" / "name" / "sweep.py"
  results.parent.mkdir(parents=True)
  git = lambda *args: (
    subprocess.run(
      ["git", "-C", str(tmp_path), *args], capture_output=True, text=True, check=True
    ).stdout
  )
  git("init", "-q")
  status = lambda: git("status", "--porcelain", "-uall", "--", ":/", RESULTS)
  results.write_text("{}\n")
  assert status() == ""
  source.write_text("")
  assert status() == "?? experiments/name/sweep.py\n"


def test_only_changes_of_the_package_count(tmp_path, monkeypatch):
  git = lambda *args: subprocess.run(
    ["git", "-C", str(tmp_path), *args], capture_output=True, check=True
  )
  monkeypatch.setattr(provenance, "__file__", str(tmp_path / "provenance.py"))
  source, page = tmp_path / "largevocab" / "source.py", tmp_path / "docs" / "page.md"
  for path in (source, page):
    path.parent.mkdir()
    path.write_text("1\n")
  (tmp_path / "provenance.py").write_text("")
  git("init", "-q")
  git("add", ".")
  (tmp_path / "my_code.py").write_text("")
  who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
  git(*who, "commit", "-qm", "All")
  page.write_text("2\n")
  assert not provenance.has_changes()
  new = source.with_name("new.py")
  new.write_text("")
  assert provenance.has_changes()
  new.unlink()
  source.write_text("2\n")
  assert provenance.has_changes()


def test_source_counts_as_changed_if_git_fails(monkeypatch):
  answer = lambda *args: None if args[0] == "status" else "answer"
  monkeypatch.setattr(provenance, "_answer", answer)
  assert provenance.has_changes()
  assert provenance.describe_machine()["git_dirty"]
  monkeypatch.setattr(provenance, "_answer", lambda *args: None)  # there is no git
  assert (provenance.revision(), provenance.has_changes()) == ("", False)


def test_repository_that_does_not_track_the_package_is_ignored(tmp_path, monkeypatch):
  """The package is installed in the folder of a user's project."""
  git = lambda *args: subprocess.run(
    ["git", "-C", str(tmp_path), *args], capture_output=True, check=True
  )
  installed = tmp_path / "venv" / "provenance.py"
  source = tmp_path / "largevocab" / "own.py"
  for path in (installed, source):
    path.parent.mkdir()
    path.write_text("1\n")
  monkeypatch.setattr(provenance, "__file__", str(installed))
  git("init", "-q")
  git("add", "largevocab")
  who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
  git(*who, "commit", "-qm", "Own code")
  source.write_text("2\n")
  assert provenance.revision() == ""
  assert not provenance.has_changes()
  found = provenance.describe_machine()
  assert (found["git"], found["git_dirty"]) == ("", False)
  git("add", "venv")
  assert len(provenance.revision()) == 40
  assert provenance.has_changes()
