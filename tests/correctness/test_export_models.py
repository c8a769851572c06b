"""A model written as C is built by a C compiler without warnings, and gives the same outputs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.models import NETWORKS, node, onnx_model, relative

import tilewright
from tilewright.cli.main import main
from tilewright.graph import ModelError
from tilewright.graph.export_c import export_c
from tilewright.ir.errors import ArgumentError

COMPILER = shutil.which("cc") or shutil.which("gcc")
pytestmark = [
    pytest.mark.needs_onnx,
    pytest.mark.skipif(COMPILER is None or shutil.which("make") is None, reason="no C compiler"),
]


def built(folder: Path, *files: Path, name: str | None = None) -> None:
    """Run the Makefile, strictly, and the program."""
    name = name or folder.name
    flags = "CFLAGS=-O1 -Wall -Wextra -Werror -Wno-unknown-pragmas -ffp-contract=fast"
    subprocess.run(["make", "-s", "-j2", f"CC={COMPILER}", flags], cwd=folder, check=True)
    weights = folder / f"{name}.weights"
    subprocess.run([folder / name, weights, *files], check=True, timeout=60)


@pytest.mark.parametrize(("name", "dtype"), [("resnet", None), ("squeeze_excite", "bfloat16")])
def test_a_network_gives_the_same_outputs(
    name: str, dtype: str | None, tmp_path: Path, capsys: Any
) -> None:
    path, folder = tmp_path / "m.onnx", tmp_path / "net"
    path.write_bytes(NETWORKS[name](16).model(batch="N"))
    model = tilewright.load(path, dtype=dtype)
    more = [] if dtype is None else ["--dtype", dtype]
    size = model.inputs[0].shape[2]
    x = np.random.default_rng(0).standard_normal((2, 3, size, size)).astype("float32")
    assert (
        main(["compile", str(path), "--input", f"2x3x{size}x{size}", "-o", str(folder), *more]) == 0
    )
    assert "make -C" in capsys.readouterr().out
    x.tofile(tmp_path / "x.raw")
    built(folder, tmp_path / "x.raw", tmp_path / "y.raw")
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
    export_c(executor, folder)
    x.tofile(tmp_path / "x.raw")
    built(folder, tmp_path / "x.raw", tmp_path / "y.raw")
    found = np.fromfile(tmp_path / "y.raw", "float32").reshape(wanted.shape)
    assert relative(found, wanted) < 1e-6


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
    export_c(model.compile(given), tmp_path / "net")
    files = [tmp_path / f"{n}.raw" for n in ("a", "b", "unread", "y", "z")]
    for path, x in zip(files, given.values(), strict=False):
        x.tofile(path)
    built(tmp_path / "net", *files)
    for path, (n, wanted) in zip(files[3:], model.run(given).items(), strict=True):
        found = np.fromfile(path, "float32").reshape(wanted.shape)
        assert relative(found, wanted) < 1e-6, n


@pytest.mark.parametrize("folder", ["weights", "input_0", "wrote", "argv", "clean", "size_t"])
def test_a_folder_may_be_called_as_the_files_call_something(folder: str, tmp_path: Path) -> None:
    data = onnx_model([node("Relu", "x")], {"x": [2, 3]})
    x = np.arange(-3, 3, dtype="float32").reshape(2, 3)
    executor = tilewright.load(data).compile({"x": x})
    files = export_c(executor, tmp_path / folder)
    name = files[0].stem
    assert name in (f"model_{folder}", f"kernel_{folder}")
    x.tofile(tmp_path / "x.raw")
    built(tmp_path / folder, tmp_path / "x.raw", tmp_path / "y.raw", name=name)
    assert (np.fromfile(tmp_path / "y.raw", "float32") == np.maximum(x, 0).ravel()).all()
    with pytest.raises(ArgumentError, match=r"^name='.*' is (no name|what the files)"):
        export_c(executor, tmp_path / "net", folder)
    assert not (tmp_path / "net").exists()


def test_a_relative_folder_gives_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net").mkdir()
    monkeypatch.chdir(tmp_path / "net")
    data = onnx_model([node("Relu", "x")], {"x": [2, 3]})
    executor = tilewright.load(data).compile({"x": np.zeros((2, 3), "float32")})
    assert export_c(executor, Path())[0] == Path("net.h")


def test_what_is_not_written_as_c_says_why(tmp_path: Path) -> None:
    data = onnx_model([node("Relu", "x")], {"x": [2, 3]})
    x = {"x": np.zeros((2, 3), "float32")}
    with pytest.raises(ModelError, match='for sim are not written as C: use target="llvm"'):
        export_c(tilewright.load(data, target="sim").compile(x), tmp_path / "net")
    executor = tilewright.load(data).compile(x)
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="it is a file, not a folder"):
        export_c(executor, tmp_path / "file")
    with pytest.raises(ValueError, match="is no name for a function of C"):
        export_c(executor, tmp_path / "net", "int")
