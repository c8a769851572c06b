"""Records outlive what happens to the processes that write them, and travel as JSON lines."""

import json
import math
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.tuned import DEVICE, pairs

from tilewright.cli.main import main
from tilewright.tune.log_format import decode
from tilewright.tune.measure import Device
from tilewright.tune.records import Records, RecordsError


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


# -- what goes wrong ---------------------------------------------------------------------------

WRITER = """
import sys
from tests.support.tuned import DEVICE, pairs
from tilewright.tune.records import Records
records = Records(sys.argv[1])
for k in range(int(sys.argv[2]), 1_000_000, 10):
    for pair in pairs(10, start=k):
        records.add([pair], DEVICE)
        print(int(pair[1].timestamp), flush=True)
"""


def killed_at_random(path: Path, kills: int) -> None:
    """Writers that say what they committed, and are killed in the midst of it."""
    rng, said, start = random.Random(0), set(), 0
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    for _ in range(kills):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(start)],
            stdout=subprocess.PIPE, text=True, env=environment, cwd=Path(__file__).parents[2],
        )  # fmt: skip
        assert writer.stdout is not None
        said.add(int(writer.stdout.readline()))
        time.sleep(rng.random() * 0.15)
        writer.send_signal(signal.SIGKILL)
        said |= {int(line) for line in writer.stdout.read().split("\n")[:-1] if line}
        writer.wait()
        start = max(said) + 1
        with Records(path) as records:
            records.check()
            kept = {int(r.result.timestamp) for r in records.find()}
            assert said <= kept
            assert len(kept - said) <= kills  # committed, but killed before it said so


def test_writers_that_are_killed_lose_nothing_that_was_finished(path):
    killed_at_random(path, 10)


@pytest.mark.skipif(not os.environ.get("TILEWRIGHT_LONG"), reason="TILEWRIGHT_LONG is not set")
def test_two_hundred_kills(path):
    killed_at_random(path, 200)


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


def test_the_database_of_another_program_is_not_touched(path):
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE recipes (name)")
    other.commit()
    other.close()
    with pytest.raises(RecordsError, match="another program"):
        Records(path)


def test_a_folder_that_is_not_there_to_write_to_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordsError, match="cannot be opened"):
        Records(tmp_path / "file" / "records.sqlite")


def test_costs_that_failed_are_infinite():
    assert pairs(4)[3][1].cost == math.inf
