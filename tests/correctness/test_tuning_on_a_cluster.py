"""Through Dask, a tuner finds the same, and loses nothing to workers and schedulers that die."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.support import tuned
from tests.support.cluster import Cluster

from tilewright.cli.main import main
from tilewright.tune import cluster as client_side
from tilewright.tune.entity import TuningError
from tilewright.tune.local import LocalBuilder, LocalRunner, measure_option
from tilewright.tune.measure import MeasureErrorNo as Error
from tilewright.tune.measure import MeasureInput
from tilewright.tune.records import Records
from tilewright.tune.simple_tuners import RandomTuner
from tilewright.tune.task import create

pytest.importorskip("distributed", reason="Dask is not installed")
ROOT = Path(__file__).parents[2]
#: A machine in use takes seconds where an idle one takes none.
SHORT = (LocalBuilder(timeout=30, n_parallel=1), LocalRunner(timeout=6, number=1, repeat=3))


@contextlib.contextmanager
def running(folder, workers):
    made = Cluster(folder, workers)
    try:
        made.wait_for(workers)
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def standing(tmp_path_factory):
    """One that stays as it is."""
    with running(tmp_path_factory.mktemp("cluster"), 2) as made:
        yield made


def sleepy():
    return create("tests/sleepy", (500,), "llvm")


def test_two_workers_find_the_same_best_as_one_process(standing):
    found = []
    for scheduler in (None, standing.address):
        tuner = RandomTuner(sleepy(), seed=0)
        option = measure_option(*SHORT, scheduler=scheduler)
        found.append((tuner.tune(18, option, batch=6), tuner.trials, tuner.errors))
    assert found[0] == found[1]
    assert (found[1][0]["some"].val, found[1][0]["many"].val) == (0, 0)


def test_workers_without_a_device_build_for_the_others(standing, monkeypatch):
    """As for GPUs: what one worker builds another one runs."""
    monkeypatch.setattr(client_side, "APART", ("llvm",))
    last = standing.worker("--name", "builder")
    standing.wait_for(3)
    try:
        tuner = RandomTuner(sleepy(), seed=0)
        best = tuner.tune(18, measure_option(*SHORT, scheduler=standing.address), batch=18)
    finally:
        last.kill()
        standing.wait_for(2)
    assert tuner.errors == {0: 18}
    assert (best["some"].val, best["many"].val) == (0, 0)


def test_a_worker_that_is_lost_before_it_says_what_it_is_takes_no_part(standing, monkeypatch):
    lost = standing.worker("--name", "lost")
    standing.wait_for(3)
    describe = client_side.ClusterMeasurer._describe

    def lose(measurer, target, hello, workers):
        assert len(workers) == 3
        lost.kill()
        return describe(measurer, target, hello, workers)

    monkeypatch.setattr(client_side.ClusterMeasurer, "_describe", lose)
    measurer = measure_option(*SHORT, scheduler=standing.address).open(sleepy())
    assert measurer.parallel == 2
    measurer.close()
    standing.wait_for(2)


def test_a_candidate_that_kills_or_hangs_costs_itself_alone(standing):
    task = create("tests/fated", (64,), "llvm")
    wanted = {
        "right": Error.NO_ERROR, "refused": Error.INSTANTIATION_ERROR,
        "crash_build": Error.COMPILE_DEVICE, "wrong": Error.WRONG_ANSWER,
        "crash": Error.RUNTIME_DEVICE, "hang": Error.RUN_TIMEOUT,
    }  # fmt: skip
    measurer = measure_option(*SHORT, scheduler=standing.address).open(task)
    try:
        inputs = [MeasureInput(task, task.config_space.get(tuned.FATES.index(f))) for f in wanted]
        found = dict(measurer.measure(inputs))
        local = measure_option(*SHORT).open(task)
        assert measurer.device == local.device
        local.close()
    finally:
        measurer.close()
    assert {f: found[k].error_no for k, f in enumerate(wanted)} == wanted
    assert "SIGABRT" in found[list(wanted).index("crash")].reason
    assert all(w.poll() is None for w in standing.workers)


def test_what_a_killed_worker_had_is_measured_by_the_others(standing, tmp_path):
    killed, last = [], standing.worker()
    standing.wait_for(3)

    def kill(tuner, inputs, results):
        if tuner.trials >= 6 and not killed:
            killed.append(threading.Timer(0.05, last.kill))
            killed[0].start()

    tuner = RandomTuner(sleepy(), seed=0)
    with Records(tmp_path / "r.sqlite") as records:
        option = measure_option(*SHORT, scheduler=standing.address)
        best = tuner.tune(18, option, callbacks=[kill], records=records, batch=6)
        assert len({r.input.config.index for r in records.find()}) == 18
    standing.wait_for(2)
    assert last.poll() is not None
    assert tuner.errors == {0: 18}
    assert (best["some"].val, best["many"].val) == (0, 0)


SCRIPT = """
import sys
from tests.support import tuned
from tilewright.tune import callback
from tilewright.tune.local import LocalBuilder, LocalRunner, measure_option
from tilewright.tune.records import Records
from tilewright.tune.simple_tuners import RandomTuner
from tilewright.tune.task import create

