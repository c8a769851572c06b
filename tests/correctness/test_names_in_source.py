"""Tensors may be named as the functions that generated source calls, and texts stay small."""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import lshift, rshift
from typing import Any

import pytest

from tilewright import te
from tilewright.codegen import cuda, opencl
from tilewright.codegen.c import c_source
from tilewright.lower.pipeline import lower
from tilewright.te import Tensor

WRITTEN: dict[str, Callable[[Any], str]] = {
    "llvm": c_source,
    "opencl": lambda module: opencl.generate(module).text,
    "cuda": lambda module: cuda.generate(module, "sm_80").text,
}
SOURCES = pytest.mark.parametrize("target", WRITTEN)


def source(a: Tensor, element: Callable[[Any], Any], target: str) -> str:
    b = te.compute((8,), element, name="B")
    s = te.create_schedule(b.op)
    if target != "llvm":
        s[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
    return WRITTEN[target](lower(s, [a, b], target))


def all_functions(a: Tensor, i: Any) -> Any:
    x, y, z = (a[i, k] for k in range(3))
    if a.dtype.startswith("float") or a.dtype == "bfloat16":
        found = te.max(te.min(te.exp(x), te.power(y, z)), te.abs(x) + te.sigmoid(y))
        return found + te.rsqrt(te.floor(z)) + te.erf(x) + te.nearbyint(y)
    found = (x << y) + (x >> y) + te.floordiv(x, y) + te.floormod(x, y) + te.popcount(z)
    found += te.truncdiv(x, y) + te.truncmod(x, y) + te.floordiv(x, 7) + te.floormod(x, 7)
    return te.min(te.max(te.min(te.max(x, y), z), found), te.abs(x))


@SOURCES
@pytest.mark.parametrize("type", ["int32", "int64", "float16", "float32", "float64", "bfloat16"])
def test_no_parameter_has_the_name_of_a_function_that_is_called(type: str, target: str) -> None:
    def text(name: str) -> str:
        a = te.placeholder((8, 4), type, name=name)
        return source(a, lambda i: all_functions(a, i), target)

    body = text("A").split(" B) {")[1]
    called = set(re.findall(r"(?<!\w)([a-zA-Z]\w*)\(", body)) - {"if", "for"}
    assert len(called) >= 5
    taken = [name for name in called if re.search(rf"restrict(__)? {name},", text(name))]
    assert taken == []


@pytest.mark.parametrize(
    ("target", "type"),
    [("cuda", "uint32"), ("cuda", "float16"), ("opencl", "uint32"), ("opencl", "uint8")],
)
def test_no_parameter_has_the_name_of_a_vector(type: str, target: str) -> None:
    def text(name: str) -> str:
        a = te.placeholder((8,), type, name=name)
        b = te.compute((8,), lambda i: a[i], name="B")
        s = te.create_schedule(b.op)
        thread, lane = s[b].split(b.op.axis[0], factor=4)
        s[b].bind(thread, te.thread_axis("threadIdx.x"))
        s[b].vectorize(lane)
        return WRITTEN[target](lower(s, [a, b], target))

    body = text("A").split(" B) {")[1]
    words = set(re.findall(r"\b[a-z]\w*\d\b", body))
    assert words
    assert [w for w in words if re.search(rf"restrict(__)? {w},", text(w))] == []


@SOURCES
@pytest.mark.parametrize("type", ["int8", "int32", "uint32", "int64"])
@pytest.mark.parametrize(
    "f",
    [te.min, te.max, te.floordiv, te.floormod, te.truncdiv, te.truncmod, lshift, rshift],
)
def test_the_text_of_nested_operations_grows_with_their_number(
    f: Callable[[Any, Any], Any], type: str, target: str
) -> None:
    def length(depth: int, left: bool) -> int:
        a = te.placeholder((8, 64), type, name="A")

        def element(i: Any) -> Any:
            e = a[i, 0]
            for k in range(1, depth):
                e = f(e, a[i, k]) if left else f(a[i, k], e)
            return e

        return len(source(a, element, target))

    for left in (True, False):
        least, some, more = (length(depth, left) for depth in (4, 12, 20))
        assert more - some <= 1.5 * (some - least)
