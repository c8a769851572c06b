"""Compiled code is kept between runs, and what is damaged is made again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tests.support.cpu import poisoned
from tests.support.kernels import buffer, loop, store

import tilewright
from tilewright import te
from tilewright.ir import Func, Module
from tilewright.ir import expr as E
from tilewright.ir.errors import VerificationError
from tilewright.ir.expr import Var
from tilewright.runtime import build, cache, cuda, find, llvm_pool
from tilewright.runtime.build import forget
from tilewright.runtime.serialize import from_json, program_key, to_json
from tilewright.target import Target

LLVM = Target.parse("llvm")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    llvm_pool.symbols()  # compiled once a process, so not part of what a test finds
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    return tmp_path


def scaled(factor: float, size: int = 64) -> Module:
    a, b = buffer("a", (size,)), buffer("b", (size,))
    at = (E.Ramp(E.IntImm(E.INT32, 0), E.IntImm(E.INT32, 1), 8),)
    head = store(b, at, E.Load(a, at, None))
    rest = loop("i", size, lambda i: store(b, i, a[i] * factor))
    from tilewright.ir.stmt import seq

    return Module("scaled", (a, b), (Func("scaled", (a, b), seq(head, rest)),))


def check(factor: float) -> None:
    x, found = np.arange(64, dtype=np.float32), poisoned(64)
    build(scaled(factor), LLVM)(x, found)
    np.testing.assert_array_equal(found, x * np.float32(factor))


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("??/*.tw"))


def test_the_second_build_compiles_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(2.0)
    assert entries(folder)
    forget()
    from tilewright.runtime import llvm

    def fail(*_: object) -> bytes:
        raise AssertionError("compiled again")

    monkeypatch.setattr(llvm, "compile_object", fail)
    check(2.0)
    with pytest.raises(AssertionError, match="compiled again"):
        check(3.0)


@pytest.mark.parametrize("damage", ["truncated", "empty", "flipped", "garbage", "other format"])
def test_damaged_entries_are_made_anew(folder: Path, damage: str) -> None:
    check(2.0)
    for path in entries(folder):
        data = path.read_bytes()
        path.write_bytes({
            "truncated": data[: len(data) // 2],
            "empty": b"",
            "flipped": data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
            "garbage": b"\0" * 1000,
            "other format": b"tilewright-cache-0\n" + data[19:],
        }[damage])  # fmt: skip
    forget()
    check(2.0)
    for path in entries(folder):
        assert cache.get(path.parent.name + path.stem) is not None


def test_a_writer_that_was_killed_leaves_nothing_that_is_read(folder: Path) -> None:
    check(2.0)
    (place,) = {path.parent for path in entries(folder)[:1]}
    left = place / ".tmp-dead"
    left.write_bytes(b"half of an en")
    os.utime(left, (time.time() - 7200,) * 2)
    forget()
    check(2.0)
    cache.prune()
    assert not left.exists()


def test_a_folder_that_cannot_be_written_to_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "file" / "below"))
    forget()
    check(5.0)


def test_keeping_can_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", "off")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    forget()
    check(7.0)
    assert not list(tmp_path.iterdir())


def test_the_oldest_entries_are_removed(folder: Path) -> None:
    for k in range(4):
        cache.put(f"{k:064x}", {"x": bytes(1000)})
        path = folder / "00" / f"{k:062x}.tw"
        os.utime(path, (1000 + k, 1000 + k))
    cache.get(f"{0:064x}")  # used just now, so it stays
    removed = cache.prune(2500)
    assert removed > 0
    assert [cache.get(f"{k:064x}") is not None for k in range(4)] == [True, False, False, True]


_PROGRAM = """
import numpy as np
from tests.correctness.test_cache import *
for k in range(6):
    check(float(k % 3 + 2))
    forget()
print(program_key(scaled(2.0), LLVM))
"""


def test_several_processes_build_the_same_kernels_at_once(folder: Path) -> None:
    started = [
        subprocess.Popen([sys.executable, "-c", _PROGRAM], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    keys = {process.communicate(timeout=120)[0].strip() for process in started}
    assert all(process.returncode == 0 for process in started)
    assert keys == {program_key(scaled(2.0), LLVM)}  # and they agree on the program's name
    assert not list(folder.glob("??/.tmp-*"))


def test_a_process_killed_while_it_writes_harms_nobody(folder: Path) -> None:
    program = """
import os
from tilewright.runtime import cache
from tests.correctness.test_cache import *
write = os.fdopen
def die(handle, mode):
    file = write(handle, mode)
    file.write(b"tilewright-cache-1")
    file.flush()
    os.kill(os.getpid(), 9)
