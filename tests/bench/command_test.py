"""Runs, submissions and the table, from the command line."""

import dataclasses
import json
import math
import os
import pathlib

import numpy as np
import pytest

from largevocab import config
from largevocab.bench import command, lines
from largevocab.errors import UserError
from largevocab.tools.tables.markdown import with_section
from largevocab.train import train
from largevocab.training.lock import held
from tests.bench.counting import CODE, METHOD, TINY
from tests.long import others_long

REVISION = "0123456789abcdef0123456789abcdef01234567"


def bench(*words, task=TINY):
  return command.main([str(word) for word in words], {"tiny": task})


def read(path):
  return [json.loads(line) for line in path.read_text().splitlines()]


def write(path, rows):
  path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module", autouse=True)
def machine():
  """An idle machine with a clean checkout, whatever this one is."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(command, "busy_cores", lambda: 0.25)
    patch.setattr(command.Others, "busy", lambda self: 0.125)
    patch.setattr(command, "has_changes", lambda: False)
    patch.setattr(command, "revision", lambda: REVISION)
    yield patch


@pytest.fixture(scope="module")
def out(tmp_path_factory):
  """Lines of an adapter with three seeds, of one of ours with one, and of baselines."""
  path = tmp_path_factory.mktemp("bench") / "mine.jsonl"
  for seed in (0, 1, 2):
    words = ("--adapter", METHOD, CODE, "--set=prior=2", "--name=counting")
    words += ("--trials=4",)
    assert bench("run", "tiny", *words, "--seed", seed, "--out", path) == 0
  assert bench("run", "tiny", "--method=full", "--trials=1", "--out", path) == 0
  assert bench("run", "tiny", "--baselines", "--out", path) == 0
  return path


@pytest.fixture
def entry(out):
  """The three lines of the adapter, whose seeds differ a little."""
  rows = [row for row in read(out) if row["name"] == "counting"]
  return [shifted(row, row["seed"]) for row in rows]


def remade(rows, **fields):
  """Lines with other fields, without those that are None, and with their ids."""
  found = [{k: v for k, v in (row | fields).items() if v is not None} for row in rows]
  return [row | {"run": lines.identity(row)} for row in found]


def curved(rows, *values):
  """Lines whose curves have these values, 1,000 seconds apart; seeds differ a bit."""
  steps = [5, 10, 15, 20][-len(values) :]
  seconds = [1000.0 * (i + 1) for i in range(len(values))]
  curve = [list(point) for point in zip(steps, values, seconds, strict=True)]
  ends = {"valid": values[-1], "seconds": seconds[-1], "curve": curve}
  return [shifted(row | ends, 0.001 * (row["seed"] - 1)) for row in rows]


OF_OURS = {"settings": [], "code_url": None}  # fields of a method of this package


def shifted(row, by):
  """A line with other values of the metric."""
  curve = [[step, value + by, seconds] for step, value, seconds in row["curve"]]
  return row | {"valid": row["valid"] + by, "test": row["test"] + by, "curve": curve}


def test_line_has_the_measurements(out):
  rows = {(row["name"], row.get("seed")): row for row in read(out)}
  assert len(rows) == 6
  for key in [("counting", 0), ("full", 0)]:
    row = rows[key]
    assert row["steps"] == TINY.steps
    assert row["data"] == TINY.digest
    assert [step for step, *_ in row["curve"]] == [5, 10, 15, 20]
    assert row["curve"][-1][1] == pytest.approx(row["valid"], rel=1e-4)
    seconds = [seconds for *_, seconds in row["curve"]]
    assert 0 < seconds[0] < seconds[-1] <= row["seconds"] * (1 + 1e-4)
    assert row["peak_mib"] > 50
    assert row["load"] == 0.25
    assert row["environment"]["XLA_FLAGS"] == os.environ["XLA_FLAGS"]
    assert "shared" not in row
  counted = rows["counting", 0]
  assert (counted["trials"], counted["settings"]) == (4, ["prior=2"])
  assert counted["code"] == f"numpy {np.__version__}"
  assert "seed" not in rows["unigram, counted", None]


def test_adapter_metric_follows_from_its_probabilities(out):
  data = config.build(TINY.settings()).data.load()
  batches = data.training_batches(4, 5)
  seen = [batches.batch(step).y.ids_NP.ravel() for step in range(TINY.steps)]
  count_V = 2.0 + np.bincount(np.concatenate(seen), minlength=data.counts.num_classes)
  row = read(out)[0]
  for split in ("valid", "test"):
    log_p_N = np.log(count_V[getattr(data, split)] / count_V.sum())
    assert row[split] == pytest.approx(math.exp(-log_p_N.mean()), rel=1e-5)


def test_table_has_one_row_per_method(out, entry, tmp_path, capsys):
  mine, results = tmp_path / "mine.jsonl", tmp_path / "results.jsonl"
  write(mine, entry)
  for _ in range(2):  # existing lines are left
    assert bench("submit", mine, "--results", results) == 0
  assert read(results) == entry
  others = [row for row in read(out) if row["name"] != "counting"]
  full = [row for row in others if row["name"] == "full"]
  full = [remade(full, seed=seed)[0] for seed in (0, 1, 2)]
  baselines = [row for row in others if row.get("baseline")]
  write(results, [*entry, *(shifted(row, row["seed"]) for row in full), *baselines])
  capsys.readouterr()
  assert bench("table", "--results", results) == 0
  lines_shown = capsys.readouterr().out.splitlines()
  cells = [line.strip("| ").split(" | ") for line in lines_shown if "|" in line]
  table = [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]
  of_method = {row["method"]: row for row in table}
  assert len(of_method) == 4
  medians = [float(row["test ppl"]) for row in table]
  assert medians == sorted(medians)
  counted, full = of_method["counting"], of_method["full"]
  url = CODE.removeprefix("--code=")
  assert counted["code"] == f"[numpy {np.__version__}]({url}), 0123456"
  first = entry[0]["test"]
  assert counted["test ppl"] == f"{first + 1:.1f}"
  assert counted["settings"].startswith("`prior=2` `")
  assert (counted["seeds"], counted["trials"]) == ("3", "4")
  # Student's t of two degrees of freedom is 4.303.
  logs = np.log([first, first + 1, first + 2])
  half = 4.303 * logs.std(ddof=1) / math.sqrt(3)
  low, high = map(float, counted["95 % interval"].split(" to "))
  assert low == pytest.approx(math.exp(logs.mean() - half), rel=1e-3)
  assert high == pytest.approx(math.exp(logs.mean() + half), rel=1e-3)
  assert of_method["unigram, counted (baseline)"]["95 % interval"] == "-"
  assert full["seconds to within 5 % of full"] != "-"
  assert of_method["unigram, counted (baseline)"]["seeds"] == "-"


def test_baselines_of_another_machine_do_not_hinder_an_entry(out, tmp_path, capsys):
  """They are the same numbers; other numbers are refused."""
  mine, results = tmp_path / "mine.jsonl", tmp_path / "results.jsonl"
  submit = ("submit", mine, "--results", results)
  baselines = [row for row in read(out) if row.get("baseline")]
  write(mine, baselines)
  assert bench(*submit) == 0
  write(mine, [row | {"device": "A chip"} for row in baselines])
  assert bench(*submit) == 0
  assert read(results) == baselines
  write(mine, [baselines[0] | {"device": "A chip", "test": 7.0}])
  capsys.readouterr()
  assert bench(*submit) == 1
  assert capsys.readouterr().err.endswith("of this run; --replace replaces it\n")


def test_replace_corrects_the_address_of_the_code(entry, tmp_path):
  mine, results = tmp_path / "mine.jsonl", tmp_path / "results.jsonl"
  submit = ("submit", mine, "--results", results)
  write(mine, entry)
  assert bench(*submit) == 0
  moved = remade(entry, code_url="https://example.org/counting/v2")
  write(mine, moved)
  assert bench(*submit) == 1
  assert bench(*submit, "--replace") == 0
  assert read(results) == moved


def test_existing_lines_are_replaced_only_with_replace(entry, tmp_path, capsys):
  mine, results = tmp_path / "mine.jsonl", tmp_path / "results.jsonl"
  submit = ("submit", mine, "--results", results)
  write(mine, entry)
  assert bench(*submit) == 0
  better = [shifted(row, -1) for row in entry]
  write(mine, better)
  assert bench(*submit) == 1
  assert f"{mine}:1: run: {results} has another line" in capsys.readouterr().err
  assert read(results) == entry
  assert bench(*submit, "--replace") == 0
  assert read(results) == better
  write(mine, [row | {"device": "A chip"} for row in entry])
  assert bench(*submit) == 1
  told = capsys.readouterr().err.splitlines()[0]
  assert told.endswith(f", on {entry[0]['device']}; run it with another --name")


def test_run_names_the_line_it_replaces(tmp_path, capsys):
  words = ("run", "tiny", "--baselines", "--out", tmp_path / "out")
  assert bench(*words) == 0
  first, *others = read(tmp_path / "out")
  write(tmp_path / "out", [first | {"test": 7.0}, *others])
  capsys.readouterr()
  assert bench(*words) == 0
  told = capsys.readouterr().out.splitlines()
  assert told[0] == f"replaced the line of {first['run']} in {tmp_path / 'out'}"
  assert "replaced" not in "".join(told[1:])


def test_new_lines_must_agree_with_existing_lines(entry, tmp_path, capsys):
  """They must agree in the steps of evaluations and in the method of a name."""
  mine, results = tmp_path / "mine.jsonl", tmp_path / "results.jsonl"
  submit = ("submit", mine, "--results", results)
  write(mine, entry)
  assert bench(*submit) == 0
  write(mine, remade(entry, settings=["prior=3"]))
  assert bench(*submit) == 1
  assert ":1: name: 'counting' names another method" in capsys.readouterr().err
  fewer = [row | {"curve": row["curve"][1:]} for row in remade(entry, name="other")]
  write(mine, remade(fewer))
  assert bench(*submit) == 1
  assert ":1: curve: its steps differ from those of other" in capsys.readouterr().err


def test_commands_without_results_need_a_checkout(entry, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  write(tmp_path / "mine", entry)
  with pytest.raises(UserError, match="no directory bench: submit at the root of a"):
    bench("submit", tmp_path / "mine")
  (tmp_path / "page").write_text(page := "<!-- bench -->\n|\n<!-- /bench -->\n")
  with pytest.raises(UserError, match=r"no file bench/results.jsonl: .* root of a che"):
    bench("table", "--update", tmp_path / "page")
  assert (tmp_path / "page").read_text() == page
  (tmp_path / "page").unlink()
  assert [path.name for path in tmp_path.iterdir()] == ["mine"]


TRAIN = ("run", "tiny", "--method=full", "--trials=1")


def test_busy_machine_needs_the_shared_flag(tmp_path, machine):
  with machine.context() as patch:
    patch.setattr(command, "busy_cores", lambda: 1.5)
    with pytest.raises(UserError, match=r"keep 1.5 cores .* busy: wait .* --shared"):
      bench(*TRAIN, "--out", tmp_path / "out")
    assert bench(*TRAIN, "--shared", "--out", tmp_path / "out") == 0
  (row,) = read(tmp_path / "out")
  assert (row["load"], row["shared"]) == (1.5, True)


OURS, ADAPTER = "--method=full", f"--adapter={METHOD}"


@pytest.mark.parametrize("method", others_long([OURS, ADAPTER], [ADAPTER]))
def test_line_is_shared_if_others_used_the_machine_meanwhile(
  method, tmp_path, machine, capsys
):
  words = ("run", "tiny", method, *[CODE] * ("adapter" in method), "--trials=1")
  with machine.context() as patch:
    patch.setattr(command.Others, "busy", lambda self: 0.75)
    assert bench(*words, "--out", tmp_path / "out") == 0
  (row,) = read(tmp_path / "out")
  assert (row["load"], row["shared"]) == (0.75, True)
  assert "(`load` 0.75): the line is `shared`" in capsys.readouterr().err


@pytest.mark.long
def test_shared_mark_stays_with_the_workdir(tmp_path, machine):
  words = (*TRAIN, "--workdir", tmp_path / "run", "--out", tmp_path / "out")
  with machine.context() as patch:
    patch.setattr(command.Others, "busy", lambda self: 0.75)
    assert bench(*words) == 0
  (first,) = read(tmp_path / "out")
  assert first["shared"]
  assert bench(*words) == 0
  assert read(tmp_path / "out") == [first]


def test_line_has_the_revision_from_before_the_run(tmp_path, machine):
  revisions = iter("ab")
  for words in (TRAIN, ("run", "tiny", "--baselines")):
    with machine.context() as patch:
      patch.setattr(command, "revision", lambda: next(revisions))
      assert bench(*words, "--out", tmp_path / "out") == 0
  assert [row["git"] for row in read(tmp_path / "out")] == ["a", "b", "b"]


def test_refused_command_leaves_the_workdir_note_unchanged(tmp_path, machine):
  """The note is in the workdir of a run that was stopped."""
  words = (*TRAIN, "--workdir", tmp_path / "run", "--out", tmp_path / "out")
  assert bench(*words) == 0
  (tmp_path / "run" / "result.json").unlink()
  note = (tmp_path / "run" / "bench.json").read_text()
  with machine.context() as then:
    then.setattr(command, "has_changes", lambda: True)
    for change, says in (("--seed=1", "seed 0,"), ("--set=train.lr=2", "settings ")):
      with pytest.raises(UserError, match=f"run: the run began with {says}"):
        bench(*words, change)
    with held(str(tmp_path / "run")), pytest.raises(UserError, match="is in use"):
      bench(*words)
    with pytest.raises(UserError, match="the task's data have sha256:0"):
      bench(*words, task=dataclasses.replace(TINY, digest="sha256:0"))
    then.setattr(command, "revision", lambda: "b" * 40)
    with pytest.raises(UserError, match=f"began with git {REVISION}, but it is bbb"):
      bench(*words)
  assert (tmp_path / "run" / "bench.json").read_text() == note


def test_killed_run_has_no_known_load(tmp_path):
  """Whatever the commands measure that resume it."""
  words = (*TRAIN, "--workdir", tmp_path / "run", "--out", tmp_path / "out")
  assert bench(*words) == 0
  (first,) = read(tmp_path / "out")
  (tmp_path / "run" / "result.json").unlink()
  note = tmp_path / "run" / "bench.json"
  killed = json.loads(note.read_text())
  assert killed.pop("load") == first.pop("load")
  note.write_text(json.dumps(killed))
  assert bench(*words) == 0
  (row,) = read(tmp_path / "out")
  assert row.keys() == first.keys()


def test_uncommitted_changes_are_recorded_and_warned_about(tmp_path, machine, capsys):
  with machine.context() as patch:
    patch.setattr(command, "has_changes", lambda: True)
    assert bench("run", "tiny", "--baselines", "--out", tmp_path / "out") == 0
  assert "`submit` will refuse the line" in capsys.readouterr().err
  assert read(tmp_path / "out")[0]["git_dirty"] is True
  with machine.context() as patch:
    patch.setattr(command, "revision", lambda: "")
    assert bench("run", "tiny", "--baselines", "--out", tmp_path / "out") == 0
  assert "not in a checkout of its repository: `submit` will" in capsys.readouterr().err


def test_differing_seeds_are_warned_about_before_training(tmp_path, machine, capsys):
  words = ("run", "tiny", "--adapter", METHOD, CODE, "--set=prior=2")
  words += ("--out", tmp_path / "out", "--trials=1")
  assert bench(*words) == bench(*words, "--seed=1") == 0
  assert capsys.readouterr().err == ""
  with machine.context() as patch:
    patch.setattr(command, "revision", lambda: "b" * 40)
    assert bench(*words, "--seed=1") == 0
  found = capsys.readouterr().err
  assert found.count("\n") == 1
  assert f"`git` of seed 0 in {tmp_path / 'out'} is {REVISION}" in found
  assert f"{'b' * 40} here: `submit` will" in found


def test_adapter_is_not_warned_about_its_accelerator(tmp_path, capsys):
  """Its device is known only when it is made; our heads' device is known before."""
  for kind, says in ((ADAPTER, ""), (OURS, "`device` of seed 0 in ")):
    path = tmp_path / kind
    words = ("run", "tiny", kind, *[CODE] * (kind == ADAPTER), "--trials=1")
    assert bench(*words, "--out", path) == 0
    (first,) = read(path)
    write(path, [first | {"device": "GPU"}])
    capsys.readouterr()
    assert bench(*words, "--seed=1", "--out", path) == 0
    told = capsys.readouterr().err
    assert told.count("\n") == bool(says)
    assert says in told


