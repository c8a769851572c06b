"""A process forks while other threads of it compile, and the child compiles, too."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

#: Children are ended after this many seconds, and the whole after more: a deadlock ends the test.
CHILD, WHOLE = 60, 240

#: One thread compiles, and two hold a lock most of the time, as threads do that compile much, while
#: ten children are forked that need them.
PROGRAM = f"""
import os, signal, threading, time
import tilewright
from tilewright import te
from tilewright.runtime.llvm_host import binding
from tilewright.select import profile_cache

def build(n):
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 2.0, name="B")
    return tilewright.build(te.create_schedule(b.op), [a, b])

build(2)
stop = False

def compile():
    n = 3
    while not stop:
        n += 1
        build(n)

def hold(lock):
    while not stop:
        with lock:
            time.sleep(0.01)
        time.sleep(0.002)

work = [(compile, ()), (hold, (profile_cache._lock,)), (hold, (binding().ffi.lib._lock._lock,))]
threads = [threading.Thread(target=f, args=args, daemon=True) for f, args in work]
for thread in threads:
    thread.start()
statuses = []
for k in range(10):
    child = os.fork()
    if not child:
        signal.alarm({CHILD})
        build(50_000 + k)
        profile_cache.ProfileCache().get("problem", "machine")
        os._exit(0)
    statuses.append(os.waitpid(child, 0)[1])
stop = True
for thread in threads:
    thread.join()
print(statuses)
"""


def test_the_child_of_a_fork_compiles() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "TILEWRIGHT_CACHE": "off"},
        capture_output=True,
        text=True,
        timeout=WHOLE,
        check=True,
    )
    assert run.stdout.strip() == str([0] * 10)


#: A GPU takes a while to be opened, and a child is forked in the meantime.
OPENING = """
import os, time
from tilewright.runtime import cuda_driver

opened = []

def device(ordinal):
    time.sleep(0.5)
    opened.append(ordinal)

cuda_driver.device = device
cuda_driver.open_ahead()
child = os.fork()
if not child:
    os._exit(0 if opened else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_fork_waits_for_a_gpu_that_is_being_opened() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OPENING], capture_output=True, text=True, timeout=WHOLE
    )
    assert (done.returncode, done.stderr) == (0, "")


#: NVRTC compiles in a thread, and a child is forked in the meantime, which has no such thread.
COMPILING = """
import os, sys, threading, time
from tilewright.runtime import nvrtc

ended = threading.Event()
nvrtc.load_nvrtc = lambda: None
nvrtc.compile_cubin = lambda text, arch: ended.wait()
nvrtc.begin("", "sm_90a")
begun, child = time.monotonic(), os.fork()
if not child:
    sys.exit(0)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
took = time.monotonic() - begun
ended.set()
print(status, took < 5)
"""


def test_the_child_of_a_fork_ends_without_what_its_parent_compiles() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMPILING], capture_output=True, text=True, timeout=WHOLE
    )
    assert (done.stdout.strip(), done.stderr) == ("0 True", "")