os.fdopen = die
check(2.0)
"""
    killed = subprocess.run([sys.executable, "-c", program], timeout=120, check=False)
    assert killed.returncode == -9
    forget()
    check(2.0)


def test_kernels_are_found_by_the_key_of_a_schedule(folder: Path) -> None:
    key = "ab" * 32
    assert find(key, LLVM) is None
    made = build(scaled(2.0), LLVM, key)
    assert find(key, LLVM) is made
    del made
    forget()
    again = find(key, LLVM)
    assert again is not None
    assert find(key, Target.parse("llvm -threads=2")) is None
    assert "scaled" in again.ir  # the program is kept too
    assert "tw_entry" in again.source
    x, found = np.arange(64, dtype=np.float32), poisoned(64)
    again(x, found)
    np.testing.assert_array_equal(found, 2 * x)


def test_a_program_that_is_wrong_is_compiled_beside_its_proof_and_not_kept(folder: Path) -> None:
    a, b = buffer("a", (8,)), buffer("b", (8,))
    beside = Func("main", (a, b), loop("i", 8, lambda i: store(b, i, a[i + 1])))
    wrong = Module("wrong", (a, b), (beside,))
    for _ in range(2):
        with pytest.raises(VerificationError, match=r"a\[8\]"):
            tilewright.build(wrong, target="llvm")
    assert entries(folder) == []
    tilewright.build(wrong, target="llvm", verify=False)
    with pytest.raises(VerificationError):  # although the cache has it now
        tilewright.build(wrong, target="llvm")


_LATE = """
import threading
import tilewright
from tilewright import te
import tilewright.runtime.compile

def build():
    threading.main_thread().join()
    a = te.placeholder((8,), name="a")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="b")
    tilewright.build(te.create_schedule(b.op), [a, b], "llvm")
    print("built")

threading.Thread(target=build).start()
"""


def test_programs_are_proved_and_compiled_while_the_interpreter_ends(folder: Path) -> None:
    """No pool begins a thread then."""
    done = subprocess.run(
        [sys.executable, "-c", _LATE], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout, done.stderr) == ("built\n", "")
    assert entries(folder)


@pytest.mark.needs_nvrtc
def test_without_threads_programs_are_proved_and_other_ways_compiled_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    monkeypatch.setattr(cuda, "_spills", lambda _: True)
    n = 1024
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: te.sqrt(a[i]), name="b")
    s = te.create_schedule(b.op)
    block, thread = s[b].split(b.op.axis[0], factor=256)
    s[b].bind(block, te.thread_axis("blockIdx.x"))
    s[b].bind(thread, te.thread_axis("threadIdx.x"))
    assert "sqrt" in tilewright.build(s, [a, b], "cuda -arch=sm_90a").source
    assert len(entries(folder)) == 1
    x, y = buffer("a", (8,)), buffer("b", (8,))
    beside = Func("main", (x, y), loop("i", 8, lambda i: store(y, i, x[i + 1])))
    with pytest.raises(VerificationError, match=r"a\[8\]"):
        tilewright.build(Module("wrong", (x, y), (beside,)), target="llvm")


def test_programs_that_differ_have_different_keys() -> None:
    keys = {
        program_key(scaled(2.0), LLVM),
        program_key(scaled(2.0), Target.parse("llvm -arch=baseline")),
        program_key(scaled(3.0), LLVM),
        program_key(scaled(-0.0), LLVM),
        program_key(scaled(0.0), LLVM),
        program_key(scaled(2.0, 128), LLVM),
    }
    assert len(keys) == 6
    assert program_key(scaled(2.0), LLVM) == program_key(scaled(2.0), LLVM)


def test_a_program_survives_being_written_and_read() -> None:
    from tests.correctness.test_llvm_loops import depthwise

    from tilewright.ir.stmt import ForKind

    n = Var.make("n")
    for module in (scaled(float("inf")), depthwise(3, 5, 6, 3, ForKind.PARALLEL, n)):
        again = from_json(to_json(module))
        assert repr(again) == repr(module)
        assert to_json(again) == to_json(module)
    with pytest.raises(ValueError, match="not a module"):
        from_json('{"exprs": [["Nothing"]], "buffers": [], "module": {"funcs": []}}')


def test_every_package_that_compiled_code_depends_on_names_the_compiler() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    contract, *_ = project["tool"]["importlinter"]["contracts"]
    packages = [layer.strip("()").removeprefix("tilewright.") for layer in contract["layers"]]
    assert set(cache._COMPILER) == set(packages[packages.index("runtime") :])