def test_run_does_not_print_the_test_metric(tmp_path, capsys):
  assert bench(*TRAIN, "--out", tmp_path / "out") == 0
  (row,) = read(tmp_path / "out")
  shown = capsys.readouterr().out
  assert f"valid ppl {row['valid']}" in shown
  assert str(row["test"])[:6] not in shown


def test_unwritable_output_fails_before_training(tmp_path, monkeypatch):
  monkeypatch.setattr(command, "_trained", None)
  (tmp_path / "file").write_text("")
  for out in (tmp_path / "file" / "out", "/proc/out"):
    with pytest.raises(UserError, match=f"^--out={out}: .*: .*choose another path"):
      bench(*TRAIN, "--out", out)


def test_line_is_printed_if_it_cannot_be_written(tmp_path, monkeypatch, capsys):
  def fails(path, rows):
    raise OSError(28, "No space left on device")

  monkeypatch.setattr(command.records, "_write", fails)
  with pytest.raises(OSError, match="No space"):
    bench(*TRAIN, "--out", tmp_path / "out")
  assert json.loads(capsys.readouterr().err.splitlines()[-1])["steps"] == TINY.steps


def test_finished_run_gives_the_same_line_again(tmp_path, machine):
  """With the memory, the device and the faults of the first run."""
  words = (*TRAIN, "--workdir", tmp_path / "run", "--out", tmp_path / "out")
  with machine.context() as then:
    then.setattr(command, "has_changes", lambda: True)
    assert bench(*words, "--shared") == 0
  (first,) = read(tmp_path / "out")
  assert first["git_dirty"]
  assert first["shared"]
  for name, key, value in (("result", "peak_mib", 7.5), ("bench", "device", "A chip")):
    path = tmp_path / "run" / f"{name}.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
  assert bench(*words) == 0
  assert read(tmp_path / "out") == [first | {"peak_mib": 7.5, "device": "A chip"}]
  (tmp_path / "run" / "bench.json").unlink()
  with pytest.raises(UserError, match="not known whether the machine was idle"):
    bench(*words)


