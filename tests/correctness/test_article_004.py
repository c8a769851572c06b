"""Article 004 runs: packing of data and filter, and the three kernels on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.support.articles import (
    ARCHITECTURES,
    GPUS,
    Article,
    assert_same_program,
    error,
    parse_2017,
    parse_script,
    spills,
)

from tilewright import tvm
from tilewright.ir.stmt import Store
from tilewright.ir.visit import walk

ARTICLE = Article("004")
KERNELS = ["bind", "unroll", "vectorize"]

#: (input channels, height and width, output channels): a layer of VGG-16, and small ones like it.
VGG = (256, 56, 256)
SMALL = (3, 8, 32)


def complete_tile_and_bind(s: Any, tensor: Any, y: Any, x: Any, y_factor: int) -> None:
    """The helper for two axes, which the article uses and does not show."""
    yo, xo, yi, xi = s[tensor].tile(y, x, y_factor, y_factor)
    s[tensor].bind(yo, tvm.thread_axis("blockIdx.y"))
    s[tensor].bind(xo, tvm.thread_axis("blockIdx.x"))
    s[tensor].bind(yi, tvm.thread_axis("threadIdx.y"))
    s[tensor].bind(xi, tvm.thread_axis("threadIdx.x"))


def declared(layer: tuple[int, int, int], stride: int = 1) -> dict[str, Any]:
    """The declaration, with the names that it takes for granted, and a schedule."""
    channels, size, filters = layer
    data = tvm.placeholder((1, channels, size, size), name="data")
    kernel = tvm.placeholder((filters, channels, 3, 3), name="kernel")
    names: dict[str, Any] = {
        "tvm": tvm,
        "tile_and_bind": complete_tile_and_bind,
        "data": data,
        "kernel": kernel,
        "data_pad": tvm.topi.nn.pad(data, (0, 0, 1, 1), name="data_pad"),
        "N": 1,
        "H_PAD": 1,
        "W_PAD": 1,
        "H_STR": stride,
        "W_STR": stride,
        "H_STRIDE": stride,
        "W_STRIDE": stride,
        "HCAT": 2,
        "WCAT": 2,
        "out_dtype": "float32",
    }
    ARTICLE.run("declaration", names)
    names["s"] = tvm.create_schedule(names["output"].op)
    names["s"][names["data_pad"]].compute_inline()
    return names


def scheduled(label: str, layer: tuple[int, int, int] = SMALL, stride: int = 1) -> dict[str, Any]:
    names = declared(layer, stride)
    ARTICLE.run("helper", names)
    ARTICLE.run(label, names)
    return names


def arguments(names: dict[str, Any]) -> list[Any]:
    return [names["data"], names["kernel"], names["output"]]


def run(names: dict[str, Any], target: str) -> None:
    """Build it, run it on fresh arrays, and hold it to NumPy."""
    rng = np.random.default_rng(0)
    x, w = (
        rng.standard_normal([int(e) for e in t.shape], dtype="float32")
        for t in arguments(names)[:2]
    )
    stride, size = names["H_STRIDE"], x.shape[2]
    wide = np.pad(x.astype("float64"), ((0, 0), (0, 0), (1, 1), (1, 1)))
    exact = sum(
        np.einsum("nchw,oc->nohw", wide[:, :, i : i + size : stride, j : j + size : stride], f)
        for (i, j), f in ((ij, w[:, :, ij[0], ij[1]]) for ij in np.ndindex(3, 3))
    )
    dev = tvm.device(target, 0)
    out = tvm.nd.array(np.full(exact.shape, np.nan, "float32"), dev)
    tvm.build(names["s"], arguments(names), target)(tvm.nd.array(x, dev), tvm.nd.array(w, dev), out)
    assert error(out.numpy(), exact) < 1e-5


@pytest.mark.parametrize("stride", [1, 2])
def test_the_declaration_runs_on_a_cpu(stride):
    run(declared(SMALL, stride), "llvm")


@pytest.mark.parametrize("target", GPUS)
@pytest.mark.parametrize("label", KERNELS)
def test_every_kernel_is_right(label, target):
    run(scheduled(label), target)


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("label", KERNELS)
def test_no_kernel_spills_registers(label, arch):
    names = scheduled(label, VGG)
    assert spills(names["s"], arguments(names), arch) == 0


@pytest.mark.parametrize("label", KERNELS)
def test_tiles_that_do_not_divide_the_channels(label):
    run(scheduled(label, (2, 8, 20), 2), "sim")


def test_the_printed_program_is_the_articles(golden):
    names = declared(VGG)
    s, conv = names["s"], names["conv"]
    n, c, h, w, vh, vw, vc = s[conv].op.axis
    s[conv].reorder(n, c, h, w, vh, *s[conv].op.reduce_axis, vw, vc)  # as its kernels do
    text = tvm.lower(s, arguments(names)).text("2017")
    golden(text)
    part = text[text.index("produce conv") : text.index("produce output_unpack")]
    assert_same_program(parse_2017(part), parse_2017(ARTICLE.ir["conv"]))


@pytest.mark.parametrize("label", KERNELS)
def test_both_forms_of_print_say_the_same(label, golden, capsys):
    names = scheduled(label, VGG)
    ARTICLE.run("print", names)
    script = capsys.readouterr().out
    golden(script)
    old = tvm.lower(names["s"], arguments(names)).text("2017")
    assert_same_program(parse_script(script), parse_2017(old))


def test_the_third_kernel_multiplies_vectors_of_four():
    names = scheduled("vectorize")
    module = tvm.build(names["s"], arguments(names), "sim").kernel.module
    stores = [e for f in module.funcs for e in walk(f.body) if isinstance(e, Store)]
    conv = [e for e in stores if e.buffer.name == "conv"]
    assert {e.value.dtype for e in conv} == {"float32x4"}
