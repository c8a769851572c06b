"""What a kernel for a CPU is made of does not grow with the boundaries that its loops have."""

from __future__ import annotations

import pytest

from tilewright import select, te
from tilewright.arith.system import System
from tilewright.codegen.llvm.module import generate
from tilewright.ir.func import Func, Module
from tilewright.ir.stmt import Store
from tilewright.ir.visit import stores
from tilewright.lower.analysis.accesses import collect
from tilewright.lower.pipeline import lower
from tilewright.select.algorithm import Scheduled
from tilewright.target import Target
from tilewright.topi.operators.conv import Conv
from tilewright.verify.races import races

TARGET = Target.parse("llvm -arch=avx512")
FEATURES = frozenset(("avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"))
#: Channels, image, filter, stride: channels that are whole vectors, and that are not.
LAYERS = [(480, 14, 3, 1), (200, 14, 3, 1), (60, 28, 3, 1), (72, 56, 5, 2), (240, 28, 3, 2)]


def module(channels: int, size: int, kernel: int, stride: int) -> Module:
    problem = Conv(
        batch=1, channels=channels, height=size, width=size, kernel_h=kernel, kernel_w=kernel,
        stride=stride, padding=kernel // 2, dtype="float32", layout="NHWC",
    )  # fmt: skip
    choice = next(iter(select.options(problem, TARGET, "heuristic")))
    assert isinstance(choice.algorithm, Scheduled)
    template = choice.algorithm.template
    found = template.declare(problem, choice.config, te.var("n", most=problem.most_batch))
    return lower(template.schedule(found, choice.config), found.args, TARGET)


def lowered(*layer: int) -> Func:
    (func,) = module(*layer).funcs
    return func


def results(func: Func) -> list[Store]:
    """The statements that write the result."""
    return [s for s in stores(func.body) if s.buffer is func.params[2]]


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> list[System]:
    """Questions that went to the solver."""
    asked: list[System] = []
    solve = System.solve

    def counted(self: System) -> list[int] | None:
        asked.append(self)
        return solve(self)

    monkeypatch.setattr(System, "solve", counted)
    return asked


@pytest.mark.parametrize("layer", LAYERS)
def test_channels_last_layers_have_six_copies_of_their_tile_at_most(
    layer: tuple[int, int, int, int],
) -> None:
    # Rows inside the image and others, by columns of the left edge, the middle and the right edge.
    assert len(results(lowered(*layer))) <= 6


@pytest.mark.parametrize("layer", LAYERS)
def test_iterations_are_told_apart_once_for_all_copies(
    layer: tuple[int, int, int, int], solved: list[System]
) -> None:
    func = lowered(*layer)
    copies = len(results(func))
    kernel = collect(func)
    solved.clear()
    assert not list(races(kernel))
    pairs = copies * (copies + 1) // 2
    assert copies > 1
    assert len(solved) < pairs


def test_indices_of_long_loops_begin_with_what_they_have_in_common() -> None:
    lines = generate(module(480, 14, 3, 1), 0, FEATURES, 512).text.splitlines()
    divisions = [line for line in lines if "div i64" in line or "rem i64" in line]
    hidden = [line for line in lines if 'asm ""' in line]
    assert len(divisions) <= 8, "a task's number is divided once"
    assert 0 < len(hidden) <= 40, "LLVM is not to take their sums apart"


@pytest.mark.parametrize("layer", LAYERS)
def test_a_vector_is_read_once_for_all_that_it_is_multiplied_by(
    layer: tuple[int, int, int, int],
) -> None:
    text = generate(module(*layer), 0, FEATURES, 512).text
    products = text.count(" = fmul ")
    reads = text.count(" = load <16 x float>") + text.count("llvm.masked.load.v16f32.p0(ptr %")
    assert products > 100
    assert reads < 2.3 * products, "one of the two is the sum's"
    assert text.count("icmp slt <16 x i32>") <= 8, "a tile's vectors have one mask"
    assert len(text.splitlines()) < 10 * products


def test_a_loop_is_no_copy_of_another_function() -> None:
    text = generate(module(480, 14, 3, 1), 0, FEATURES, 512).text
    heads = [line for line in text.splitlines() if line.startswith("define internal i32")]
    assert len(heads) == 2, "the kernel, and the body of its parallel loop"
    assert all("noinline" in head for head in heads), "LLVM would optimise each of them twice"


def test_addresses_are_not_sums_of_parts_of_a_division() -> None:
    text = generate(module(200, 14, 3, 1), 0, FEATURES, 512).text
    body = (
        text.partition("define internal i32 @parallel.1.body")[2].partition("\n}")[0].splitlines()
    )
    divided = [line.split()[0] for line in body if "div i64" in line or "rem i64" in line]
    sums = [line for line in body if any(f"= {op}" in line for op in ("mul", "add", "getelement"))]
    assert divided
    assert sums
    assert not [line for line in sums for part in divided if f" {part}," in line]