def test_run_that_another_command_began_is_refused(tmp_path):
  """Its load and its revision are not known."""
  settings = TINY.settings()
  settings.train.max_steps = 5
  workdir = tmp_path / "run"
  train(config.build(settings), settings.to_dict(), str(workdir))
  (workdir / "result.json").unlink()
  with pytest.raises(UserError, match=r"another command, .* choose another --workdir"):
    bench(*TRAIN, "--workdir", workdir, "--out", tmp_path / "out")
  assert not (workdir / "bench.json").exists()


@pytest.mark.long
def test_diverged_run_gives_the_same_line_again(tmp_path):
  words = (*TRAIN, "--set=train.lr=1e6", "--set=optimizer.weight_decay=1")
  words += ("--workdir", tmp_path / "run", "--out", tmp_path / "out")
  assert bench(*words) == 0
  (first,) = read(tmp_path / "out")
  assert 0 < first["diverged"] < TINY.steps
  assert bench(*words) == 0
  assert read(tmp_path / "out") == [first]


def test_page_has_the_table_of_the_submitted_results(tmp_path):
  root = pathlib.Path(__file__).parents[2]
  assert not lines.faults(list(enumerate(read(root / "bench" / "results.jsonl"))))
  page = root / "docs" / "bench.md"
  copy = tmp_path / "page.md"
  copy.write_text(with_section(page, "bench", "old"))
  results = root / "bench" / "results.jsonl"
  assert command.main(["table", f"--results={results}", f"--update={copy}"]) == 0
  assert copy.read_text() == page.read_text()
  copy.write_text("no table")
  with pytest.raises(UserError, match=r"page\.md has no lines <!-- bench -->"):
    command.main(["table", f"--results={results}", f"--update={copy}"])


