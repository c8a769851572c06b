"""Tuning that is killed at any moment, or has no room left: what was finished is on record."""

import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tilewright.tune.records import Records

#: How often tuning is killed; 200 take about five minutes.
KILLS = int(os.environ.get("TILEWRIGHT_KILLS", "10"))

SCRIPT = """
import sys
from tilewright.tune import callback
from tilewright.tune.article_003 import NAME
from tilewright.tune.measure import Device
from tilewright.tune.records import Records
from tilewright.tune.simple_tuners import RandomTuner
from tilewright.tune.table import Table
from tilewright.tune.task import create

class Saying(Records):
    def add(self, found, device):
        found = list(found)
        count = super().add(found, device)
        for inp, _ in found:
            print(inp.task.args[0], inp.config.index, flush=True)
        return count

times = Table([1e-6 * (1 + k % 97) for k in range(2880)], Device("a table", "0", "0"))
path, log = sys.argv[1:]
with Saying(path) as records:
    for batch in range(1, 1000):
        tuner = RandomTuner(create(NAME, (batch, 4, 16, 32, 7), "cuda -arch=sm_90a"))
        print("went on with", batch, len(records.find(problem=tuner.task.key)), flush=True)
        tuner.tune(2880, times, callbacks=[callback.log_to_file(log)], records=records, resume=True)
"""


def begin(path, log, **more):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path), str(log)], text=True, env=environment,
        cwd=Path(__file__).parents[2], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, **more,
    )  # fmt: skip


def finished(lines):
    """The batch and index of each measurement that the process said was done."""
    words = [line.split() for line in lines if line and not line.startswith("went on")]
    return {(int(w[0]), int(w[1])) for w in words if len(w) == 2}


def kept(path):
    with Records(path) as records:
        records.check()
        found = [(r.input.task.args[0], r.input.config.index) for r in records.find()]
    assert len(found) == len(set(found)), "a configuration was measured twice"
    return set(found)


def test_tuning_that_is_killed_loses_nothing_that_was_finished(tmp_path):
    path, rng, said = tmp_path / "records.sqlite", random.Random(1), set()
    for kill in range(KILLS):
        process = begin(path, tmp_path / "tune.log")
        head = process.stdout.readline()
        assert head.startswith("went on"), f"kill {kill}: {head}"
        time.sleep(rng.random() * 0.3)
        process.send_signal(signal.SIGKILL)
        said |= finished(process.stdout.read().split("\n")[:-1])
        process.wait()
        now = kept(path)
        assert said <= now
        assert len(now - said) <= kill + 1  # committed, but killed before it said so
    assert len(said) > KILLS


def test_a_full_disk_ends_tuning_with_a_message(tmp_path):
    path = tmp_path / "records.sqlite"
    process = begin(path, "/dev/null", stderr=subprocess.PIPE, preexec_fn=_small_disk)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "RecordsError" in errors
    assert "the disk is full" in errors
    assert "--resume" in errors
    assert 10 < len(finished(out.split("\n"))) == len(kept(path))


def _small_disk():
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_log_on_a_full_disk_is_an_error_with_its_name():
    from tests.support.tuned import pairs

    from tilewright.tune.callback import log_to_file
    from tilewright.tune.entity import TuningError

    write = log_to_file("/dev/full")
    with pytest.raises(TuningError, match="/dev/full"):
        write(None, *zip(*pairs(3)))
