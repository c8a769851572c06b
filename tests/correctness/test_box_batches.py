"""One kernel of boxes for every batch, on sim and on Hopper."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tests.support.boxes import SMALL
from tests.support.tiles import HOPPER, TARGETS, check_kernel

import tilewright
from tilewright import te
from tilewright.codegen.cuda import generate
from tilewright.lower.pipeline import lower
from tilewright.runtime import ndarray
from tilewright.runtime.nvrtc import compile_cubin
from tilewright.topi import Conv
from tilewright.topi.operators.convolution import IMAGES
from tilewright.topi.pieces.box_tiles import BoxGradientTile, BoxProductTile
from tilewright.topi.sketches.warp_boxes import WarpBoxTile
from tilewright.topi.templates import TEMPLATES

#: The batches of calls; of the problem itself, for which tiles are counted, ``EXPECTED``.
BATCHES, EXPECTED = (1, 3, 65), 9
_ROWS, _TAPS = (64, 64, 2, 5), (64, 64, 3, 2)


def _conv(shape: tuple[int, ...], filters: int, kernel: int, **values: Any) -> Conv:
    kind = SMALL | {"padding": kernel // 2} | values
    return Conv.parse((EXPECTED, *shape[1:]), (filters, shape[1], kernel, kernel), 1, **kind)


_RESIDUAL = "bias+residual+relu"
#: Results by number, by boxes and by windows; staged, with a producer, in turns, in parts, with
#: what is added brought by TMA; clusters that share boxes, filters or sums; gradients.
CASES: list[tuple[str, Conv, Any]] = [
    ("gpu.box_products", _conv(_ROWS, 72, 1, epilogue=_RESIDUAL), BoxProductTile(64, 1, 1, 40, 3)),
    ("gpu.box_products", _conv(_ROWS, 128, 1, epilogue=_RESIDUAL),
     BoxProductTile(64, 1, 1, 64, 3, boxes=2, staged=32)),
    ("gpu.box_products", _conv(_ROWS, 64, 1, epilogue=_RESIDUAL),
     BoxProductTile(64, 1, 1, 64, 3, boxes=2, added=1)),
    ("gpu.box_products", _conv(_ROWS, 128, 1, epilogue=_RESIDUAL),
     BoxProductTile(64, 1, 1, 64, 3, boxes=2, staged=64, stores=1, added=1)),
    ("gpu.box_products", _conv(_TAPS, 72, 3), BoxProductTile(8, 4, 2, 72, 3, boxes=3)),
    ("gpu.box_products", _conv(_ROWS, 128, 1),
     BoxProductTile(64, 1, 1, 64, 3, boxes=2, boxes_to=2)),
    ("gpu.box_products", _conv(_ROWS, 64, 1),
     BoxProductTile(64, 1, 1, 64, 3, boxes=2, filters_to=2, staged=64)),
    ("gpu.box_products", _conv(_TAPS, 64, 3), BoxProductTile(8, 4, 2, 64, 3, filters_to=2)),
    ("gpu.box_products", _conv(_ROWS, 64, 1, dtype="int8", epilogue="dequantize+quantize(2.0,4)"),
     BoxProductTile(64, 1, 1, 64, 3, boxes=2)),
    ("gpu.box_products", _conv(_ROWS, 64, 1, dtype="float32", precision="tf32x3"),
     BoxProductTile(64, 1, 1, 64, 3)),
    ("gpu.whole_boxes", _conv(_TAPS, 72, 3, epilogue=_RESIDUAL),
     BoxProductTile(1, 8, 8, 40, 3, boxes=2)),
    ("gpu.whole_boxes", _conv(_ROWS, 64, 1), BoxProductTile(64, 1, 1, 64, 3, boxes=2, staged=64)),
    ("gpu.window_products", _conv(_TAPS, 64, 3), BoxProductTile(64, 1, 1, 64, 3, boxes=2)),
    ("gpu.window_splits", _conv(_TAPS, 72, 3), BoxProductTile(64, 1, 1, 24, 3, splits=3)),
    ("gpu.box_splits", _conv(_TAPS, 72, 3), BoxProductTile(16, 4, 2, 24, 3, splits=3)),
    ("gpu.box_clusters", _conv(_ROWS, 64, 1, epilogue=_RESIDUAL).replace(channels=128),
     BoxProductTile(64, 1, 1, 64, 2, splits=2)),
    ("gpu.warp_boxes", _conv((64, 16, 9, 8), 16, 3),
     WarpBoxTile(1, 2, 16, 16, 8, 2, 2, boxes=2, producer=1)),
    ("gpu.warp_boxes", _conv((64, 3, 6, 8), 64, 3),
     WarpBoxTile(1, 1, 16, 64, 8, 1, 3, boxes=2, producer=1)),
    ("gpu.box_products", _conv(_TAPS, 64, 3, pass_="dgrad", stride=2, padding=1),
     BoxProductTile(4, 4, 4, 64, 3)),
    ("gpu.box_products", _conv(_TAPS, 64, 3, pass_="dgrad", stride=2, padding=1),
     BoxProductTile(4, 4, 4, 64, 3, staged=64)),
    ("gpu.box_gradient", _conv(_TAPS, 64, 3, pass_="wgrad"), BoxGradientTile(64, 64, 3, 2)),
]  # fmt: skip


def _any_batch(name: str, p: Conv, tile: Any) -> tuple[Any, list[Any]]:
    return TEMPLATES[name].scheduled(p, tile, te.var("n", most=p.most_batch))


@pytest.mark.spread
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("name", "p", "tile"), CASES, ids=lambda x: str(x)[:60])
def test_one_kernel_is_right_for_every_batch(name: str, p: Conv, tile: Any, target: str) -> None:
    """It is proved for all of them as it is built, and divides by no extent that a call decides;
    without images results are empty, or a gradient by the filter of zeros."""
    kernel = tilewright.build(*_any_batch(name, p, tile), target)
    for func in kernel.module.funcs:
        assert not re.search(r"(//|%) \(?n\b", str(func))
    for batch in BATCHES:
        check_kernel(kernel, p.replace(batch=batch), target)
    types = [*p.inputs().items(), ("result", p.result)]
    place = target.split()[0].replace("sim", "cpu")
    without = IMAGES if p.pass_ == "wgrad" else (*IMAGES, "result")
    shapes = [(0, *t.shape[1:]) if n in without else t.shape for n, t in types]
    *given, result = (
        ndarray.array(np.full(e, np.nan, t.dtype), place)
        for e, (_, t) in zip(shapes, types, strict=True)
    )
    kernel(*given, result)
    assert not result.numpy().any()


def test_blocks_take_turns_until_all_boxes_are_done() -> None:
    """As many as for the batch that is expected, those of other channels apart where all of a block
    have the same; where none has several boxes, one for each."""
    p = _conv(_ROWS, 128, 1)
    for epilogue, boxes, launch in (
        ("", 2, ("blockIdx.x', 2)",)),
        ("batch_norm", 2, ("blockIdx.y', 2)", "blockIdx.x', 1)")),
        ("", 1, ("blockIdx.x', (n * 5 + 31) // 32 * 2)",)),
    ):
        tile = BoxProductTile(64, 1, 1, 64, 3, boxes=boxes)
        made = _any_batch("gpu.box_products", p.replace(epilogue=epilogue), tile)
        text = str(lower(*made, HOPPER).funcs[0])
        assert all(f"launch_thread('{axis}" in text for axis in launch)


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("case", [0, 1, 2, 3, 7, 9, 10, 12])
def test_they_compile_without_spills(case: int) -> None:
    module = lower(*_any_batch(*CASES[case]), HOPPER)
    cubin = compile_cubin(generate(module, "sm_90a").text, "sm_90a")
    assert not any(r.spills for r in cubin.resources.values())