def test_time_stops_within_5_percent_of_the_full_softmax(entry, tmp_path, capsys):
  """If the full softmax ends at 100, this is 105 or less."""
  named = lambda name: remade(entry, name=name, method=name, **OF_OURS)
  rows = curved(named("full"), 300.0, 200.0, 105.1, 100.0)
  rows += curved(named("adaptive"), 300.0, 200.0, 105.1, 106.0)
  rows += curved(named("hierarchical"), 104.9, 105.1, 104.0, 104.9)
  write(tmp_path / "r.jsonl", rows)
  assert bench("table", "--results", tmp_path / "r.jsonl") == 0
  cells = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
  place = cells[0].index("seconds to within 5 % of full")
  found = {row[0].strip("| "): row[place] for row in cells[2:]}
  assert found == {"full": "4000", "adaptive": "never", "hierarchical": "3000"}
  shared = [*rows[:2], rows[2] | {"shared": True}, *rows[3:]]
  not_known = remade(rows, load=None)
  for rows, times in ((shared, ["-", "never", "3000"]), (not_known, [])):
    write(tmp_path / "r.jsonl", rows)
    assert bench("table", "--results", tmp_path / "r.jsonl") == 0
    cells = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert ("seconds" in cells[0]) == bool(times)
    assert len(cells) == 5
    by_name = {row[0].strip("| "): row for row in cells[2:]}
    if times:
      assert [by_name[name][place] for name in found] == times
      assert by_name["full"][cells[0].index("seconds")] == "-"


