"""Kernels that PyTorch calls run on PyTorch's own threads; other programs in the library's pool."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.support.cpu import kernel
from tests.support.kernels import buffer, store

from tilewright.ir import Buffer, Func, Module
from tilewright.ir import expr as E
from tilewright.ir.expr import Var
from tilewright.ir.ops import const
from tilewright.ir.stmt import Allocate, For, ForKind, Stmt
from tilewright.runtime import build, llvm_openmp
from tilewright.runtime.llvm import LLVMProgram
from tilewright.runtime.llvm_link import register_symbol
from tilewright.target import Target

torch = pytest.importorskip("torch")
tt = pytest.importorskip("tilewright.torch")

LIBRARY = torch._C.__file__
if llvm_openmp.functions(LIBRARY) is None:
    pytest.skip("PyTorch's threads here have no GOMP_parallel", allow_module_level=True)
#: In the order in which PyTorch's own calls find their runtime.
LOADED = [ctypes.CDLL(None), ctypes.CDLL(LIBRARY, mode=os.RTLD_NOLOAD)]
RUNTIME = next(lib for lib in LOADED if hasattr(lib, "omp_get_num_threads"))
register_symbol(
    "omp_get_num_threads", ctypes.cast(RUNTIME.omp_get_num_threads, ctypes.c_void_p).value
)
TEAM = E.Call(E.INT32, "extern:omp_get_num_threads", ())


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def over(a: Buffer, value, first: int = 0) -> Stmt:
    """``a[i] = value(i)``, in parallel."""
    v = Var.make("v")
    body = store(a, v - first, value(v - first))
    return For(v, const(first), a.shape[0], ForKind.PARALLEL, body)


def shared(params, body: Stmt, target: str = "llvm") -> LLVMProgram:
    """A program that runs on PyTorch's threads."""
    return kernel(params, body, target).program.on_openmp(LIBRARY)


def run(program: LLVMProgram, *arrays: np.ndarray, scalars=()) -> None:
    program.launch_raw([x.ctypes.data for x in arrays], scalars)


def teams(count: int = 64, target: str = "llvm", openmp: bool = True) -> np.ndarray:
    """How many threads OpenMP says that there are, at every iteration of a loop."""
    a = buffer("a", (count,), type="int32")
    program = kernel([a], over(a, lambda i: TEAM), target).program
    x = np.zeros(count, np.int32)
    run(program.on_openmp(LIBRARY) if openmp else program, x)
    return x


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 1000])
def test_every_iteration_runs_in_exactly_one_thread(count, threads):
    torch.set_num_threads(threads)
    a = buffer("a", (count,), type="int32")
    program = shared([a], over(a, lambda i: a[i] + i + 5, first=5))
    x = np.zeros(count, np.int32)
    for _ in range(20):
        run(program, x)
    np.testing.assert_array_equal(x, 20 * (np.arange(count) + 5))


def test_loops_have_as_many_threads_as_pytorch():
    for threads in (3, 1, 2):
        torch.set_num_threads(threads)
        assert set(teams()) == {threads}
    assert set(teams(3, "llvm -threads=4")) == {3}  # no more than iterations
    assert set(teams(64, "llvm -threads=4")) == {4}  # the target says it
    assert set(teams(openmp=False)) == {1}  # our own pool is no team of OpenMP's


def test_a_program_without_parallel_loops_stays_as_it_is():
    a = buffer("a", (4,), type="int32")
    program = kernel([a], store(a, 0, 1)).program
    assert program.on_openmp(LIBRARY) is program


def test_small_convolutions_stay_in_the_thread_that_calls_them(monkeypatch):
    taken = []
    kept = LLVMProgram.alone
    monkeypatch.setattr(LLVMProgram, "alone", lambda program: taken.append(0) or kept(program))
    for channels, alone in ((8, 1), (512, 0)):
        x, w = torch.randn(1, channels, 16, 16), torch.randn(channels, 1, 3, 3)
        wanted = torch.nn.functional.conv2d(x, w, groups=channels)
        torch.testing.assert_close(tt.depthwise_conv2d(x, w), wanted, atol=1e-4, rtol=1e-4)
        assert len(taken) == alone
        taken.clear()
    a = buffer("a", (64,), type="int32")
    program = kernel([a], over(a, lambda i: a[i] + TEAM * (i + 1))).program
    x = np.zeros(64, np.int32)
    for _ in range(3):
        run(program.alone(), x)
    np.testing.assert_array_equal(x, 3 * np.arange(1, 65))


def test_a_loop_within_a_loop_runs_in_its_thread():
    inner, outer = buffer("inner", (8,), type="int32"), buffer("outer", (8,), type="int32")
    called = shared([inner], over(inner, lambda i: inner[i] + TEAM))
    seen = np.zeros((8, 8), np.int32)

    @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)
    def nested(k):
        run(called, seen[k])
        return 1

    register_symbol("tw_test_nested", nested)
    program = shared([outer], over(outer, lambda i: E.Call(E.INT32, "extern:tw_test_nested", (i,))))
    for turn in range(1, 4):
        run(program, np.zeros(8, np.int32))
        assert (seen == turn).all()


def test_threads_of_python_run_loops_at_once():
    a = buffer("a", (512,), type="int32")
    program = shared([a], over(a, lambda i: a[i] + i))
    failures = []

    def work():
        x = np.zeros(512, np.int32)
        torch.relu(torch.ones(1 << 16))  # PyTorch's own loops between
        for _ in range(100):
            run(program, x)
        if not (x == 100 * np.arange(512)).all():
            failures.append(x)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_scratch_that_a_thread_cannot_have_is_an_error():
    n, v = Var.make("n", "int64"), Var.make("v")
    a = buffer("a", (4,))
    body = Allocate(buffer("scratch", (n * (1 << 50),), "global"), store(a, v, 1.0))
    func = Func("f", (a, n), For(v, const(0), const(4), ForKind.PARALLEL, body))
    found = build(Module("f", (a, n), (func,)), Target.parse("llvm")).program.on_openmp(LIBRARY)
    with pytest.raises(MemoryError, match="kernel f"):
        run(found, np.zeros(4, np.float32), scalars=[1 << 10])
    run(found, np.zeros(4, np.float32), scalars=[0])


