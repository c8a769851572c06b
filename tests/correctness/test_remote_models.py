"""Models compiled here run on another machine, here by a server of this process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.models import node, onnx_model, write

import tilewright
from tilewright.cli.main import main
from tilewright.graph import ModelError
from tilewright.graph.remote import RemoteModel
from tilewright.ir.errors import ArgumentError
from tilewright.tune.remote import RemoteError
from tilewright.tune.serve import Server
from tilewright.tune.wire import KEY

pytestmark = pytest.mark.needs_onnx


@contextmanager
def serving(module: str) -> Iterator[str]:
    """The address of a server whose processes are that module's."""
    server = Server("127.0.0.1", 0, b"a key", module)
    thread = threading.Thread(target=server.run, args=(lambda line: None,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        server.close()
        thread.join()


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv(KEY, "a key")
    with serving("tilewright.graph.served") as address:
        yield address


@pytest.fixture
def mali(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv(KEY, "a key")
    with serving("tests.support.mali_board") as address:
        yield address


def _layer() -> bytes:
    """A convolution of images of any number, and a second output."""
    w = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype("float32")
    nodes = [node("Conv", "x w", "c", pads=[1] * 4), node("Relu", "c"), node("Neg", "y", "z")]
    return onnx_model(nodes, {"x": ["N", 3, 6, 5]}, ("y", "z"), {"w": w})


def _images(count: int) -> Any:
    return np.random.default_rng(count).standard_normal((count, 3, 6, 5)).astype("float32")


def test_a_model_gives_there_what_it_gives_here(board: str) -> None:
    model = tilewright.load(_layer(), target="llvm -threads=1")
    with tilewright.connect(board) as there:
        run = there.load(model)
        assert isinstance(run, RemoteModel)
        for count in (2, 3):
            for found, wanted in zip(run(_images(count)), model(_images(count)), strict=True):
                np.testing.assert_array_equal(found, wanted)
        assert len(there._worker._sent) == 3  # the model once, and kernels for two shapes
        timing = run.time({"x": _images(2)}, repeat=3)
        assert len(timing.times) == 3
        assert run.measure({"x": _images(2)}, 1, 0, steps=True).compiled == 0
        with pytest.raises(ModelError, match="there is no input w: the model takes x"):
            run.run({"w": _images(1)})
        with pytest.raises(ArgumentError, match=r"2 inputs: the model takes x: float32\[Nx3x6x5\]"):
            run(_images(1), _images(1))
        there._worker._wire.close()
        with pytest.raises(RemoteError, match=f"the connection to {board} broke"):
            run(_images(2))
        np.testing.assert_array_equal(run(_images(2))[0], model(_images(2))[0])  # sent again


@pytest.mark.needs_cuda
def test_a_gpu_there_takes_machine_code_from_here(board: str) -> None:
    wanted = tilewright.load(_layer())(_images(2))
    with tilewright.connect(board) as there:
        run = there.load(tilewright.load(_layer(), target="cuda"))
        found = run.measure({"x": _images(2)}, 2, 0, steps=True)
    assert found.compiled == 0
    for a, b in zip(found.outputs.values(), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_what_cannot_be_read_there_is_told_before_anything_is_compiled(
    board: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tilewright.load(_layer(), target="llvm -threads=1")
    monkeypatch.setattr(type(model.source), "to_bytes", lambda self: b"no model")
    monkeypatch.setattr(type(model), "written", lambda *_: pytest.fail("compiled"))
    with tilewright.connect(board) as there:
        with pytest.raises(RemoteError, match=f"{board}: .* is no ONNX model"):
            there.load(model)


@pytest.mark.needs_opencl
@pytest.mark.parametrize("target", ["opencl -device=mali", "opencl"])
def test_a_board_compiles_text_that_was_written_without_its_device(mali: str, target: str) -> None:
    """The driver of a board does: nothing is chosen, lowered or proved there. A device that is
    known by its name need not be named."""
    wanted = tilewright.load(_layer())(_images(2))
    with tilewright.connect(mali) as there:
        run = there.load(tilewright.load(_layer(), target=target))
        assert "Mali-G52" in run.machine["device"]
        found = run.measure({"x": _images(2)}, 1, 0, steps=True)
    assert found.compiled == 0
    assert len(found.steps[0]) == len(run.compile({"x": _images(2)}).steps)
    for a, b in zip(found.outputs.values(), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    with pytest.raises(RemoteError, match="there is no OpenCL device 'adreno'"):
        tilewright.connect(mali).load(tilewright.load(_layer(), target="opencl -device=adreno"))


@pytest.mark.needs_opencl
def test_ranges_for_8_bits_are_measured_here_where_the_device_is_not(
    mali: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, x = str(write(tmp_path, _layer())), str(tmp_path / "x.npy")
    np.save(x, _images(2))
    words = [path, "--input", x, "--target", "opencl -device=mali", "--dtype", "int8"]
    words += ["--calibration", x, "--budget", "0.02"]
    assert main(["run", *words, "--remote", mali, "--output", str(tmp_path / "y.npz")]) == 0
    assert "relative error on the samples 0.0" in capsys.readouterr().out
    found, wanted = np.load(tmp_path / "y.npz")["y"], tilewright.load(path)(_images(2))[0]
    assert 0 < np.linalg.norm(found - wanted) < 0.02 * np.linalg.norm(wanted)
    assert main(["compile", *words, "-o", str(tmp_path / "net")]) == 0
    sources = "".join(file.read_text() for file in (tmp_path / "net").glob("*.cl"))
    assert "char" in sources


@pytest.mark.needs_opencl
def test_a_board_is_searched_by_the_name_of_its_device(
    mali: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["tune", "conv2d", "--input", "1x4x6x5", "--filter", "4x4x3x3", "--target", "opencl"]
    words += ["--remote", mali, "--trials", "2", "--min-repeat-ms", "0", "--jobs", "1"]
    records = str(tmp_path / "records")
    assert main([*words, "--tuner", "random", "--records", records]) == 0
    assert main(["records", "list", "--records", records]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "mali" in said
    assert "Mali-G52" in said


def test_a_run_there_has_all_that_a_run_here_has(
    board: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(write(tmp_path, _layer()))
    np.save(tmp_path / "x.npy", _images(2))
    names = ("y.npz", "m.tw", "f.json", "p.html", "p.txt")
    y, saved, figures, page, problems = (str(tmp_path / name) for name in names)
    words = ["run", path, "--input", f"{tmp_path}/x.npy", "--threads", "1", "--iterations", "2"]
    assert main([*words, "--output", y]) == 0
    words += ["--remote", board]
    more = ["--save", saved, "--json", figures, "--html", page, "--problems", problems, "--profile"]
    assert main([*words, *more, "--expect", y]) == 0
    said = capsys.readouterr().out
    assert f"{board}: " in said
    assert "prepare there: " in said
    assert "compiled" not in said
    assert "y: as expected" in said
    found = json.loads(Path(figures).read_text())
    assert all(layer["ms"] > 0 for layer in found["layers"])
    assert said.split(f"{board}: ")[1].splitlines()[0] in Path(page).read_text()
    assert Path(problems).read_text()
    again = tilewright.load(saved)
    assert again.brought
    np.testing.assert_array_equal(again(_images(2))[0], np.load(y)["y"])


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (["--fast-run"], "tune --problems FILE --remote HOST:PORT"),
        (["--remote", "127.0.0.1:1"], "no `tilewright serve` answers at 127.0.0.1:1"),
    ],
)
def test_what_a_run_there_cannot_do_is_said(
    tmp_path: Path, options: list[str], match: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv(KEY, "a key")
    path = str(write(tmp_path, _layer()))
    assert main(["run", path, "--remote", "127.0.0.1:1", *options]) == 1
    assert match in " ".join(capsys.readouterr().err.split())