def test_table_uses_only_valid_lines_of_this_protocol(entry, tmp_path, capsys):
  results = tmp_path / "r.jsonl"
  old = remade(entry, name="old", protocol=0)
  write(results, [*old, *entry])
  assert bench("table", "--results", results) == 0
  shown = capsys.readouterr().out
  assert "| counting |" in shown
  assert "old" not in shown
  write(results, [*entry[:2], *remade(entry[2:], protocol=None)])
  with pytest.raises(UserError, match=r"r.jsonl:3: protocol: is missing"):
    bench("table", "--results", results)
  write(results, [*old, *entry[:2], entry[2] | {"test": 0.0}])
  with pytest.raises(
    UserError, match=r"r.jsonl:6: test: is 0.0.*correct the line, or rem"
  ):
    bench("table", "--results", results)


def changed(place, **fields):
  """Changes a line, and updates its id unless the id is given."""

  def change(rows):
    row = rows[place] | fields
    row = {key: value for key, value in row.items() if value is not None}
    if "run" not in fields and {"task", "name"} <= row.keys():
      row["run"] = lines.identity(row)
    return [*rows[:place], row, *rows[place + 1 :]]

  return change


def curve(place, change):
  """Changes points of a line's curve."""
  return lambda rows: changed(place, curve=change(rows[place]["curve"]))(rows)


def counted(name):
  """The line of a baseline."""
  values = {"name": name, "baseline": True, "valid": 9.0, "test": 9.0}
  return lines.line("tiny", TINY.metric, TINY.digest, **values)


def repeated(rows):
  """The second line has the values of the first, at other times."""
  curve = [[step, value, 2 * seconds] for step, value, seconds in rows[0]["curve"]]
  same = {"valid": rows[0]["valid"], "seconds": 2 * rows[0]["seconds"], "curve": curve}
  return changed(1, **same)(rows)


