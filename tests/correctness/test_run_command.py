"""``tilewright run``: inputs of all kinds, what is expected, times and layers."""

from __future__ import annotations

import argparse
import json

import numpy as np
import pytest
from tests.support.models import node, onnx_model, resnet, write

import tilewright
from tilewright.cli import _problems
from tilewright.cli._run.figures import Times, difference
from tilewright.cli._run.inputs import arrays
from tilewright.cli.main import main
from tilewright.graph.signature import Parameter
from tilewright.ir.errors import ArgumentError
from tilewright.select import choice
from tilewright.select.algorithm import BuiltKernel
from tilewright.select.profile_cache import ProfileCache

pytestmark = pytest.mark.needs_onnx

TWO = (Parameter("a", "float32", ("N", 3)), Parameter("b", "int64", (2,)))


@pytest.fixture
def added(tmp_path):
    data = onnx_model([node("Add", "a b")], {"a": [2, 3], "b": [2, 3]})
    return str(write(tmp_path, data))


def test_inputs_are_files_literals_shapes_and_random(tmp_path):
    a = np.arange(6, dtype="float32").reshape(2, 3)
    np.save(tmp_path / "a.npy", a)
    np.savez(tmp_path / "both.npz", a=a, b=np.array([4, 5]))
    for texts in (
        [f"a:{tmp_path}/a.npy", "b:[4,5]"],
        [f"{tmp_path}/a.npy;[4,5]"],
        [f"b=[4,5];a={tmp_path}/a.npy"],
        [f"{tmp_path}/both.npz"],
    ):
        found = arrays(texts, TWO, 0)
        assert (found["a"] == a).all()
        assert (found["b"] == [4, 5]).all()
        assert found["b"].dtype == "int64"
    assert arrays(["a:4x3"], TWO, 0)["a"].shape == (4, 3)
    assert arrays(["a:{4,3}"], TWO, 0)["a"].shape == (4, 3)
    assert arrays([], TWO, 0)["a"].shape == (1, 3)
    assert (arrays([], TWO, 7)["a"] == arrays([], TWO, 7)["a"]).all()
    assert (arrays([], TWO, 7)["a"] != arrays([], TWO, 8)["a"]).any()


def test_open_dimensions_are_those_of_inputs_that_are_given():
    given = (
        Parameter("x", "float32", ("N", 3, "?")),
        Parameter("y", "float32", (5, "N", "M", "?")),
    )
    found = arrays(["x:4x3x7"], given, 0)
    assert {name: a.shape for name, a in found.items()} == {"x": (4, 3, 7), "y": (5, 4, 1, 1)}
    lines: list[str] = []
    arrays(["x:4x3x7"], given, 0, told=lines.append)
    assert lines == [
        "y: float32[5xNxMx?] is not given: it is 5x4x1x1, M, ? being 1 where nothing is said"
    ]


def test_names_of_inputs_may_have_colons():
    given = (Parameter("image", "int64", (2,)), Parameter("image:0", "int64", (2,)))
    found = arrays(["image:0:[1,2]", "image:[3,4]"], given, 0)
    assert (found["image:0"].tolist(), found["image"].tolist()) == ([1, 2], [3, 4])


@pytest.mark.parametrize(("text", "match"), [
    ("none.npy", "cannot be read"), ("a:hello", "a literal like"), ("cat.JPG", "np.save the array"),
    ("c:x.npy", "there is no c, but a, b"),
    ("[1];[2];[3]", "one more than there are, which are a, b"),
])  # fmt: skip
def test_what_is_no_input_is_refused(text, match):
    with pytest.raises(ArgumentError, match=match):
        arrays([text], TWO, 0)


