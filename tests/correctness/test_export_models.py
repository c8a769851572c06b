"""A model that is written as sources is built by a C compiler without warnings, and gives the same
outputs: on a CPU, with OpenCL, and with CUDA where there is a GPU."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.models import node, onnx_model, relative, resnet

import tilewright
from tilewright.cli.main import main
from tilewright.graph import ModelError
from tilewright.graph.export import export
from tilewright.ir.errors import ArgumentError
from tilewright.runtime.nvrtc import include_folders

COMPILER = shutil.which("cc") or shutil.which("gcc")
pytestmark = [
    pytest.mark.needs_onnx,
    pytest.mark.skipif(COMPILER is None or shutil.which("make") is None, reason="no C compiler"),
]


TARGETS = [
    "llvm", pytest.param("opencl", marks=pytest.mark.needs_opencl),
    pytest.param("cuda", marks=pytest.mark.needs_cuda),
]  # fmt: skip


def make(folder: Path, *more: str) -> None:
    """Run the Makefile, strictly."""
    own = "CFLAGS=-O1 -fPIC -Wall -Wextra -Werror -Wno-unknown-pragmas -ffp-contract=fast"
    subprocess.run(["make", "-s", "-j2", f"CC={COMPILER}", own, *more], cwd=folder, check=True)


def built(folder: Path, *files: Path, name: str | None = None, more: tuple[str, ...] = ()) -> None:
    """Make the program and run it."""
    name = name or folder.name
    make(folder, *more)
    weights = folder / f"{name}.weights"
    subprocess.run([folder / name, weights, *files], check=True, timeout=60)


def test_a_network_gives_the_same_outputs(tmp_path: Path, capsys: Any) -> None:
    path, folder = tmp_path / "m.onnx", tmp_path / "a net"
    path.write_bytes(resnet().model(batch="N"))
    model = tilewright.load(path)
    x = np.random.default_rng(0).standard_normal((2, 3, 32, 32)).astype("float32")
    assert main(["compile", str(path), "--input", "2x3x32x32", "-o", str(folder)]) == 0
    assert f"make -C '{folder}'" in capsys.readouterr().out
    x.tofile(tmp_path / "x.raw")
    built(folder, tmp_path / "x.raw", tmp_path / "y.raw", name="a_net")
    found = np.fromfile(tmp_path / "y.raw", "float32").reshape(2, -1)
    assert relative(found, model(x)) < 1e-5
    text = "".join(p.read_text() for p in folder.glob("*.[ch]"))
    assert "tilewright" not in text.replace("Tilewright", "")


def test_kernels_for_any_batch_are_given_theirs(tmp_path: Path) -> None:
    """The second batch of a model has kernels that take the number of images."""
    w = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype("float32")
    data = onnx_model(
        [node("Conv", "x w", pads=[1] * 4)], {"x": ["N", 3, 6, 6]}, constants={"w": w}
    )
    model, folder = tilewright.load(data), tmp_path / "net"
    for count in (2, 3):
        x = np.random.default_rng(count).standard_normal((count, 3, 6, 6)).astype("float32")
        wanted = model(x)
    executor = model.compile({"x": x})
    assert any(step.counts for step in executor.steps)
    export(executor, folder)
    x.tofile(tmp_path / "x.raw")
    built(folder, tmp_path / "x.raw", tmp_path / "y.raw")
    found = np.fromfile(tmp_path / "y.raw", "float32").reshape(wanted.shape)
    assert relative(found, wanted) < 1e-6


class Library:
    """A model in this process, by its functions."""

    def __init__(self, folder: Path, *libraries: str, name: str = "") -> None:
        self._name = name or folder.name
        whole = ["-Wl,--whole-archive", f"lib{self._name}.a", "-Wl,--no-whole-archive"]
        command = [str(COMPILER), "-shared", "-o", "model.so", *whole, *libraries]
        subprocess.run(command, cwd=folder, check=True)
        self._library = ctypes.CDLL(str(folder / "model.so"))

    def __call__(self, function: str, *args: Any) -> None:
        call = self._library[f"{self._name}_{function}"]
        if function == "destroy":
            call.restype = None
        status = call(*args) or 0
        text = self._library[f"{self._name}_error"]
        text.restype = ctypes.c_char_p
        assert status == 0, text(status)


def branches() -> tuple[bytes, dict[str, Any]]:
    """A filter that is packed ahead, a workspace, sums, and two outputs."""
    w = np.random.default_rng(0).standard_normal((16, 16, 3, 3)).astype("float32")
    nodes = [
        node("Conv", "x w", "c", pads=[1] * 4), node("Relu", "c", "y"), node("Conv", "y w", "d"),
        node("GlobalAveragePool", "d", "z"),
    ]  # fmt: skip
    data = onnx_model(nodes, {"x": [1, 16, 6, 6]}, ("y", "z"), {"w": w})
    return data, {"x": np.random.default_rng(1).standard_normal((1, 16, 6, 6)).astype("float32")}


def flags(kind: str) -> tuple[str, ...]:
    """Where headers and libraries are: the driver's is there without a toolkit; that of OpenCL is
    what pyopencl is linked to, and its header comes with the tests."""
    if kind == "opencl":
        lines = Path("/proc/self/maps").read_text().splitlines()
        library = next(x.split()[-1] for x in lines if "libOpenCL" in x)
        return f"CPPFLAGS=-I{Path(__file__).parents[1] / 'support' / 'opencl'}", f"LDLIBS={library}"
    if kind == "llvm":
        return ("LDLIBS=-lm",)
    found = [f for f in include_folders() if Path(f, "cuda.h").exists()]
    if not found:
        pytest.skip("cuda.h is not installed")
    return f"CPPFLAGS=-I{found[0]}", "LDLIBS=-l:libcuda.so.1"


@pytest.mark.parametrize(("target", "dtype"), [
    ("llvm", "bfloat16"), pytest.param("cuda", None, marks=pytest.mark.needs_cuda),
    pytest.param("opencl", None, marks=pytest.mark.needs_opencl),
    pytest.param("opencl -device=mali", None, marks=pytest.mark.needs_opencl),
])  # fmt: skip
def test_models_of_a_process_share_weights(target: str, dtype: str | None, tmp_path: Path) -> None:
    """In this process, whose PoCL compiles for the processor (tests/support/pocl.py); what is
    written for a device that is not there runs on others."""
    data, given = branches()
    wanted, folder = tilewright.load(data, dtype=dtype).run(given), tmp_path / "net"
    tilewright.load(data, target=target, dtype=dtype).export(given, folder)
    more = flags(target.split()[0])
    make(folder, *more)
    call = Library(folder, more[-1].removeprefix("LDLIBS="))
    whole, other = ctypes.c_void_p(), ctypes.c_void_p()
    call("create", ctypes.byref(whole), str(folder / "net.weights").encode(), 0)
    call("clone", ctypes.byref(other), whole)
    (folder / "longer").write_bytes((folder / "net.weights").read_bytes() + b"\0")
    with pytest.raises(AssertionError, match="another model's"):
        call("create", ctypes.byref(ctypes.c_void_p()), str(folder / "longer").encode(), 0)

    def run(one: ctypes.c_void_p) -> None:
        for _ in range(4):
            found = [np.zeros_like(x) for x in wanted.values()]
            call("run", one, *(ctypes.c_void_p(a.ctypes.data) for a in (given["x"], *found)))
            for x, y in zip(wanted.values(), found, strict=True):
                assert relative(y, x) < 1e-5

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(run, [whole, other]))
    for one in (other, whole):
        call("destroy", one)
    text = "".join(p.read_text() for p in folder.glob("*.cl"))
    if "mali" in target:
        sizes = re.findall(r"reqd_work_group_size\((\d+), (\d+), (\d+)\)", text)
        assert max(int(x) * int(y) * int(z) for x, y, z in sizes) <= 256
        assert "__local" not in text


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_cuda_is_written_without_a_gpu(arch: str, tmp_path: Path) -> None:
    data, given = branches()
    more, folder = flags("cuda"), tmp_path / "net"
    tilewright.load(data, target=f"cuda -arch={arch}", dtype="float16").export(given, folder)
    make(folder, *more, "libnet.a", "net_main.o")
    text = (folder / "net.c").read_text()
    assert ("CU_TENSOR_MAP_DATA_TYPE_FLOAT16" in text) == (arch == "sm_90a")
    assert len([*folder.glob("*.cubin")]) == len([*folder.glob("*.cu")]) > 1


@pytest.mark.needs_cuda
def test_cuda_gives_the_same_outputs(tmp_path: Path) -> None:
    more, folder = flags("cuda"), tmp_path / "net"
    model = tilewright.load(resnet().model(), target="cuda", dtype="float16")
    x = np.random.default_rng(5).standard_normal((1, 3, 32, 32)).astype("float32")
    wanted = model(x)
    model.export({"x": x}, folder)
    x.tofile(tmp_path / "x.raw")
    built(folder, tmp_path / "x.raw", tmp_path / "y.raw", more=more)
    found = np.fromfile(tmp_path / "y.raw", "float32").reshape(wanted.shape)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.needs_cuda
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
def test_nvcc_makes_machine_code_of_the_kernels(tmp_path: Path) -> None:
    data, given = branches()
    folder, files = tmp_path / "net", [tmp_path / f"{n}.raw" for n in "xyz"]
    model = tilewright.load(data, target="cuda", dtype="float16")
    model.export(given, folder)
    given["x"].tofile(files[0])
    before = {p: p.stat().st_mtime_ns for p in folder.glob("*.cubin")}
    make(folder, "kernels")
    assert all(p.stat().st_mtime_ns > time for p, time in before.items())
    built(folder, *files, more=flags("cuda"))
    for path, wanted in zip(files[1:], model.run(given).values(), strict=True):
        assert relative(np.fromfile(path, "float32").reshape(wanted.shape), wanted) < 1e-3


@pytest.mark.parametrize("target", TARGETS)
def test_one_program_has_several_batches(target: str, tmp_path: Path) -> None:
    w = np.random.default_rng(0).standard_normal(16).astype("float32")
    nodes = [node("Mul", "x w", "y")]
    data = onnx_model(nodes, {"x": ["N", 16]}, constants={"w": w})
    model, folder = tilewright.load(data, target=target), tmp_path / "net"
    model.export({"x": np.zeros((1, 16), "float32")}, folder, batches=[3, 1])
    more = flags(target)
    make(folder, *more)
    call = Library(folder, more[-1].removeprefix("LDLIBS="))
    made = ctypes.c_void_p()
    call("create", ctypes.byref(made), str(folder / "net.weights").encode(), 0)
    for batch in (3, 1):
        x = np.random.default_rng(batch).standard_normal((batch, 16)).astype("float32")
        y = np.zeros_like(x)
        arrays = [ctypes.c_void_p(a.ctypes.data) for a in (x, y)]
        call("run", made, batch, *arrays)
        assert relative(y, tilewright.load(data)(x)) < 1e-5
    with pytest.raises(AssertionError, match="not written for such a batch"):
        call("run", made, 2, *arrays)
    call("destroy", made)
    assert (folder / "net.weights").stat().st_size == w.nbytes
    if target == "llvm":
        command = [folder / "net", folder / "net.weights", "2", "x.raw", "y.raw"]
        said = subprocess.run(command, capture_output=True, text=True)
        assert (said.returncode, said.stderr) == (2, "2: there are the batches 1, 3\n")
    fixed = onnx_model(nodes, {"x": [1, 16]}, constants={"w": w})
    with pytest.raises(ModelError, match="batches 2 are not written: no input"):
        tilewright.load(fixed).export({"x": x}, folder, batches=[2])


def test_problems_are_listed_without_the_device(tmp_path: Path) -> None:
    data, given = branches()
    (tmp_path / "m.onnx").write_bytes(data)
    command = ["compile", str(tmp_path / "m.onnx"), "--target", "opencl -device=mali"]
    assert main([*command, "--problems", str(tmp_path / "p")]) == 0
    model = tilewright.load(data, target="opencl -device=mali")
    found = [problem.to_json() for problem in model.problems(given)]
    assert (tmp_path / "p").read_text().splitlines() == found
    assert sum('"operator": "conv2d"' in line for line in found) == 2
    both = tilewright.load(onnx_model([node("Relu", "x")], {"x": ["n", 4]}), target="sim")
    given = {"x": np.zeros((1, 4), "float32")}
    assert len(both.problems(given)) == 1
    assert len(both.problems(given, batches=[1, 3])) == 2


def test_parts_of_tensors_and_several_outputs(tmp_path: Path) -> None:
    """What is concatenated is written in place, and an input that nothing reads is passed."""
    nodes = [
        node("Exp", "a", "e"), node("Sigmoid", "b", "s"), node("Concat", "e s", "c", axis=1),
        node("Relu", "c", "y"), node("Neg", "a", "z"),
    ]  # fmt: skip
    shapes = {"a": [2, 16], "b": [2, 16], 'un*/"%d??/read': [3]}
    model = tilewright.load(onnx_model(nodes, shapes, ("y", "z")))
    rng = np.random.default_rng(0)
    given = {n: rng.standard_normal(s).astype("float32") for n, s in shapes.items()}
    export(model.compile(given), tmp_path / "net")
    files = [tmp_path / f"{n}.raw" for n in ("a", "b", "unread", "y", "z")]
    for path, x in zip(files, given.values(), strict=False):
        x.tofile(path)
    built(tmp_path / "net", *files)
    for path, (n, wanted) in zip(files[3:], model.run(given).items(), strict=True):
        found = np.fromfile(path, "float32").reshape(wanted.shape)
        assert relative(found, wanted) < 1e-6, n


@pytest.mark.parametrize("folder", ["clean", "size_t", "block", "own", "EOF"])
def test_a_folder_may_be_called_as_the_files_call_something(folder: str, tmp_path: Path) -> None:
    data = onnx_model([node("Relu", "x")], {"x": [2, 3]})
    x = np.arange(-3, 3, dtype="float32").reshape(2, 3)
    executor = tilewright.load(data).compile({"x": x})
    files = export(executor, tmp_path / folder)
    name = files[0].stem
    assert name in (f"model_{folder}", f"kernel_{folder}")
    x.tofile(tmp_path / "x.raw")
    built(tmp_path / folder, tmp_path / "x.raw", tmp_path / "y.raw", name=name)
    assert (np.fromfile(tmp_path / "y.raw", "float32") == np.maximum(x, 0).ravel()).all()
    with pytest.raises(ArgumentError, match=r"^name='.*' is (no name|what the files)"):
        export(executor, tmp_path / "net", folder)
    assert not (tmp_path / "net").exists()


def test_a_relative_folder_gives_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net").mkdir()
    (tmp_path / "net" / "net_kernel_9.c").touch()  # of another model, which had more
    monkeypatch.chdir(tmp_path / "net")
    data = onnx_model([node("Relu", "x")], {"x": [2, 3]})
    executor = tilewright.load(data).compile({"x": np.zeros((2, 3), "float32")})
    files = export(executor, Path())
    assert [str(files[0]), str(files[-1]), len(files)] == ["net.h", "net_kernel_0.h", 7]


def test_what_is_not_written_says_why(tmp_path: Path) -> None:
    data = onnx_model([node("Relu", "x")], {"x": [2, 3]})
    x = {"x": np.zeros((2, 3), "float32")}
    with pytest.raises(ModelError, match="for sim are not written as sources: use llvm, cuda"):
        tilewright.load(data, target="sim").export(x, tmp_path / "net")
    executor = tilewright.load(data).compile(x)
    fixed = onnx_model([node("Relu", "x"), node("Shape", "x", "s")], {"x": [2, 3]}, ("y", "s"))
    with pytest.raises(ModelError, match="s of g is a constant, which no kernel writes: leave it"):
        tilewright.load(fixed).export(x, tmp_path / "net")
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="it is a file, not a folder"):
        export(executor, tmp_path / "file")
    with pytest.raises(ValueError, match="is no name for a function of C"):
        export(executor, tmp_path / "net", "int")