def test_convolutions_share_threads_until_they_are_told_not_to(monkeypatch):
    taken = []
    kept = LLVMProgram.on_openmp
    monkeypatch.setattr(LLVMProgram, "on_openmp", lambda *args: taken.append(args) or kept(*args))
    x, w = torch.randn(1, 8, 9, 9), torch.randn(8, 1, 3, 3)
    wanted = torch.nn.functional.conv2d(x, w, groups=8)
    before = tt.share_threads(False)
    try:
        assert before  # they do by default
        torch.testing.assert_close(tt.depthwise_conv2d(x, w), wanted)
        assert not taken
        assert tt.share_threads(True) is False
        torch.testing.assert_close(tt.depthwise_conv2d(x, w), wanted)
        assert taken
    finally:
        tt.share_threads(before)


def program(text: str, **environment: str) -> str:
    """What a program prints that may use up to a minute."""
    head = """
import os, signal, sys, threading
signal.alarm(60)
import numpy as np
import torch
import tilewright.torch as tt
from tilewright.runtime import llvm_openmp
torch.set_num_threads(2)
x, w = torch.randn(1, 64, 32, 32), torch.randn(64, 1, 3, 3)
wanted = torch.nn.functional.conv2d(x, w, groups=64)
def good(): return np.allclose(tt.depthwise_conv2d(x, w).numpy(), wanted.numpy(), atol=1e-4)
def tasks(): return len(os.listdir("/proc/self/task"))
def loaded(): return {l.split()[-1] for l in open("/proc/self/maps") if "omp" in l}
def fork(work):
    child = os.fork()
    if not child:
        signal.alarm(30)
        os._exit(0 if work() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""
    found = subprocess.run(
        [sys.executable, "-c", head + text], env=os.environ | environment, timeout=120,
        capture_output=True, text=True,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    return found.stdout


needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="no /proc here")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


@needs_proc
def test_neither_threads_nor_libraries_are_added():
    program("""
torch.relu(torch.ones(1 << 20))  # PyTorch's threads are there
threads, libraries = tasks(), loaded()
assert good() and llvm_openmp._used
assert (tasks(), loaded()) == (threads, libraries), (tasks(), loaded(), threads, libraries)
tt.share_threads(False)
assert good() and tasks() == threads + 1  # one of our own
""")


def test_the_environment_switches_it_off_or_asks_for_it_everywhere(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_OPENMP", "0")
    assert set(teams(61)) == {1}
    monkeypatch.setenv("TILEWRIGHT_OPENMP", "1")
    assert set(teams(62, openmp=False)) == {2}
    monkeypatch.delenv("TILEWRIGHT_OPENMP")
    assert set(teams(63, openmp=False)) == {1}


def test_the_environment_says_how_many_threads():
    text = "from tests.correctness.test_openmp import teams; print(*teams(5))"
    assert program(text, TILEWRIGHT_NUM_THREADS="3") == "3 3 3 3 3\n"


@needs_fork
def test_a_forked_process_computes_with_as_many_threads():
    # GCC's threads are gone: PyTorch's own loops would wait for them for ever.
    program("""
assert good()
def child(): return all(good() for _ in range(5)) and fork(good) == 0
for _ in range(3):
    assert fork(child) == 0
assert good()  # the parent goes on
assert llvm_openmp.functions(torch._C.__file__) is not None
""")


@needs_fork
def test_a_process_forked_before_the_first_kernel_computes():
    program("""
torch.relu(torch.ones(1 << 20))
assert fork(lambda: good() and not llvm_openmp._used) == 0
assert good() and llvm_openmp._used
""")


@needs_fork
def test_a_fork_while_other_threads_run_loops():
    program("""
stop = threading.Event()
def work():
    while not stop.is_set(): assert good()
threads = [threading.Thread(target=work) for _ in range(2)]
for t in threads: t.start()
for _ in range(5):
    assert fork(good) == 0
stop.set()
for t in threads: t.join()
""")


@needs_proc
@needs_fork
def test_a_process_is_known_to_be_forked_without_having_been_told(monkeypatch):
    assert not llvm_openmp._is_forked()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        llvm_openmp._children.clear()
        os.write(write, b"yes" if llvm_openmp._is_forked() else b"no")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 3) == b"yes"


def test_without_a_runtime_loops_run_in_the_pool_of_the_library(monkeypatch):
    monkeypatch.setattr(llvm_openmp, "_addresses", lambda library: None)
    a = buffer("a", (65,), type="int32")
    own = kernel([a], over(a, lambda i: TEAM)).program
    assert own.on_openmp(LIBRARY) is own


def test_a_second_runtime_is_not_mixed_with_the_first(monkeypatch):
    monkeypatch.setattr(llvm_openmp, "_addresses", lambda library: (1, 2, 3))
    assert llvm_openmp.functions(LIBRARY) is None


def test_a_library_that_is_not_loaded_is_not_loaded(tmp_path):
    path = tmp_path / "other.so"
    path.write_bytes(Path(LIBRARY).read_bytes())
    maps = Path("/proc/self/maps")
    llvm_openmp._addresses(str(path))
    assert not maps.exists() or str(path) not in maps.read_text()
