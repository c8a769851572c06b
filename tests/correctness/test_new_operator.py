"""A new operator is one file: it has candidates, tuning, records, a bench line, a report row and a
function of tensors with gradients, and the package has not heard of it."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.depthwise import TOLERANCE, decode, run

from tilewright.cli.main import main
from tilewright.ir.errors import ProblemError
from tilewright.select.algorithm import Scheduled
from tilewright.select.registry import algorithms
from tilewright.target import Target
from tilewright.topi import Conv, Gemm, Problem
from tilewright.topi.problem import OPERATORS

pytestmark = pytest.mark.usefixtures("plain_code")

ROOT = Path(__file__).parents[2]
FILE = ROOT / "examples" / "avg_pool2d.py"
LOAD = ["--load", str(FILE)]


@pytest.fixture(scope="module")
def operator() -> Any:
    spec = importlib.util.spec_from_file_location("avg_pool2d", FILE)
    assert spec is not None
    assert spec.loader is not None
    sys.modules["avg_pool2d"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["avg_pool2d"])
    return sys.modules["avg_pool2d"].AvgPool2d


def exact(p: Any, arrays: Any) -> np.ndarray:
    """In float64, tap by tap."""
    k, s = p.size, p.stride
    n, c, h, w = p.shape
    oh, ow = (h - k) // s + 1, (w - k) // s + 1
    taps = [
        (slice(None), slice(None), slice(i, i + (oh - 1) * s + 1, s),
         slice(j, j + (ow - 1) * s + 1, s))
        for i in range(k) for j in range(k)
    ]  # fmt: skip
    if p.pass_ == "forward":
        return sum(decode(arrays["data"])[at] for at in taps) / k**2
    dx = np.zeros((n, c, h, w))
    for at in taps:
        dx[at] += decode(arrays["grad"]) / k**2
    return dx


def test_it_is_declared_in_few_lines_and_the_package_does_not_know_it():
    assert len(FILE.read_text().splitlines()) <= 80
    package = (ROOT / "src").rglob("*.py")
    assert not [p for p in package if "avg_pool2d" in p.read_text(encoding="utf-8")]


@pytest.mark.parametrize("target", [
    "llvm", "sim",
    pytest.param("opencl", marks=pytest.mark.needs_opencl),
    pytest.param("cuda", marks=pytest.mark.needs_cuda),
])  # fmt: skip
@pytest.mark.parametrize("pass_", ["forward", "dgrad"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_its_candidates_are_right(operator, target, pass_, dtype):
    machine = Target.parse(target)
    for size, stride in ((2, 2), (3, 1), (2, 3)):
        p = operator(shape=(2, 3, 9, 10), size=size, stride=stride, pass_=pass_, dtype=dtype)
        able = [a for a in algorithms() if isinstance(a, Scheduled) and not a.can(p, machine)]
        found = [(a, c) for a in able for c in a.candidates(p, machine)]
        assert len(found) > 4
        for algorithm, config in found[:: len(found) // 2]:
            device = "cuda" if target == "cuda" else "cpu"
            kernel = algorithm.kernel(p, config, machine)
            assert run(p, kernel, device=device, exact=exact) < TOLERANCE[dtype]


def test_it_is_tuned_recorded_timed_and_reported(operator, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    records, results, page = (str(tmp_path / n) for n in ("r.sqlite", "b.json", "b.html"))
    shape = ["avg_pool2d", "--shape", "2x8x12x12", "--size", "3", "--stride", "2"]
    tuning = ["--trials", "2", "--tuner", "random", "--records", records, "--json"]
    assert main([*LOAD, "tune", *shape, *tuning]) == 0
    best = json.loads(capsys.readouterr().out)
    assert main([*LOAD, "records", "list", "--records", records]) == 0
    assert "avg_pool2d" in capsys.readouterr().out
    few = ["--seconds", "0.3", "--rounds", "3", "--peers", "none", "--json", results]
    assert main([*LOAD, "bench", *shape, "--pass", "forward,dgrad", *few]) == 0
    rows = json.loads(Path(results).read_text())["rows"]
    assert [Problem.from_dict(row["problem"]).pass_ for row in rows] == ["forward", "dgrad"]
    assert main([*LOAD, "report", results, "--records", records, "-o", page]) == 0
    assert "avg_pool2d" in Path(page).read_text() or "2x8x12x12" in Path(page).read_text()
    assert best


def test_files_that_declare_no_operators_are_refused(tmp_path, capsys):
    bad = tmp_path / "bad.py"
    bad.write_text("1 / 0\n")
    assert main(["--load", str(bad), "doctor"]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert main(["--load", str(tmp_path / "none.py"), "doctor"]) == 1
    assert "there is no such file" in capsys.readouterr().err
    bad.write_text("\nraise SystemExit(3)\n")
    assert main(["--load", str(bad), "doctor"]) == 1
    assert "bad.py, line 2: SystemExit: 3" in capsys.readouterr().err
    bad.write_text(FILE.read_text().replace('("avg_pool2d",)', '("gemm",)'))
    assert main(["--load", str(bad), "doctor"]) == 1
    assert "two operators are called 'gemm'" in capsys.readouterr().err
    assert Problem.from_dict({"operator": "gemm", "m": 1, "n": 1, "k": 1}) == Gemm(m=1, n=1, k=1)


def test_files_may_be_called_as_any_module(tmp_path, capsys):
    import json as module

    file = tmp_path / "json.py"
    file.write_text("")
    assert main(["--load", str(file), "--load", str(FILE), *LOAD, "records", "list"]) == 0
    assert sys.modules["json"] is module


@pytest.mark.parametrize(("options", "words"), [
    (["avg_pool2d", "--shape", "8"], "an image of"),
    (["avg_pool2d", "--shape", "large"], "--shape is numbers, such as 1x2, got 'large'"),
    (["avg_pool2d", "--shape", "1x2x8x8", "--size", "2x2"], "--size is an integer, got '2x2'"),
    (["avg_pool2d", "--shape", "1x2x8x8", "--size", "-1"], "size is at least 1, got -1"),
    (["gemm", "--m", "3", "--n", "3", "--k", "3", "--transpose-a", "no"], "is true or false"),
])  # fmt: skip
def test_options_of_another_kind_are_refused(options, words, capsys):
    assert main([*LOAD, "tune", *options]) == 1
    assert words in capsys.readouterr().err


@pytest.mark.needs_torch
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_it_is_a_function_of_tensors_with_gradients(operator, dtype):
    import torch

    from tilewright.torch import compute

    x = torch.randn(2, 3, 9, 10, dtype=getattr(torch, dtype)).requires_grad_()
    y = compute(operator, x, size=3, stride=2)
    wanted = torch.nn.functional.avg_pool2d(x, 3, 2)
    grad = torch.randn_like(y)
    for found, right in (
        (y, wanted), (torch.autograd.grad(y, x, grad)[0], torch.autograd.grad(wanted, x, grad)[0]),
    ):  # fmt: skip
        difference = (found - right).double().norm() / right.double().norm()
        assert difference < TOLERANCE[dtype]


@pytest.mark.needs_torch
def test_products_of_matrices_are_functions_of_tensors(operator):
    import torch

    from tilewright.torch import compute

    def layer(x: Any, weight: Any, bias: Any) -> Any:
        return compute(Gemm, x, weight, bias, transpose_b=True, epilogue=("bias", "relu"))

    x, weight, bias = (torch.randn(*n, requires_grad=True) for n in ((5, 7), (9, 7), (9,)))
    wanted = torch.relu(torch.nn.functional.linear(x, weight, bias))
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    right = torch.autograd.grad(wanted.sum(), (x, weight, bias))
    for function in (layer, compiled):
        y = function(x, weight, bias)
        torch.testing.assert_close(y, wanted)
        for a, b in zip(torch.autograd.grad(y.sum(), (x, weight, bias)), right, strict=True):
            torch.testing.assert_close(a, b)
    with torch.no_grad():
        torch.testing.assert_close(layer(x, weight, bias), wanted)
    torch.testing.assert_close(layer(x.t().contiguous().t(), weight, bias), wanted)


@pytest.mark.needs_torch
def test_tensors_that_do_not_fit_are_refused(operator):
    import torch

    from tilewright.torch import compute

    with pytest.raises(ProblemError, match="A has 3 columns and B 4 rows"):
        compute(Gemm, torch.ones(2, 3), torch.ones(4, 5))
    with pytest.raises(ProblemError, match="which tensors"):
        compute(Gemm)
    with pytest.raises(ProblemError, match="takes a, b, bias"):
        compute(Gemm, torch.ones(2, 3), torch.ones(3, 5), epilogue=("bias",))
    with pytest.raises(ProblemError, match="b is"):
        compute(Gemm, torch.ones(2, 3), torch.ones(3, 5, dtype=torch.float64))
    with pytest.raises(ProblemError, match="3 x 3 of an image"):
        compute(operator, torch.ones(1, 1, 2, 2), size=3)
    a, b = torch.ones(2, 3, requires_grad=True), torch.ones(3, 2, requires_grad=True)
    first = torch.autograd.grad(compute(Gemm, a, b).sum(), a, create_graph=True)[0]
    torch.testing.assert_close(torch.autograd.grad(first.sum(), b)[0], torch.full((3, 2), 2.0))
    x = torch.ones(1, 1, 4, 4, requires_grad=True)  # of an operator that does not say it is linear
    y = compute(operator, x)
    grad = torch.ones_like(y).requires_grad_()
    back = torch.autograd.grad(y, x, grad, create_graph=True)[0]
    with pytest.raises(NotImplementedError, match="no gradient by grad"):
        torch.autograd.grad(back.sum(), grad)


@pytest.mark.needs_torch
def test_transformations_of_functions_are_those_of_pytorchs_operators(operator, monkeypatch):
    """Where a tangent would be lost without a word."""
    import torch
    from torch.autograd import forward_ad

    from tilewright.torch import compute

    a, b, more = torch.randn(5, 7), torch.randn(7, 6), torch.randn(3, 5, 7)

    def function(x: Any) -> Any:
        return compute(Gemm, x, b)

    torch.testing.assert_close(torch.func.jvp(function, (a,), (more[0],))[1], more[0] @ b)
    torch.testing.assert_close(torch.vmap(function)(more), more @ b)
    grad = torch.func.grad(lambda x: function(x).square().sum())
    torch.testing.assert_close(grad(a), 2 * (a @ b) @ b.t())
    torch.testing.assert_close(torch.vmap(grad)(more), 2 * (more @ b) @ b.t())
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(function(forward_ad.make_dual(a, more[0]))).tangent
    torch.testing.assert_close(tangent, more[0] @ b)
    images, filters = torch.randn(3, 2, 4, 9, 9), torch.randn(8, 2, 3, 3)
    found = torch.vmap(lambda x: compute(Conv, x, filters, groups=2, stride=2))(images)
    wanted = [torch.conv2d(x, filters, groups=2, stride=2) for x in images]
    torch.testing.assert_close(found, torch.stack(wanted))

    monkeypatch.setattr(OPERATORS["avg_pool2d"], "torch_function", lambda p, torch: None)
    with pytest.raises(NotImplementedError, match="torch_function"):
        torch.vmap(lambda x: compute(operator, x))(torch.ones(2, 1, 1, 4, 4))


@pytest.mark.needs_torch
def test_calls_of_what_is_no_problem_are_refused():
    import torch

    from tilewright.torch import compute

    a, b = torch.ones(2, 3), torch.ones(3, 5)
    given: tuple[tuple[Any, ...], ...] = (
        ("an operator", "gemm", (a, b), {}),
        ("of PyTorch, got a ndarray", Gemm, (a.numpy(), b), {}),
        ("'rows'", Gemm, (a, b), {"rows": 2}),
        ("'m'", Gemm, (a, b), {"m": 2}),
        ("a is .*float64.*; got .*float32", Gemm, (a, b), {"dtype": "float64"}),
        ("a batch of one", Gemm, (a[None], b[None]), {}),
    )
    for words, operator, tensors, values in given:
        with pytest.raises(ProblemError, match=words):
            compute(operator, *tensors, **values)