NAN = float("nan")
LOST = dict.fromkeys(lines.MEASURED)  # keys that a run that diverged does not have
FAULTS = [
  (lambda rows: rows[:2], "1: seed: 'counting' has no line for seed 2"),
  (lambda rows: [*rows, rows[1]], "4: seed: 1 occurs twice"),
  (changed(1, trials=3), "2: trials: differs from line 1"),
  (changed(2, device="another"), "3: device: differs from line 1"),
  (changed(2, git="9" * 40), "3: git: differs from line 1"),
  (changed(2, git="9876543"), "3: git: is '9876543', not a revision of 40 digits"),
  (changed(2, git=None), "3: git: is missing"),
  (changed(0, device=""), "1: device: is '', but must not be empty"),
  (changed(2, git="9|8"), "3: git: is '9|8', which cannot go into a table"),
  (changed(2, shared="no"), "3: shared: is 'no', not true or false"),
  (changed(2, shared=False), "3: shared: is False, but must be true or absent"),
  (changed(2, shard=True), "3: shard: lines have no such key; did you mean 'shared'?"),
  (changed(0, load=-1), "1: load: is -1, but must be at least 0"),
  (changed(0, settings=["prior"]), "1: settings: 'prior' is not KEY=VALUE of a key"),
  (changed(1, settings=["train.batch_size=4"]), "2: settings: 'train.batch_size=4' is"),
  (changed(1, settings=["a=1", "a=2"]), "2: settings: a is given twice"),
  (
    changed(1, method="full", code_url=None, settings=["data.num_classes=4"]),
    "2: settings: 'data.num_classes=4' is not KEY=VALUE of a key that you",
  ),
  (changed(0, environment={"A": "`b"}), "1: environment: 'A' is '`b', which cannot go"),
  (changed(0, environment={"A": 1}), "1: environment: 'A' is 1, which cannot go into"),
  (changed(1, settings=["a=`b"]), "2: settings: 'a=`b' cannot go into a table"),
  (changed(1, name=""), "2: name: is '', but must not be empty"),
  (changed(1, settings=["prior=3"]), "2: settings: differs from line 1"),
  (changed(0, test=NAN), "1: test: is nan, not a finite number"),
  (changed(0, test="4"), "1: test: is '4', not a finite number"),
  (changed(1, valid=None), "2: valid: is missing"),
  (changed(1, seed=3), "2: seed: is 3, not one of (0, 1, 2)"),
  (changed(1, seed=True), "2: seed: is True, not a whole number"),
  (changed(2, trials=0), "3: trials: is 0, but must be at least"),
  (changed(2, steps=19), "3: steps: is 19, but the task has 20"),
  (changed(2, curve=[[20, 1.0]]), "3: curve: has points other than"),
  (changed(2, curve=[[15, 1.0, 2.0]]), "3: curve: does not end at step 20"),
  (changed(0, protocol=0), "1: protocol: is 0, but must be 1"),
  (changed(0, code=""), "1: code: is '', but must not be empty"),
  *(
    (
      changed(1, method=method, code_url=None, settings=[]),
      f"2: method: is '{method}', not a path of a head such as sampled/pps",
    )
    for method in ("adam", "full,adam", "model=gru", "")
  ),
  (changed(0, metric="nll"), "1: metric: is 'nll', but must be 'ppl'"),
  (changed(0, data="sha256:0"), "1: data: is 'sha256:0', but must be 'sha256:"),
  (changed(0, run="mine"), "1: run: is 'mine', but must be 'tiny-counting-seed=0-"),
  (changed(0, task="ptb8"), "1: task: is 'ptb8', not one of tiny"),
  (changed(0, git_dirty=True), "1: git_dirty: the checkout had changes"),
  (changed(0, git_dirty="no"), "1: git_dirty: is 'no', not true or false"),
  (changed(0, load=0.75), "1: load: other programs kept 0.75 cores busy; set `shared`"),
  (changed(1, code_url=None), "2: code_url: is missing; give the web address of the"),
  (changed(1, code_url="mine"), "2: code_url: is 'mine', not https://..."),
  (changed(1, method="full"), "2: code_url: leave it out; 'full' is part of this pack"),
  (changed(1, code_url="http://b.c"), "2: code_url: differs from line 1, of the same"),
  (changed(0, valid=0.5), "1: valid: is 0.5, but ppl must be from 1 to inf"),
  (changed(0, test=-1.0), "1: test: is -1.0, but ppl must be from 1 to inf"),
  (changed(1, seconds=0.0), "2: seconds: is 0.0, but must be above 0"),
  (changed(1, peak_mib=-1.0), "2: peak_mib: is -1.0, but must be above 0"),
  (changed(0, diverged=5), "1: valid: a run that diverged has none; leave it out"),
  (changed(0, **LOST, diverged=21), "1: diverged: is 21, not a step from 0 to 20"),
  (changed(0, **LOST, diverged=-1), "1: diverged: is -1, not a step from 0 to 20"),
  (changed(0, baseline=True), "1: method: a baseline has none; leave it out"),
  (changed(1, bound=3), "2: bound: lines have no such key"),
  (changed(1, curve_nll=3), "2: curve_nll: lines have no such key; did you mean 'cu"),
  (changed(1, settings=[3]), "2: settings: must all be strings"),
  *(
    (changed(1, name=name), f"2: name: is '{name}', which cannot go into a table")
    for name in (
      *("a|b", "<b>a</b>", "[a](http://b.c)", "*a*", "`a`"),
      *(" ", "a ", "_a_", "~~a~~", "a&lt;b", "https://b.c"),
    )
  ),
  (
    lambda rows: [*rows, counted("magic oracle")],
    "4: name: is 'magic oracle', not one of the baselines 'bigram, counted', ",
  ),
  (changed(1, code="a\nb"), r"2: code: is 'a\nb', which cannot go into a table"),
  (changed(1, code="other"), "2: code: differs from line 1"),
  (changed(1, versions={"numpy": "0"}), "2: versions: differs from line 1"),
  (changed(0, valid=9.0), "1: curve: ends with "),
  (changed(0, seconds=9e9), "1: curve: ends with "),
  (curve(0, lambda c: c[::-1] + c[-1:]), "1: curve: its steps or seconds do not incr"),
  (curve(0, lambda c: [[1, 9.0, 0.0], *c]), "1: curve: its steps or seconds do not i"),
  (curve(0, lambda c: [[1, 0.5, 1e-9], *c]), "1: curve: has values that ppl cannot h"),
  (curve(1, lambda c: c[1:]), "2: curve: its steps differ from those of other lines"),
  (repeated, "2: curve: has the values of another seed; is the seed used?"),
  (
    lambda rows: [*rows, *remade(rows, settings=["prior=3"])],
    "4: seed: 0 occurs twice",
  ),
]


