"""Dense convolutions and products of matrices as problems: right by every template, everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import pocl
from tests.support.dense import convolution, convolutions, product, products, volumes
from tests.support.depthwise import TOLERANCE, run

import tilewright
from tilewright.cli._measure import floors
from tilewright.cli.main import main
from tilewright.ir.errors import ProblemError
from tilewright.select.algorithm import Scheduled
from tilewright.select.choice import choose
from tilewright.select.registry import algorithms
from tilewright.target import Target
from tilewright.topi import Conv, Conv3d, Gemm
from tilewright.topi.gpu.conv2d_mma import MmaTile
from tilewright.topi.problem import Problem
from tilewright.topi.templates import TEMPLATES

TARGETS = [
    "llvm", "sim",
    pytest.param("opencl", marks=pytest.mark.needs_opencl),
    pytest.param("cuda", marks=pytest.mark.needs_cuda),
]  # fmt: skip


def check_one(draw: Any, p: Problem, target: str, exact: Any) -> None:
    """One of the candidates of any algorithm computes the problem."""
    machine = Target.parse(target)
    able = [a for a in algorithms() if isinstance(a, Scheduled) and not a.can(p, machine)]
    assert able, f"there is no schedule for {p}"
    found = draw(st.sampled_from(able))
    config = draw(st.sampled_from(found.candidates(p, machine)))
    kernel = found.kernel(p, config, machine)
    device = "cuda" if machine.kind == "cuda" else "cpu"
    error = run(p, kernel, device=device, exact=exact)
    assert error < TOLERANCE[p.dtype], f"{found.name} {config}: relative error {error:.2g}"


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=8)
@given(data=st.data())
def test_a_convolution_is_right_by_any_schedule(target, data):
    check_one(data.draw, data.draw(convolutions()), target, convolution)


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=8)
@given(data=st.data())
def test_a_convolution_in_three_dimensions_is_right_by_any_schedule(target, data):
    check_one(data.draw, data.draw(volumes()), target, convolution)


@pytest.mark.parametrize("target", TARGETS)
@settings(max_examples=8)
@given(data=st.data())
def test_a_product_of_matrices_is_right_by_any_schedule(target, data):
    check_one(data.draw, data.draw(products()), target, product)


@pytest.mark.parametrize("p", [
    Conv.parse((2, 8, 9, 9), (16, 8, 3, 3), 1, padding=1, epilogue=("bias", "relu")),
    Conv.parse((2, 8, 9, 9), (16, 4, 3, 3), padding=1, groups=2, pass_="dgrad"),
    Conv.parse((2, 8, 9, 9), (16, 8, 3, 3), 1, padding=1, pass_="wgrad", layout="NHWC"),
    Conv3d.parse((1, 8, 5, 9, 9), (16, 8, 3, 3, 3), padding=1, epilogue=("batch_norm", "relu")),
    Conv3d.parse((1, 8, 5, 9, 9), (8, 1, 3, 3, 3), groups=8, pass_="dgrad", layout="NDHWC"),
    Gemm(m=33, n=20, k=18, transpose_b=True, epilogue=("bias",)),
    Gemm(m=33, n=20, k=18, batch=2, pass_="wgrad"),
], ids=str)  # fmt: skip
def test_what_nobody_tuned_has_a_choice(p, tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    chosen = choose(p, "llvm")
    assert run(p, chosen.build(), exact=product if isinstance(p, Gemm) else convolution) < 1e-5


@pytest.mark.parametrize("p", [
    Gemm(m=49, n=49, k=32, batch=5, transpose_b=True, dtype="float16"),
    Gemm(m=67, n=33, k=37, batch=3, dtype="bfloat16"),
    Gemm(m=67, n=64, k=70, batch=2, transpose_a=True, dtype="float16", pass_="dgrad"),
], ids=str)  # fmt: skip
def test_many_products_are_tiled_as_one_of_them_is(p):
    """Whatever divides their rows: those of attention are as many as there are tokens."""
    machine = Target.parse("sim")
    (found,) = (a for a in algorithms() if a.name == "gpu.products_mma")
    assert not found.can(p, machine)
    tiles = found.candidates(p, machine)
    assert {t.rows for t in tiles} >= {16, 32, 64}
    assert tiles[0].columns <= 128
    for tile in (tiles[0], tiles[len(tiles) // 2]):
        error = run(p, found.kernel(p, tile, machine), device="cpu", exact=product)
        assert error < TOLERANCE[p.dtype]


LAYERS = {
    "gemm": "gemm --m 24 --n 40 --k 16 --epilogue bias+relu",
    "conv2d": "conv2d --input 2x8x9x9 --filter 16x8x3x3 --padding 1 --pass forward,wgrad",
    "volume": "conv3d --input 1x4x5x6x7 --filter 8x4x3x3x3 --stride 1,2,1 --padding 0,1,1,1,1,0",
    "groups": "conv2d --input 2x8x9x9 --filter 16x4x3x3 --groups 2 --layout NHWC --pass dgrad",
}


#: Every operator, and every target, as the search knows no operator.
TUNED = [
    ("gemm", "sim"), ("conv2d", "llvm"),
    pytest.param("volume", "opencl", marks=pytest.mark.needs_opencl),
    *(pytest.param(layer, "cuda", marks=pytest.mark.needs_cuda) for layer in LAYERS),
]  # fmt: skip


@pytest.mark.parametrize(("layer", "target"), TUNED)
def test_they_are_tuned_and_what_is_found_is_chosen(layer, target, tmp_path, monkeypatch, capsys):
    if target == "opencl" and pocl.renamed:
        pytest.skip("PoCL does not know this processor in the processes that measure")
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    words = ["--target", target, "--trials", "2", "--tuner", "random", "--json"]
    assert main(["tune", *LAYERS[layer].split(), *words]) == 0
    found = json.loads(capsys.readouterr().out)
    for one in found if isinstance(found, list) else [found]:
        assert one["seconds"] > 0
        assert not one["failed"]


@pytest.mark.parametrize("target", [t for t in TARGETS if t != "sim"])  # which has no clock
def test_they_are_timed_and_reported(target, tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    # What the machine can do takes PoCL half a minute; test_bench has its kernels.
    monkeypatch.setattr(floors, "bandwidth", lambda machine: 1e10)
    monkeypatch.setattr(floors, "rate", lambda machine, dtype: 1e11)
    results, page = str(tmp_path / "r.json"), tmp_path / "r.html"
    few = ["--target", target, "--seconds", "0.2", "--rounds", "2", "--peers", "none"]
    problems = tmp_path / "problems.txt"
    problems.write_text("\n".join(LAYERS.values()))
    assert main(["bench", "--problems", str(problems), *few, "--json", results]) == 0
    rows = json.loads(Path(results).read_text())["rows"]
    assert {row["problem"]["operator"] for row in rows} == {"gemm", "conv2d", "conv3d"}
    assert main(["report", results, "--no-records", "-o", str(page)]) == 0
    assert "gemm" in page.read_text()


def test_problems_that_are_none_say_why():
    with pytest.raises(ProblemError, match="m"):
        Gemm(m=0, n=2, k=3)
    with pytest.raises(ProblemError, match="epilogue"):
        Gemm(m=1, n=2, k=3, pass_="dgrad", epilogue=("relu",))
    with pytest.raises(ProblemError, match="groups"):
        Conv.parse((2, 8, 9, 9), (16, 8, 3, 3), groups=3)
    for shape, filter, words, more in (
        ((2, 8, 9, 9), (16, 8, 3, 3), "NxCxDxHxW", {}),
        ((2, 8, 9, 9, 9), (16, 4, 3, 3, 3), "does not fit 8 channels", {}),
        ((2, 8, 2, 9, 9), (16, 8, 3, 3, 3), "a depth of 3.*front and back", {}),
        ((2, 8, 9, 9, 9), (16, 8, 3, 3, 3), "stride is an integer or 3", {"stride": (1, 2)}),
        ((2, 8, 9, 9, 9), (16, 8, 3, 3, 3), "three, .front", {"padding": (1, 2)}),
        ((2, 8, 9, 9, 9), (16, 8, 3, 3, 3), "use NCDHW, NDHWC", {"layout": "NCHW"}),
        ((2, 8, 9, 9, 9), (16, 8, 3, 3, 3), "no epilogue", {"pass_": "wgrad", "epilogue": "relu"}),
        ((0, 8, 9, 9, 9), (16, 8, 3, 3, 3), "batch is at least 1", {}),
    ):
        with pytest.raises(ProblemError, match=words):
            Conv3d.parse(shape, filter, **more)
    with pytest.raises(ProblemError, match="5 channels in 2 groups"):
        Conv3d(batch=1, channels=5, groups=2, image=(3, 3, 3), kernel=(1, 1, 1))


@pytest.mark.parametrize("target", ["sim", pytest.param("cuda", marks=pytest.mark.needs_cuda)])
def test_a_long_epilogue_is_of_the_rows_that_a_group_has(target: str) -> None:
    """Where steps are many, parts have names of their own, and which threads hold what these stand
    for was not asked: threads with rows beyond the group stored them over others."""
    p = Conv3d.parse(
        (1, 12, 3, 6, 7), (4, 6, 2, 3, 3), 2, padding=1, dtype="float16",
        epilogue="relu6+hswish+hsigmoid",
    )  # fmt: skip
    tile = MmaTile(16, 128, 32, 1, 2, 2, 1)
    d = p.declare()
    machine = "cuda -arch=sm_90a" if target == "cuda" else target
    kernel = tilewright.build(TEMPLATES["gpu.products_mma"].schedule(d, tile), d.args, machine)
    assert run(p, kernel, device="cuda" if target == "cuda" else "cpu", exact=convolution) < 2e-3
