"""ONNX's types of elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.graph.errors import ModelError
from tilewright.graph.onnx.narrow import NARROW

if TYPE_CHECKING:
    from tilewright.graph.onnx.operation import Operation

#: By the number of ``TensorProto.DataType``.
DTYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
    9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16",
    17: "float8_e4m3fn", 19: "float8_e5m2",
    **{number: kind.carrier for number, kind in NARROW.items()},
}  # fmt: skip


def dtype_of(number: int, where: Operation | str) -> str:
    """The type that elements of ONNX's have in a graph; raises :class:`ModelError` for one that we
    have no arithmetic for."""
    if number not in DTYPES:
        problem = f"elements of ONNX's type {number} are not supported"
        raise ModelError(f"{where}: {problem}") if isinstance(where, str) else where.error(problem)
    return DTYPES[number]