def test_outputs_are_written_and_compared(added, tmp_path, capsys):
    np.save(tmp_path / "a.npy", np.ones((2, 3), "float32"))
    np.save(tmp_path / "b.npy", np.full((2, 3), 2, "float32"))
    inputs = ["--input", f"a:{tmp_path}/a.npy;b:{tmp_path}/b.npy", "--iter", "2"]
    out = str(tmp_path / "y.npz")
    assert main(["run", added, *inputs, "--output", out]) == 0
    assert (np.load(out)["y"] == 3).all()
    assert main(["run", added, *inputs, "--expect", out]) == 0
    assert "y: as expected; at most 0 off" in capsys.readouterr().out
    np.save(tmp_path / "y.npy", np.full((2, 3), 3.1, "float32"))
    assert main(["run", added, *inputs, "--expect", f"y:{tmp_path}/y.npy"]) == 1
    assert "y: NOT as expected; at most 0.1 off" in capsys.readouterr().out
    assert main(["run", added, *inputs, "--expect", f"{tmp_path}/y.npy", "--rtol", "0.1"]) == 0


def test_an_output_of_another_shape_is_not_as_expected(added, tmp_path, capsys):
    np.save(tmp_path / "y.npy", np.zeros((3, 3), "float32"))
    assert main(["run", added, "--expect", f"{tmp_path}/y.npy"]) == 1
    assert "y: NOT as expected; its shape is (2, 3), and (3, 3) was" in capsys.readouterr().out


def test_integers_of_8_bits_need_samples(added, capsys):
    assert main(["run", added, "--dtype", "int8"]) == 1
    assert "--dtype int8 needs samples: --calibration X.npy" in capsys.readouterr().err


def test_a_page_shows_kernels_and_where_values_lie(tmp_path, capsys):
    path, page = str(write(tmp_path, resnet().model())), tmp_path / "page.html"
    assert main(["run", path, "--iterations", "2", "--html", str(page)]) == 0
    text = page.read_text()
    assert "http" not in text.partition("</style>")[2].replace("http-equiv", "")
    plan = tilewright.load(path).compile(arrays([], tilewright.load(path).inputs, 0))
    assert text.count("<rect") == 1 + len(plan.lifetimes)  # and the block itself
    assert all(kernel in text for kernel in ("conv2d forward", "gemm forward"))
    assert "as expected" not in text


def test_the_problems_of_a_model_are_those_that_tune_and_bench_take(tmp_path, capsys):
    path, problems = str(write(tmp_path, resnet().model())), tmp_path / "problems.txt"
    assert main(["run", path, "--iterations", "1", "--problems", str(problems)]) == 0
    lines = problems.read_text().splitlines()
    assert len(lines) == len(set(lines)) > 5
    parser = argparse.ArgumentParser()
    _problems.add_arguments(parser)
    args = parser.parse_args(["--problems", str(problems)])
    assert [named.problem.to_json() for named in _problems.problems(args)] == lines


def test_a_fast_run_goes_on_with_what_it_has_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    kept = ProfileCache()
    monkeypatch.setattr(choice, "_cache", lambda: kept)
    x, w = np.ones((2, 8), "float32"), np.arange(24, dtype="float32").reshape(8, 3)
    data = onnx_model([node("MatMul", "x w")], {"x": [2, 8]}, constants={"w": w})
    model, y = str(write(tmp_path, data)), tmp_path / "y.npy"
    np.save(tmp_path / "x.npy", x)
    np.save(y, x @ w)
    options = [*f"--input x:{tmp_path}/x.npy --iter 1 --threads 1 --expect".split(), str(y)]
    none = ["--fast_run", "--fast-run-seconds", "0", "--enable_nchw32", "--cpu"]
    assert main(["run", model, *options, *none]) == 0
    text = capsys.readouterr().out
    assert "0 of 1 kernels; the next run goes on" in text
    assert "also without --enable-nchw32" in text
    measured: list[object] = []

    def sooner(kernel: object, arrays: object) -> float:
        measured.append(kernel)
        return 1 / len(measured)

    monkeypatch.setattr(BuiltKernel, "seconds", sooner)
    assert main(["run", model, *options, "--full-run"]) == 0
    assert "1 of 1 kernels\n" in capsys.readouterr().out
    assert len(measured) > 1
    count = len(measured)
    assert main(["run", model, *options, "--fast-run"]) == 0  # nothing is measured again
    assert len(measured) == count


