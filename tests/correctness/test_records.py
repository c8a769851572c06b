"""Records outlive what happens to the processes that write them, and travel as JSON lines."""

import json
import math
import os
import re
import sqlite3
import time
from pathlib import Path

import pytest
from tests.support.tuned import DEVICE, pairs

from tilewright.cli.main import main
from tilewright.tune.log_format import decode
from tilewright.tune.measure import Device
from tilewright.tune.records import Records, RecordsError
from tilewright.tune.tuned import own


@pytest.fixture
def path(tmp_path):
    return tmp_path / "records.sqlite"


def test_what_is_added_is_found_by_every_process(path):
    with Records(path) as one, Records(path) as two:
        assert one.add(pairs(8), DEVICE) == 8
        assert two.add(pairs(10), DEVICE) == 2
        found = one.find(problem=pairs(1)[0][0].task.key)
        assert [r.result for r in found] == [result for _, result in pairs(10)]
        assert found[0].device == DEVICE
        assert two.best(found[0].problem).result.cost == 2e-6
        (summary,) = two.summaries()
        assert (summary.measured, summary.failed, summary.best) == (10, 2, 2e-6)


def test_devices_drivers_and_problems_are_kept_apart(path):
    with Records(path) as records:
        for device in (DEVICE, Device("a device", "driver 2", "0.1"), Device("other", "1", "0.1")):
            records.add(pairs(2), device)
        records.add(pairs(2, n=32), DEVICE)
        assert len(records.summaries()) == 4
        assert len(records.find(exact=DEVICE)) == 4
        assert len(records.find(device="other")) == 2


def test_pruning_keeps_the_fastest(path):
    with Records(path) as records:
        records.add(pairs(12), DEVICE)
        records.add(pairs(12, n=32), DEVICE)
        assert records.prune(failed=True) == 6
        assert records.prune(keep=2) == 14
        assert [r.result.timestamp for r in records.find()] == [0, 1, 0, 1]
        assert records.prune(older_than=time.time() - 0.5, problem=pairs(1)[0][0].task.key) == 1


def command(capsys, *words):
    status = main(["records", *map(str, words)])
    return status, capsys.readouterr().out


def test_the_command_line_lists_shows_exports_imports_and_prunes(path, tmp_path, capsys):
    with Records(path) as records:
        records.add(pairs(8), DEVICE)
    status, text = command(capsys, "list", "--records", path, "--json")
    assert status == 0
    assert json.loads(text)[0]["best"] == 2e-6
    assert "a device" in command(capsys, "list", "--records", path)[1]
    shown = json.loads(command(capsys, "show", "scaled", "--records", path, "--json")[1])
    assert [s["error"] for s in shown[-2:]] == ["RUN_TIMEOUT"] * 2
    assert "it hung" in command(capsys, "show", "--records", path)[1]
    file, other = tmp_path / "out.jsonl", tmp_path / "other.sqlite"
    command(capsys, "export", "--records", path, "-o", file)
    assert "8 of 8" in command(capsys, "import", file, "--records", other)[1]
    assert "0 of 8" in command(capsys, "import", file, "--records", other)[1]
    with Records(path) as a, Records(other) as b:
        assert [r.result for r in a.find(fastest_first=True)] == [r.result for r in b.find()]
        assert b.find()[0].device == DEVICE
    best = command(capsys, "export", "--best", "--records", path)[1].splitlines()
    assert len(best) == 1
    assert "2 left" in command(capsys, "prune", "--keep", 2, "--records", path)[1]
    assert main(["records", "prune", "--records", str(path)]) == 2


def test_a_line_that_autotvm_wrote_is_read():
    line = (
        '{"input": ["cuda -keys=cuda,gpu -arch=sm_75 -max_num_threads=1024", "conv2d", [["TENSOR",'
        ' [1, 64, 56, 56], "float32"], [1, 1], "NCHW"], {}], "config": {"index": 71, "code_hash":'
        ' null, "entity": [["tile_f", "sp", [-1, 2, 8, 4]], ["reorder_0", "re", [0, 2, 1]],'
        ' ["ann", "an", ["unroll", "none"]], ["auto_unroll_max_step", "ot", 1500]]}, "result":'
        ' [[0.0001, 0.0002, 0.0003], 0, 2.5, 1700000000.0], "version": 0.2, "tvm_version": "0.8"}'
    )
    inp, result, device = decode(line)
    assert str(inp.target) == "cuda -arch=sm_75"
    assert inp.task.args[1:] == ((1, 1), "NCHW")
    assert inp.config["tile_f"].size == (-1, 2, 8, 4)
    assert result.cost == 0.0002
    assert device is None


def test_a_line_of_autotvm_s_first_format_is_read():
    line = (
        '{"i": ["cuda", "topi_nn_conv2d", [["TENSOR", [1, 3, 8, 8], "float32"], [1, 1]], {}, '
        '["conv2d", 1], {"i": 7, "t": "direct", "c": null, "e": [["tile_f", "sp", [-1, 4]]]}], '
        '"r": [[0.002], 0, 1.5, 1530000000.0], "v": 0.1}'
    )
    inp, result, _ = decode(line)
    assert (inp.task.name, inp.config.index) == ("topi_nn_conv2d", 7)
    assert inp.config["tile_f"].size == (-1, 4)
    assert result.cost == 0.002


