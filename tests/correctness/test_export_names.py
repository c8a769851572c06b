"""An exported kernel links into any program: by its name, by its header, beside others."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.cli._problems import problems
from tilewright.cli.export import _kernel
from tilewright.cli.main import main, parser
from tilewright.ir.errors import ArgumentError
from tilewright.runtime import Kernel
from tilewright.runtime.export_c import function_name
from tilewright.target import Target

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")


def times(factor: float, name: str | None = None) -> Kernel:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] * factor, name="B")
    named = {} if name is None else {"name": name}
    return tilewright.build(te.create_schedule(b.op), [a, b], "llvm", **named)


def run_c(folder: Path, program: str, *files: str) -> str:
    """What a program in C prints that is linked with exported files, whose headers it includes."""
    assert COMPILER is not None
    (folder / "app.c").write_text(program)
    flags = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"]
    build = [COMPILER, *flags, "app.c", *files, "-o", "app", "-lm"]
    subprocess.run(build, cwd=folder, check=True)
    return subprocess.run([folder / "app"], capture_output=True, text=True, check=True).stdout


@needs_compiler
def test_kernels_without_names_are_linked_into_one_program(tmp_path: Path) -> None:
    times(2.0).export_c(tmp_path / "twice.c")
    times(3.0).export_c(tmp_path / "exp.c")
    times(4.0, "float").export_c(tmp_path / "x.c")
    times(5.0).export_c(tmp_path / "y.c", name="five_times")
    names = ("twice", "kernel_exp", "kernel_float", "five_times")
    calls = "".join(f'  {name}(a, b); printf("%g ", b[7]);\n' for name in names)
    heads = "".join(f'#include "{f}.h"\n' for f in ("twice", "exp", "x", "y"))
    program = f"""{heads}#include <stdio.h>
int main(void) {{
  float a[8] = {{0, 0, 0, 0, 0, 0, 0, 1}}, b[8];
{calls}  return 0;
}}
"""
    found = run_c(tmp_path, program, "twice.c", "exp.c", "x.c", "y.c")
    assert found.split() == ["2", "3", "4", "5"]
    assert "-c exp.c" in (tmp_path / "exp.c").read_text()


@pytest.mark.parametrize(
    "name",
    [
        "main",
        "float",
        "printf",
        "exp",
        "",
        "a b",
        "1st",
        "_x",
        "a__b",
        "ä",
        "x;",
        "class",
        "size_t",
        "uint8_t",
        "FILE",
        "linux",
    ],
)
def test_names_that_c_does_not_allow_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="is no name for a function of C"):
        times(2.0).export_c(tmp_path / "x.c", name=name)
    assert not list(tmp_path.iterdir())


def test_names_are_made_of_the_files() -> None:
    made = {
        stem: function_name("main", Path(f"{stem}.c"))
        for stem in ("main", "3x3", "a-b c", "__x__y", "write", "über")
    }
    assert made == {
        "main": "kernel_main", "3x3": "v3x3", "a-b c": "a_b_c", "__x__y": "x_y",
        "write": "kernel_write", "über": "ber",
    }  # fmt: skip
    assert function_name("mine", Path("x.c")) == "mine"


#: Layers with and without workspaces and epilogues, in both layouts, of each pass.
LAYERS = {
    "plain": "--input 1x8x10x11 --filter 8x1x3x3 --padding 1",
    "stride": "--input 2x6x9x9 --filter 6x2x5x5 --stride 2",
    "last": "--input 1x16x8x8 --filter 16x1x3x3 --layout NHWC",
    "large": "--input 1x4x20x20 --filter 4x1x13x13 --padding 6",
    "biased": "--input 1x8x7x7 --filter 8x1x3x3 --epilogue bias+relu",
    "wgrad": "--input 2x4x6x6 --filter 4x1x3x3 --pass wgrad",
    "half": "--input 1x8x6x6 --filter 8x1x3x3 --dtype float16",
}


@needs_compiler
@pytest.mark.parametrize("layer", LAYERS)
def test_the_library_s_kernel_for_a_problem_runs_in_c(
    layer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", "depthwise_conv2d", *LAYERS[layer].split(), "-o", str(tmp_path / "layer.c")]
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("layer: ")
    (named,) = problems(parser().parse_args(words))
    kernel = _kernel(named.problem, Target.parse("llvm"))
    rng, arrays = np.random.default_rng(0), []
    for p in kernel.signature.params:
        shape = tuple(int(repr(extent)) for extent in p.shape)
        arrays.append(rng.integers(-3, 4, shape).astype(str(p.dtype)))
    there = [a.copy() for a in arrays]
    kernel(*arrays)
    assert COMPILER is not None
    subprocess.run(
        [COMPILER, "-std=c99", "-O1", "-Wall", "-Werror", "-Wno-unknown-pragmas", "-shared",
         "-fPIC", "layer.c", "-o", "layer.so", "-lm"], cwd=tmp_path, check=True,
    )  # fmt: skip
    ctypes.CDLL(str(tmp_path / "layer.so")).layer(*(ctypes.c_void_p(a.ctypes.data) for a in there))
    for here, exported in zip(arrays, there, strict=True):
        np.testing.assert_array_equal(exported, here)
    header = (tmp_path / "layer.h").read_text()
    assert str(named.problem) in header
    for p in kernel.signature.params:
        assert f"{p.name}: {p.dtype}[" in header
    for w in kernel.module.workspaces:
        assert f"{w.name}: {w.dtype}[" in header


def test_several_problems_are_files_of_a_folder(tmp_path: Path) -> None:
    shapes = ["--input", "1x8x6x6", "--input", "1x8x9x9", "--filter", "8x1x3x3"]
    assert main(["export", "depthwise_conv2d", *shapes, "-o", str(tmp_path / "layers")]) == 0
    files = sorted(path.name for path in (tmp_path / "layers").iterdir())
    assert [name.rpartition(".")[2] for name in files] == ["c", "h"] * 2
    assert files[0].startswith("depthwise_conv2d_forward_1x8x6x6_1x3x3_float32_nchw_")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["-o", "none/dw.c"], "there is no folder none"),
        (["-o", "dw.c", "--name", "main"], "is no name for a function of C"),
        (["-o", "dw.c", "--target", "opencl"], "there is no single file of a kernel for opencl"),
        (["-o", "dw", "--input", "2x8x6x6", "--name", "f"], "--name f is for one problem"),
    ],
)
def test_mistakes_are_named(
    more: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["export", "depthwise_conv2d", "--input", "1x8x6x6", "--filter", "8x1x3x3", *more]
    assert main(given) == 1
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.needs_nvrtc
def test_the_library_s_kernel_for_a_gpu_is_a_file_of_cuda(tmp_path: Path) -> None:
    words = ["--input", "8x32x28x28", "--filter", "32x1x3x3", "--padding", "1"]
    out = str(tmp_path / "dw.cu")
    command = ["export", "depthwise_conv2d", *words, "--target", "cuda -arch=sm_90a", "-o", out]
    assert main(command) == 0
    header = (tmp_path / "dw.h").read_text()
    assert "cudaError_t dw(" in header
    assert "data: float32[8, 32, 28, 28], read" in header
    source = (tmp_path / "dw.cu").read_text()
    assert "dw_" in source
    assert "main" not in source