option = measure_option(LocalBuilder(n_parallel=1), LocalRunner(number=1, repeat=3),
                        scheduler=sys.argv[1])
tuner = RandomTuner(create("tests/sleepy", (500,), "llvm"), seed=0)

def say(tuner, inputs, results):
    for i in inputs:
        print(i.config.index, flush=True)

with Records(sys.argv[2]) as records:
    tuner.tune(18, option, callbacks=[say], records=records, resume=True, batch=3)
"""


def test_a_killed_scheduler_loses_no_finished_measurement(tmp_path):
    script, path = tmp_path / "tune.py", tmp_path / "r.sqlite"
    script.write_text(SCRIPT)

    def begin(address):
        return subprocess.Popen(
            [sys.executable, str(script), address, str(path)], text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
        )  # fmt: skip

    with running(tmp_path, 1) as cluster:
        process = begin(cluster.address)
        said = {int(process.stdout.readline()) for _ in range(6)}
        cluster.scheduler.kill()
        more, errors = process.communicate(timeout=60)
    said |= {int(line) for line in more.split()}
    assert "scheduler at" in errors
    assert "--resume" in errors
    with Records(path) as records:
        kept = {r.input.config.index for r in records.find()}
    assert said <= kept
    assert len(kept) < 18
    cluster.file.unlink()
    with running(tmp_path, 1) as again:
        rest, errors = begin(again.address).communicate(timeout=60)
    measured = {int(line) for line in rest.split()}
    assert not measured & kept, errors
    with Records(path) as records:
        assert len(records) == 18


def test_without_workers_that_have_a_device_it_says_how_to_start_them(tmp_path, monkeypatch):
    cluster = Cluster(tmp_path, 0)
    try:
        cluster.worker("--resources", "GPU=1")
        cluster.wait_for(1)
        with pytest.raises(TuningError, match="has a CPU.*dask worker .* --resources CPU=1"):
            measure_option(scheduler=cluster.address).open(sleepy())
        last = cluster.worker()
        cluster.wait_for(2)
        monkeypatch.setattr(client_side, "PATIENCE", 1.0)
        measurer = measure_option(*SHORT, scheduler=cluster.address).open(sleepy())
        try:
            last.kill()
            begin = time.monotonic()
            with pytest.raises(TuningError, match="no worker of"):
                list(measurer.measure([MeasureInput(sleepy(), sleepy().config_space.get(0))]))
            assert time.monotonic() - begin < 20
        finally:
            measurer.close()
    finally:
        cluster.close()


def test_the_command_line_names_the_scheduler(standing, tmp_path, capsys, monkeypatch):
    words = "tune depthwise_conv2d --input 1x4x9x9 --filter 4x1x3x3 --padding 1".split()
    more = ["--records", str(tmp_path / "r"), "--min-repeat-ms", "0.1", "--trials", "3"]
    assert main([*words, *more, "--scheduler", standing.address]) == 0
    assert "3 trials" in capsys.readouterr().err
    monkeypatch.setattr(client_side, "CONNECT", 1.0)
    assert main([*words, *more, "--scheduler", "tcp://127.0.0.1:1"]) == 1
    assert "no Dask scheduler answers" in capsys.readouterr().err


def test_a_scheduler_that_needs_certificates_says_where_they_are_named(monkeypatch):
    def refuse(*_, **more):
        raise TypeError("TLS expects a `ssl_context` argument of type ssl.SSLContext")

    monkeypatch.setattr("distributed.Client", refuse)
    with pytest.raises(TuningError, match=r"ssl_context.*distributed\.comm\.tls"):
        client_side._connect("tls://127.0.0.1:9")
