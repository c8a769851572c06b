"""A saved model runs elsewhere: without its ONNX file, a cache folder or a compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.correctness.test_save import edit
from tests.support.models import node, onnx_model, resnet

import tilewright
from tilewright.cli.main import main
from tilewright.graph import ModelError
from tilewright.graph import kernels as building
from tilewright.ir.errors import TargetError, TilewrightError
from tilewright.runtime.build import forget

pytestmark = pytest.mark.needs_onnx


def _layer() -> bytes:
    """A convolution and a linear layer of images of any number."""
    draw = np.random.default_rng(0).standard_normal
    w, b = draw((8, 3, 3, 3)).astype("float32"), draw((8, 5)).astype("float32")
    nodes = [
        node("Conv", "x w", "c", pads=[1] * 4), node("Relu", "c", "r"),
        node("GlobalAveragePool", "r", "p"), node("Flatten", "p", "f"), node("MatMul", "f b"),
    ]  # fmt: skip
    return onnx_model(nodes, {"x": ["N", 3, 8, 8]}, constants={"w": w, "b": b})


def _images(count: int) -> Any:
    return np.random.default_rng(count).standard_normal((count, 3, 8, 8)).astype("float32")


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is not saved cannot be built."""

    def refuse(*_: Any) -> Any:
        raise TilewrightError("something is compiled")

    monkeypatch.setattr(building, "chosen_kernel", refuse)


@pytest.mark.parametrize("target", [
    "llvm -threads=1", "sim", pytest.param("opencl", marks=pytest.mark.needs_opencl),
    pytest.param("cuda", marks=pytest.mark.needs_cuda),
])  # fmt: skip
def test_a_loaded_model_is_the_saved_one(
    tmp_path: Path, target: str, request: pytest.FixtureRequest
) -> None:
    model, path = tilewright.load(_layer(), target=target), tmp_path / "m.tw"
    wanted = {count: model(_images(count)) for count in (2, 3)}
    model.save(path)
    forget()
    request.getfixturevalue("no_compiler")
    loaded = tilewright.load(path)
    assert str(loaded) == str(model)
    for count in (3, 2):  # in another order
        np.testing.assert_array_equal(loaded(_images(count)), wanted[count])
    again = tmp_path / "again.tw"
    loaded.save(again)
    assert set(tilewright.load(again).kernels()) == set(model.kernels())


def test_another_process_needs_no_cache_folder(tmp_path: Path) -> None:
    model, path = tilewright.load(_layer()), tmp_path / "m.tw"
    x, y = tmp_path / "x.npy", tmp_path / "y.npy"
    np.save(x, _images(2))
    np.save(y, model(_images(2)))
    model.save(path)
    program = f"""
import numpy as np, tilewright
from tilewright.graph import kernels
kernels.chosen_kernel = None  # nothing is compiled
found = tilewright.load({str(path)!r})(np.load({str(x)!r}))
assert (found == np.load({str(y)!r})).all()
"""
    env = {**os.environ, "TILEWRIGHT_CACHE": "off"}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300, env=env)


def test_shapes_that_were_not_saved_are_compiled(tmp_path: Path) -> None:
    model, path = tilewright.load(_layer()), tmp_path / "m.tw"
    model(_images(2))
    model.save(path)
    loaded = tilewright.load(path)
    np.testing.assert_array_equal(loaded(_images(4)), model(_images(4)))


def test_integers_of_8_bits_keep_their_ranges(tmp_path: Path) -> None:
    samples = [_images(4), _images(5)]
    model = tilewright.load(_layer(), dtype="int8", calibration=samples, budget=0.1)
    wanted, path = model(samples[0]), tmp_path / "m.tw"
    model.save(path)
    loaded = tilewright.load(path)
    np.testing.assert_array_equal(loaded(samples[0]), wanted)
    assert str(loaded.quantization) == str(model.quantization)


def test_data_beside_the_model_is_saved_with_it(tmp_path: Path) -> None:
    import onnx

    proto = onnx.load_from_string(_layer())
    path = tmp_path / "m.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="m.data", size_threshold=0)
    model, saved = tilewright.load(path), tmp_path / "m.tw"
    wanted = model(_images(2))
    model.save(saved)
    path.unlink()
    (tmp_path / "m.data").unlink()
    np.testing.assert_array_equal(tilewright.load(saved)(_images(2)), wanted)


