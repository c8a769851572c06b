"""A kernel alone is written as a program, which gives the same results."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tests.correctness.test_export_models import COMPILER, TARGETS, Library, flags, make

import tilewright
from tilewright import te
from tilewright.cli.main import main
from tilewright.ir.errors import ArgumentError, TargetError
from tilewright.runtime import Kernel

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler")


def scaled(target: str) -> Kernel:
    """Two stages with memory between them, an open extent, and a scalar before an array."""
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, 6), name="A")
    b = te.compute((n, 6), lambda i, j: a[i, j] * te.cast("float32", m), name="B")
    c = te.compute((6, n), lambda i, j: b[j, 5 - i] + 1.0, name="C")
    s = te.create_schedule(c.op)
    for stage in (b, c):
        if target != "llvm":
            s[stage].bind(stage.op.axis[0], te.thread_axis("blockIdx.x"))
            s[stage].bind(stage.op.axis[1], te.thread_axis("threadIdx.x"))
    return tilewright.build(s, [m, a, c], target, name="scaled")


@pytest.mark.parametrize("target", TARGETS)
def test_a_kernel_gives_the_same_results(target: str, tmp_path: Path) -> None:
    folder = tmp_path / "k"
    files = scaled(target).export(folder, extents={"n": 5, "m": 3})
    assert files[0] == folder / "scaled.h"
    assert not [*folder.glob("*.weights")]
    more = flags(target)
    make(folder, *more)
    x, found = np.arange(30, dtype="float32").reshape(5, 6), np.zeros((6, 5), "float32")
    wanted = (3 * x[:, ::-1] + 1).T
    call = Library(folder, more[-1].removeprefix("LDLIBS="), name="scaled")
    made = ctypes.c_void_p()
    call("create", ctypes.byref(made), None, 0)
    call("run", made, *(ctypes.c_void_p(a.ctypes.data) for a in (x, found)))
    call("destroy", made)
    np.testing.assert_array_equal(found, wanted)
    if target == "llvm":
        x.tofile(tmp_path / "x.raw")
        command = [folder / "scaled", tmp_path / "x.raw", tmp_path / "y.raw", "2"]
        said = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "us a run" in said.stdout
        found = np.fromfile(tmp_path / "y.raw", "float32").reshape(6, 5)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.needs_cuda
def test_a_kernel_that_copies_boxes_gives_the_same_results(tmp_path: Path) -> None:
    rng, folder = np.random.default_rng(0), tmp_path / "k"
    x, w = (rng.integers(-2, 3, shape).astype("float16") for shape in ((2, 8, 8, 64), (64, 64)))
    problem = ["conv2d", "--input", "2x64x8x8", "--filter", "64x64x1x1", "--layout", "NHWC"]
    more = [*problem, "--dtype", "float16", "--target", "cuda", "--program"]
    assert main(["export", *more, "-o", str(folder)]) == 0
    files = [tmp_path / f"{name}.raw" for name in "xwy"]
    x.tofile(files[0])
    w.tofile(files[1])  # K x C, each tap
    make(folder, *flags("cuda"))
    subprocess.run([folder / "k", *files], check=True)
    found = np.fromfile(files[2], "float16").reshape(2, 8, 8, 64)
    np.testing.assert_array_equal(found, (x.astype("f4") @ w.astype("f4").T).astype("f2"))


@pytest.mark.needs_nvrtc
def test_a_kernel_that_copies_boxes_is_written_for_cuda(tmp_path: Path) -> None:
    problem = ["conv2d", "--input", "2x64x8x8", "--filter", "64x64x1x1", "--layout", "NHWC"]
    more = [*problem, "--dtype", "float16", "--target", "cuda -arch=sm_90a", "--program"]
    assert main(["export", *more, "-o", str(tmp_path / "k")]) == 0
    make(tmp_path / "k", *flags("cuda"), "libk.a", "k_main.o")
    assert "CU_TENSOR_MAP_DATA_TYPE_FLOAT16" in (tmp_path / "k" / "k.c").read_text()


def test_what_is_not_written_says_why(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="has the open extents .*: give extents={'"):
        scaled("llvm").export(tmp_path / "k", extents={"n": 5})
    with pytest.raises(ArgumentError, match=r"A of kernel scaled has no elements: \[0, 6\]"):
        scaled("llvm").export(tmp_path / "k", extents={"n": 0, "m": 1})
    a = te.placeholder((te.var("n", most=8),), name="A")
    b = te.compute(a.shape, lambda i: a[i] + 1.0, name="B")
    few = tilewright.build(te.create_schedule(b.op), [a, b], "llvm")
    for n, why in ((2**31, "no int32"), (2.0, "got a float: pass an int"), (9, "for at most 8")):
        with pytest.raises(ArgumentError, match=why):
            few.export(tmp_path / "k", extents={"n": n})
    with pytest.raises(TargetError, match="for sim are not written as sources: use llvm, cuda or"):
        scaled("sim").export(tmp_path / "k", extents={"n": 5, "m": 1})
    assert not (tmp_path / "k").exists()
