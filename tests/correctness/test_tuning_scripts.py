"""Scripts as users write them: unguarded, interrupted, killed, taken up again, from no file."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tilewright.tune.records import Records

SCRIPT = """
import sys
from tilewright import te, tvm
autotvm = tvm.autotvm

@autotvm.template("mine/scale")
def scale(n):
    cfg = autotvm.get_config()
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 3.0, name="B")
    s = te.create_schedule(B.op)
    cfg.define_split("i", s[B].op.axis[0], num_outputs=3)
    cfg["i"].apply(s, B, s[B].op.axis[0])
    return s, [A, B]

task = autotvm.task.create("mine/scale", args=(55440,), target="llvm")  # 2,430 ways to split
option = autotvm.measure_option(
    builder=autotvm.LocalBuilder(timeout=20, n_parallel=1),
    runner=autotvm.LocalRunner(number=1, repeat=2, timeout=20),
)
tuner = autotvm.tuner.RandomTuner(task, seed=0)
with autotvm.Records(sys.argv[1]) as records:
    best = tuner.tune(int(sys.argv[2]), option, records=records, resume=True, batch=4,
                      callbacks=[autotvm.callback.log_to_file(sys.argv[1] + ".log"),
                                 autotvm.callback.progress_bar()])
print("best", best)
"""


def start(script, *words):
    """A process that Ctrl-C ends, also where this one is in the background, which ignores it."""
    paths = [str(Path(__file__).parents[2] / "src"), *(p for p in sys.path if p)]
    return subprocess.Popen(
        [sys.executable, *script, *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def wait_for_lines(log, count, process):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if log.exists() and log.read_text().count("\n") >= count:
            return
        time.sleep(0.02)
    raise AssertionError(process.communicate()[1])


def test_a_script_is_killed_interrupted_and_taken_up_again(tmp_path):
    script, path = tmp_path / "tune_mine.py", tmp_path / "records.sqlite"
    log = tmp_path / "records.sqlite.log"
    script.write_text(SCRIPT)
    for how, lines in ((signal.SIGKILL, 4), (signal.SIGINT, 8)):
        process = start([script], path, 400)
        wait_for_lines(log, lines, process)
        process.send_signal(how)
        out, err = process.communicate(timeout=60)
        with Records(path) as records:
            records.check()
            assert len(records) >= lines
            assert all(r.result.ok for r in records.find())
    assert "interrupted after" in err  # the second one ended in order
    assert "Traceback" not in err, err  # of work that was cancelled
    assert "best Config" in out
    before = len(log.read_text().splitlines())
    with Records(path) as records:
        goal = len(records) + 5
        process = start([script], path, goal)
        out, err = process.communicate(timeout=120)
        assert f"{goal} trials" in err
        assert len(records) == goal
        assert len({r.input.config.index for r in records.find()}) == goal
    assert len(log.read_text().splitlines()) == before + 5


def test_a_program_that_is_no_file_tunes_too(tmp_path):
    path = tmp_path / "records.sqlite"
    process = start(["-c", SCRIPT], path, 6)
    out, err = process.communicate(timeout=120)
    assert "best Config" in out, err
    lines = [json.loads(line) for line in Path(f"{path}.log").read_text().splitlines()]
    assert [line["result"][1] for line in lines] == [0] * 6