@pytest.mark.parametrize(("change", "says"), FAULTS, ids=[says for _, says in FAULTS])
def test_fault_is_reported_with_its_line_and_key(change, says, entry, tmp_path, capsys):
  mine, results = tmp_path / "mine.jsonl", tmp_path / "results.jsonl"
  write(mine, change(entry))
  capsys.readouterr()
  assert bench("submit", mine, "--results", results) == 1
  told = capsys.readouterr().err.splitlines()
  assert told[0].startswith(f"{mine}:{says}"), told
  assert not results.exists()


def test_ranking_metrics_must_be_between_0_and_1(entry, tmp_path, capsys):
  ranked = dataclasses.replace(TINY, metric="p@1")
  submit = ("submit", tmp_path / "m", "--results", tmp_path / "r")
  rows = [row | {"metric": "p@1"} for row in entry]
  shares = [shifted(row, 0.5 + row["seed"] / 10 - row["valid"]) for row in rows]
  shares = [row | {"test": 1.0} for row in shares]
  bounded = [
    row | {"curve": [[s, min(max(v, 0.0), 1.0), t] for s, v, t in row["curve"]]}
    for row in shares
  ]
  write(tmp_path / "m", bounded)
  assert bench(*submit, task=ranked) == 0
  write(tmp_path / "m", [bounded[0] | {"test": 1.1}, *bounded[1:]])
  assert bench(*submit, task=ranked) == 1
  assert "1: test: is 1.1, but p@1 must be from 0 to 1" in capsys.readouterr().err


def test_order_of_settings_does_not_change_the_method(entry):
  """Nor does it change the id."""
  first, second = {**entry[0], "settings": ["a=1", "b=2"]}, ["b=2", "a=1"]
  assert lines.identity(first) == lines.identity(first | {"settings": second})
  assert lines.method_of(first) == lines.method_of(first | {"settings": second})


@pytest.mark.long
def test_settings_in_any_order_give_the_same_line(tmp_path):
  for words in (("train.lr=2", "train.decay=1"), ("train.decay=1", "train.lr=2")):
    sets = [f"--set={word}" for word in words]
    options = ("--method=full", "--trials=1", "--out", tmp_path / "out")
    assert bench("run", "tiny", *options, *sets) == 0
  (row,) = read(tmp_path / "out")
  assert row["settings"] == ["train.decay=1", "train.lr=2"]


def test_every_faulty_line_is_reported(entry, tmp_path, capsys):
  write(tmp_path / "m", changed(0, test=NAN, steps=7)(changed(2, seed=9)(entry)))
  assert bench("submit", tmp_path / "m", "--results", tmp_path / "r") == 1
  told = capsys.readouterr().err.splitlines()
  assert [line.split(": ")[0:2] for line in told] == [
    [f"{tmp_path / 'm'}:1", "test"],
    [f"{tmp_path / 'm'}:3", "seed"],
  ]


def test_first_results_set_the_digest_of_data_without_one(entry, tmp_path, capsys):
  unknown = dataclasses.replace(TINY, digest="")
  mine, results = tmp_path / "mine.jsonl", tmp_path / "results.jsonl"
  submit = ("submit", mine, "--results", results)
  other = f"sha256:{7:064}"
  write(mine, [row | {"data": other} for row in entry])
  assert bench(*submit, task=unknown) == 0
  write(mine, entry)
  assert bench(*submit, task=unknown) == 1
  assert "1: data: is 'sha256:3d" in capsys.readouterr().err
  write(mine, [entry[0] | {"data": other}, *entry[1:]])
  assert bench("submit", mine, "--results", tmp_path / "new", task=unknown) == 1
  capsys.readouterr()
  write(mine, [row | {"data": "sha256:7"} for row in entry])
  assert bench("submit", mine, "--results", tmp_path / "new", task=unknown) == 1
  assert "1: data: is 'sha256:7', but must be sha256: and 64" in capsys.readouterr().err


def test_results_on_generated_data_are_refused(entry, tmp_path, capsys):
  write(tmp_path / "m", entry)
  for_trying_out = dataclasses.replace(TINY, is_entered=False)
  submit = ("submit", tmp_path / "m", "--results", tmp_path / "r")
  assert bench(*submit, task=for_trying_out) == 1
  assert "1: task: is 'tiny', not one of" in capsys.readouterr().err


def test_diverged_run_stays_in_the_table(entry, tmp_path, capsys):
  diverging = METHOD.replace("Counting", "Diverges")
  words = ("run", "tiny", "--adapter", diverging, CODE, "--trials=1")
  for seed in (0, 1, 2):
    assert bench(*words, "--seed", seed, "--out", tmp_path / "m") == 0
  assert "test" not in read(tmp_path / "m")[0]
  assert bench("submit", tmp_path / "m", "--results", tmp_path / "r") == 0
  write(tmp_path / "r", [*read(tmp_path / "r"), *entry])
  capsys.readouterr()
  assert bench("table", "--results", tmp_path / "r") == 0
  *_, last = capsys.readouterr().out.splitlines()
  assert last.startswith("| Diverges (diverged at step 5, 5, 5) | [numpy")
  assert "| 0 of 3 |" in last