def test_the_records_of_another_machine_are_taken_in_whole(path, tmp_path, capsys):
    other = tmp_path / "other.sqlite"
    with Records(other) as records:
        records.add(pairs(6), DEVICE)
        assert Path(f"{other}-wal").stat().st_size  # not all of it is in the file yet
        assert "6 of 6" in command(capsys, "import", other, "--records", path)[1]
    assert "0 of 6" in command(capsys, "import", other, "--records", path)[1]
    with Records(path) as records:
        assert [r.device for r in records.find()] == [DEVICE] * 6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("show nothing", "no records in .* of problem nothing: `tilewright records list`"),
        ("show --target tpu", "of target tpu"),
        ("export scaled --device x", "of problem scaled, device x"),
        ("export -o /nowhere/x", "/nowhere/x cannot be written: No such file"),
        ("import /nowhere/x", "/nowhere/x cannot be read: No such file"),
        ("import {binary}", "is no tuning log: it is not text"),
        ("import {strange}", r"strange, line 2: not a line of a tuning log"),
        ("prune", "say what to remove"),
        ("prune --keep -1", "0 or more"),
        ("export --shipped", "no records of the library's problems"),
    ],
)
def test_what_cannot_be_done_with_records_is_said_in_a_line(words, message, path, tmp_path, capsys):
    with Records(path) as records:
        records.add(pairs(3), DEVICE)
    lines = {"binary": b"\xff\xfe\x00", "strange": b'# a comment\n{"input": 3}\n'}
    for name, data in lines.items():
        (tmp_path / name).write_bytes(data)
    given = words.format(**{name: tmp_path / name for name in lines}).split()
    assert main(["records", *given, "--records", str(path)]) in (1, 2)
    said = capsys.readouterr().err
    assert re.search(message, said)
    assert said.startswith("tilewright: ")
    assert said.count("\n") == 1
    with Records(path) as records:
        assert len(records) == 3


# -- what goes wrong ---------------------------------------------------------------------------


def test_a_full_disk_says_so_and_keeps_what_there_was(path):
    with Records(path) as records:
        records.add(pairs(8), DEVICE)
        pages = records._db.execute("PRAGMA page_count").fetchone()[0]
        records._db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(RecordsError, match=r"disk is full.*--resume"):
            records.add(pairs(500), DEVICE)
        assert len(records) == 8
    with Records(path) as records:
        assert records.add(pairs(500), DEVICE) > 300


def test_a_file_from_a_newer_version_is_left_alone(path):
    with Records(path) as records:
        records.add(pairs(4), DEVICE)
        records._db.execute("PRAGMA user_version = 7")
    before = path.read_bytes()
    with pytest.raises(RecordsError, match=r"newer version.*7"):
        Records(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", ["text", "middle"])
def test_a_damaged_file_is_kept_aside(path, damage):
    with Records(path) as records:
        records.add(pairs(400), DEVICE)
        records._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = path.stat().st_size
    if damage == "text":
        path.write_text("not a database " * 400)
    else:
        data = bytearray(path.read_bytes())
        data[4096 : size // 2] = b"\xa5" * (size // 2 - 4096)
        path.write_bytes(bytes(data))
    damaged = path.read_bytes()
    with pytest.raises(RecordsError, match="is damaged"):
        with Records(path) as records:
            records.check()
            records.find()
    (aside,) = path.parent.glob("records.sqlite.damaged-*")
    assert aside.read_bytes() == damaged or aside.stat().st_size == len(damaged)
    with Records(path) as records:
        assert records.add(pairs(3), DEVICE) == 3


def test_a_file_of_something_else_is_not_touched(tmp_path):
    path = tmp_path / "x.npy"
    path.write_text("numbers " * 400)
    with pytest.raises(RecordsError, match="is no file of records .* left as it is"):
        Records(path)
    assert [p.name for p in tmp_path.iterdir()] == ["x.npy"]
    assert path.read_text() == "numbers " * 400


def test_the_database_of_another_program_is_not_touched(path):
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE recipes (name)")
    other.commit()
    other.close()
    with pytest.raises(RecordsError, match="another program"):
        Records(path)


def test_records_in_a_folder_that_cannot_be_written_to_are_read(path, monkeypatch):
    with Records(path) as records:
        records.add(pairs(8), DEVICE)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with Records(path, create=False) as records:
        assert len(records) == 8
        with pytest.raises(RecordsError, match="writable"):
            records.prune(failed=True)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_in_a_folder_that_may_not_be_looked_at_nothing_is_tuned(path, monkeypatch):
    stat = os.stat

    def guarded(name, *rest, **more):  # as for others than root, below a folder of mode 700
        if str(name).startswith(str(path)):
            raise PermissionError(13, "Permission denied", str(name))
        return stat(name, *rest, **more)

    monkeypatch.setattr(os, "stat", guarded)
    assert own("llvm", path) == ()
    with Records(path, create=False) as records:
        assert len(records) == 0


def test_a_folder_that_is_not_there_to_write_to_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordsError, match="cannot be opened"):
        Records(tmp_path / "file" / "records.sqlite")


def test_costs_that_failed_are_infinite():
    assert pairs(4)[3][1].cost == math.inf
