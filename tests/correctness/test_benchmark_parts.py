"""Benchmarks that are spread over GPUs keep what they have where they are cut."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPT = """
import json, sys, time
from pathlib import Path
from parts import run_on_gpus

out = Path(sys.argv[1])
if "--part" in sys.argv:
    k = int(sys.argv[-1])
    if k < 2:
        (out / f"part-{k}.json").write_text(json.dumps([k]))
    time.sleep(float(sys.argv[2]))
else:
    print(run_on_gpus(int(sys.argv[3]), str(out)))
"""


def started(folder, seconds, gpus):
    script = folder / "script.py"
    script.write_text(SCRIPT)
    return subprocess.Popen(
        [sys.executable, str(script), str(folder), str(seconds), str(gpus)],
        env={**os.environ, "PYTHONPATH": str(BENCHMARKS), "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_what_all_parts_wrote_is_put_together(tmp_path):
    found, _ = started(tmp_path, 0, 2).communicate(timeout=60)
    assert found == "[[0], [1]]\n"


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_run_that_is_told_to_end_has_what_was_there(tmp_path):
    run = started(tmp_path, 600, 3)  # the third has written nothing
    while not all((tmp_path / f"part-{k}.json").exists() for k in range(2)):
        time.sleep(0.05)
    time.sleep(0.3)
    run.send_signal(signal.SIGTERM)
    found, _ = run.communicate(timeout=60)
    assert found.splitlines() == ["cut: these are the results until then", "[[0], [1]]"]


def test_files_of_a_run_before_are_not_taken_for_its_own(tmp_path):
    (tmp_path / "part-2.json").write_text("[9]")
    run = started(tmp_path, 0, 3)
    _, said = run.communicate(timeout=60)
    assert run.returncode
    assert "part-2.json" in said