def test_diverged_seeds_never_come_within_5_percent(entry, tmp_path, capsys):
  near = remade(entry, method="full", name="full", **OF_OURS)
  lost = [drop(row) for row in entry[:2]]
  write(tmp_path / "r", [*near, *lost, entry[2]])
  assert bench("table", "--results", tmp_path / "r") == 0
  *_, last = (line for line in capsys.readouterr().out.splitlines() if "1 of 3" in line)
  assert "| never |" in last


def test_diverged_seed_counts_as_the_worst(entry, tmp_path, capsys):
  """With one of three, the median is the worse of the others; with two, there is no
  median and no level of the full softmax."""
  full = remade(entry, method="full", name="full", **OF_OURS)
  one = [full[0], drop(full[1]), full[2]]
  two = [full[0], drop(full[1]), drop(full[2])]
  for rows, cell, time in ((one, f"{full[2]['test']:.1f}", 1), (two, "-", 0)):
    write(tmp_path / "r", [*rows, *entry])
    assert bench("table", "--results", tmp_path / "r") == 0
    cells = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    place = cells[0].index("test ppl")
    found = {row[0].strip("| ").split(" (")[0]: row for row in cells[2:]}
    assert found["full"][place] == cell
    assert found["full"][place + 1] == "-"  # the interval
    assert ("seconds to within 5 % of full" in cells[0]) == time
    assert [*found][-1] == "full"


def drop(row):
  """The line of a run that diverged at step 5."""
  return {key: row[key] for key in row if key not in lines.MEASURED} | {"diverged": 5}


PEER = "largevocab.bench.adapters.torch_adaptive:TorchAdaptive"
OWN, OTHER = TRAIN, ("run", "tiny", f"--adapter={METHOD}", CODE, "--trials=1")
NAMED = lambda name: ("run", "tiny", f"--adapter={name}", CODE, "--trials=1")
REFUSED = {
  ("run", "huge", "--method=full", "--trials=1"): "there is no task 'huge'",
  ("run", "tiny", "--method=full"): "--trials is missing",
  ("run", "tiny", "--method=full", "--trials=0"): "--trials=0: must be positive",
  **{
    ("run", "tiny", f"--method={method}", "--trials=1"): (
      f"--method={method}: must be a path such as sampled/pps, of one of the heads "
    )
    for method in ("full,runlocal", "fool", "blanc_rendle", "model=gru", "full/x=1")
  },
  ("run", "tiny", "--method=spherical/z", "--trials=1"): "has no probabilities",
  (*OWN, "--set=model.hidden=9"): "the task sets all other keys",
  (*OWN, "--set=train.max_steps=9"): "the task sets all other keys",
  (*OWN, "--set=train.lr=-1"): "train.lr is -1",
  (*OWN, "--data=x"): "--data is x, but this task makes its data",
  (*OWN, CODE): "--code has no effect with --method",
  **{(*OWN, f"--name={name}"): "cannot go into a table" for name in ("a|b", " ")},
  (*OWN, "--set=train.lr=1", "--set=train.lr=2"): "train.lr is given twice",
  NAMED("counting"): "must be MODULE:FUNCTION",
  NAMED("nothing.at:all"): "No module named",
  NAMED("./mine.py:Mine"): "must be MODULE:FUNCTION",
  NAMED(f"{METHOD}s"): "has no function 'Countings'",
  NAMED(PEER): "--code has no effect with --adapter=largevocab",
  (*OTHER, "--set=x=1"): "argument 'x'",
  (*OTHER, "--set=head.x=1"): "KEY is a rate of train",
  (*OTHER, "--set=train.head_lr_factor=2"): "KEY is a rate of train",
  (*OTHER, "--set=prior"): "must be KEY=VALUE",
  **{
    (*OTHER, f"--set=prior={value}"): "must be JSON, such as true, false, null, 0.5"
    for value in ("True", "None", ".5", "4.", "(1,2)", "[.5]")
  },
  (*OTHER, "--set=train.lr=-1"): "train.lr is -1",
  (*OTHER, "--workdir=w"): "--workdir has no effect with --adapter",
  ("run", "tiny", f"--adapter={METHOD}", "--trials=1"): "--code is missing",
  ("run", "tiny", f"--adapter={METHOD}", "--code=x", "--trials=1"): "must be https://",
  ("run", "tiny", "--baselines", "--seed=0"): "--seed has no effect with --baselines",
  ("run", "tiny", "--baselines", "--trials=1"): "--trials has no effect with --baseli",
}


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_arguments_outside_the_protocol_are_refused(words, tmp_path, machine):
  """Before the load of the machine is checked."""
  with machine.context() as patch:
    patch.setattr(command, "busy_cores", lambda: 1.5)
    with pytest.raises(UserError, match=REFUSED[words]):
      bench(*words, "--out", tmp_path / "out")
  assert not (tmp_path / "out").exists()


def test_different_data_are_refused():
  changed = dataclasses.replace(TINY, fixed={**TINY.fixed, "data.seed": 1})
  with pytest.raises(
    UserError, match=r"digest sha256:.*, but the task's data have sha256:3d"
  ):
    bench("data", "tiny", task=changed)
  assert bench("data", "tiny") == 0