@pytest.mark.needs_onnxruntime
def test_figures_hold_every_layer(tmp_path, capsys):
    path = str(write(tmp_path, resnet().model()))
    more = ["--reference", "onnxruntime", "--iterations", "3", "--warmup-iter", "1"]
    assert main(["run", path, *more, "--json", "-"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert len(found["layers"]) == 9  # the image is read as it lies
    assert all(row["ms"] > 0 and row["kernel"] for row in found["layers"])
    assert found["ms"]["min"] <= found["ms"]["median"] <= found["ms"]["p99"] <= found["ms"]["max"]
    assert found["outputs"][0]["worst"] <= 1
    assert "9 kernels" in captured.err
    assert main(["run", path, "--profile", "--graph", "--threads", "1"]) == 0
    text = capsys.readouterr().out
    assert "GFLOP/s" in text
    assert "epilogue=('bias', 'residual', 'relu')" in text


def test_a_reference_that_is_missing_is_told_before_anything_is_compiled(
    added, capsys, monkeypatch
):
    monkeypatch.setattr("tilewright.cli._run.expected.find_spec", lambda name: None)
    assert main(["run", added, "--reference", "onnxruntime"]) == 1
    said = capsys.readouterr()
    assert "pip install onnxruntime" in said.err
    assert said.out == ""


@pytest.mark.needs_onnxruntime
def test_what_onnx_runtime_refuses_is_said(tmp_path, capsys):
    nodes = [node("Cast", "b", "index", to=7), node("Gather", "a index")]
    data = onnx_model(nodes, {"a": [3], "b": [1]})
    words = ["run", str(write(tmp_path, data)), "--input", "b:[7]", "--reference", "onnxruntime"]
    assert main(words) == 1
    assert "it refuses that" in capsys.readouterr().err


@pytest.mark.parametrize(("options", "match"), [
    (["--iterations", "0"], "at least 1"), (["--threads", "0"], "at least one"),
    (["--expect", "x.npy", "--reference", "onnxruntime"], "from one of them"),
    (["--input", "c:[1]"], "there is no c, but a, b"),
])  # fmt: skip
def test_options_that_make_no_sense_are_refused(added, options, match, capsys):
    assert main(["run", added, *options]) == 1
    assert match in capsys.readouterr().err


def test_percentiles_are_of_iterations():
    times = Times([k / 1000 for k in range(1, 101)])
    found = times.to_dict()
    assert (found["min"], found["max"]) == (1, 100)
    assert (found["p90"], found["p99"]) == (91, 100)


def test_differences_know_nan_infinity_and_shapes():
    one = np.array([1.0, np.nan, np.inf])
    assert difference("y", one, one, 0, 0).fits
    assert not difference("y", one, np.array([1.0, 2.0, np.inf]), 1, 1).fits
    assert not difference("y", one, np.array([1.0, np.nan, -np.inf]), 1, 1).fits
    assert not difference("y", one, one[:2], 1, 1).fits
    assert difference("y", np.array([1.01]), np.array([1.0]), 0.02, 0).fits
    assert difference("y", np.array([100.0, 1e-4]), np.array([100.0, 0.0]), 1e-4).fits
    assert not difference("y", np.array([100.0, 1e-2]), np.array([100.0, 0.0]), 1e-4).fits


@pytest.mark.parametrize(("words", "problem"), [
    ("--seed -1", "--seed, --rtol and --atol are not negative"),
    ("--rtol nan", "--seed, --rtol and --atol are not negative"),
    ("--fast-run --fast-run-seconds -1", "--fast-run-seconds is not negative"),
    ("--fast-run --fast-run-seconds nan", "--fast-run-seconds is not negative"),
    ("--input a:99999999x99999x99", "random numbers of 99999999x99999x99: "),
    ("--input a:99999999999999999999x3", "random numbers of 99999999999999999999x3: "),
    ("--threads 2 --target sim", "--threads 2: at least one, of the CPU"),
])  # fmt: skip
def test_numbers_that_a_run_cannot_have_are_refused(added, words, problem, capsys):
    assert main(["run", added, *words.split()]) == 1
    assert problem in capsys.readouterr().err
