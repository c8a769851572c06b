"""Programs drawn at random compute on the CPU what they say, in LLVM IR and in exported C."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.test_loop_passes import ALL, Drawing, Drawn, arrays_for
from tests.support.interpreter import interpret

from tilewright.codegen.c import c_source
from tilewright.ir import Buffer, Func, Module
from tilewright.lower.backend.flatten import flatten
from tilewright.lower.build.inject_vthread import inject_vthread
from tilewright.lower.build.lazy_select import lazy_select
from tilewright.lower.loops.vectorize import vectorize
from tilewright.runtime import view
from tilewright.runtime.llvm import compile_module
from tilewright.target import Target

COMPILER = shutil.which("cc")


@st.composite
def programs(draw: Any) -> Drawn:
    """A program, through all passes or only through those that code generation needs."""
    made = lazy_select(Drawing(draw, "llvm").program())
    for step in draw(st.sampled_from([ALL[:-1], (inject_vthread, vectorize)])):
        made = step(made)
    return Drawn(made)


def module_of(f: Func) -> Module:
    return Module("drawn", f.params, (f,))


@given(drawn=programs(), arch=st.sampled_from(["native", "baseline"]), threads=st.integers(1, 2))
@settings(max_examples=settings().max_examples)
def test_llvm_agrees_with_the_plainest_reading(drawn: Drawn, arch: str, threads: int) -> None:
    arrays = arrays_for(drawn.func)
    expected = interpret(drawn.func, arrays)
    program = compile_module(module_of(drawn.func), Target("llvm", arch, threads))
    program.launch([view(arrays[p.name]) for p in drawn.func.params], {})
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, expected[name])


@given(drawn=programs())
@settings(max_examples=max(5, settings().max_examples // 10))
@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
def test_exported_c_agrees_with_the_plainest_reading(drawn: Drawn) -> None:
    arrays = arrays_for(drawn.func)
    expected = interpret(drawn.func, arrays)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "k.c").write_text(c_source(module_of(drawn.func)))
        subprocess.run(
            [str(COMPILER), "-std=c99", "-O1", "-shared", "-fPIC", "k.c", "-o", "k.so"],
            cwd=folder, check=True,
        )  # fmt: skip
        run = ctypes.CDLL(str(Path(folder) / "k.so")).drawn
        run(*(ctypes.c_void_p(arrays[p.name].ctypes.data) for p in drawn.func.params))
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, expected[name])


def test_flat_programs_are_the_same_to_llvm() -> None:
    """Code generation flattens by itself, and takes programs that are flat already."""
    from tests.correctness.test_llvm_loops import convolved, depthwise

    from tilewright.ir.stmt import ForKind

    module = depthwise(2, 5, 6, 3, ForKind.SERIAL)
    flat = flatten(module.funcs[0])
    x, f = np.ones((1, 2, 5, 6), np.float32), np.ones((2, 3, 3), np.float32)
    y = np.full(x.shape, np.nan, np.float32)
    program = compile_module(module_of(flat), Target("llvm"))
    assert all(isinstance(p, Buffer) for p in flat.params)
    program.launch([view(a) for a in (x, f, y)], {})
    np.testing.assert_array_equal(y, convolved(x, f))