def test_kernels_for_another_machine_are_compiled_again(tmp_path: Path) -> None:
    model, path = tilewright.load(_layer()), tmp_path / "m.tw"
    wanted = model(_images(2))
    model.save(path)

    def elsewhere(meta: Any, files: Any) -> None:
        for about in meta["kernels"]:
            tag = json.loads(about["tag"])
            about["tag"] = json.dumps({**tag, "triple": "riscv64-unknown-linux-gnu"})

    edit(path, elsewhere)
    loaded = tilewright.load(path)
    assert not loaded.kernels()
    np.testing.assert_array_equal(loaded(_images(2)), wanted)


def test_kernels_of_another_version_are_compiled_again(tmp_path: Path) -> None:
    model, path = tilewright.load(_layer()), tmp_path / "m.tw"
    wanted = model(_images(2))
    model.save(path)
    edit(path, lambda meta, _: meta.update(tilewright="0.0.1"))
    loaded = tilewright.load(path)
    assert not loaded.kernels()
    np.testing.assert_array_equal(loaded(_images(2)), wanted)


def test_files_that_are_no_saved_model_say_why(tmp_path: Path) -> None:
    model, path = tilewright.load(_layer()), tmp_path / "m.tw"
    with pytest.raises(ModelError, match=r"has no kernels to save: call it, or model.compile"):
        model.save(path)
    model(_images(2))
    with pytest.raises(ModelError, match="would be taken for a model of ONNX's"):
        model.save(tmp_path / "m.onnx")
    with pytest.raises(OSError, match="there is no folder"):
        model.save(tmp_path / "none" / "m.tw")
    model.save(path)
    with pytest.raises(ModelError, match="was saved with its options"):
        tilewright.load(path, dtype="float16")
    with pytest.raises(ModelError, match='was saved for target="llvm", not for "sim"'):
        tilewright.load(path, target="sim")
    renamed = path.rename(tmp_path / "evil.onnx")  # an ONNX file never brings code
    with pytest.raises(ModelError, match="is no ONNX model"):
        tilewright.load(renamed)
    path = renamed.rename(path)
    with pytest.raises(TilewrightError, match=r"is not a saved kernel: tilewright.load reads"):
        tilewright.runtime.load(path)

    def damaged(meta: Any, files: Any) -> None:
        files["model.onnx"] = files["model.onnx"][:-9]

    edit(path, damaged)
    with pytest.raises(TilewrightError, match=r"the checksum of model.onnx does not match"):
        tilewright.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.pkl", "weights of PyTorch's")
    with pytest.raises(TilewrightError, match="is not a saved kernel or model, or is damaged"):
        tilewright.load(path)


def test_the_command_line_saves_and_runs_models(tmp_path: Path, capsys: Any) -> None:
    path, saved, out = tmp_path / "m.onnx", str(tmp_path / "m.tw"), str(tmp_path / "y.npz")
    path.write_bytes(resnet().model())
    given = ["--iterations", "1", "--seed", "3"]
    assert main(["run", str(path), *given, "--save", saved, "--output", out]) == 0
    path.unlink()
    assert main(["run", saved, *given, "--expect", out, "--rtol", "0", "--atol", "0"]) == 0
    assert main(["run", saved, "--target", "sim"]) == 1
    assert "was saved for" in capsys.readouterr().err
    assert main(["run", saved, "--save", str(tmp_path / "again.onnx")]) == 1
    assert capsys.readouterr().out == ""  # before anything runs


def test_what_has_no_kernel_for_any_batch_is_remembered_only_where_it_has_one_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(building, "_REFUSED", set())
    chosen, tries = building.chosen_kernel, []
    fails = {"any": True, "own": True}

    def choose(problem: Any, target: Any, batch: Any = None) -> Any:
        tries.append(batch)
        if fails["own" if batch is None else "any"]:
            raise TargetError("the device is lost" if batch is None else "it has none")
        return chosen(problem, target, batch)

    monkeypatch.setattr(building, "chosen_kernel", choose)
    model = tilewright.load(_layer(), target="sim")
    fails["own"] = fails["any"] = False
    model(_images(2))
    fails["own"] = fails["any"] = True
    with pytest.raises(TargetError, match="the device is lost"):
        model(_images(3))
    assert not building._REFUSED
    fails["own"] = False
    model(_images(3))
    assert building._REFUSED
    tries.clear()
    model(_images(4))
    assert None in tries  # what is refused is not tried again
    assert not any(b is not None for b in tries)
