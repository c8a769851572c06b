"""ONNX files: what they hold, checked before any of it is used."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tilewright.graph.errors import ModelError, in_memory
from tilewright.graph.graph import Graph
from tilewright.graph.onnx.convert import constant_of, convert, unsupported
from tilewright.graph.onnx.external import load_external
from tilewright.graph.onnx.late import Head, Tail, halves
from tilewright.graph.onnx.microsoft import DOMAIN, expanded
from tilewright.graph.onnx.narrow import NARROW
from tilewright.graph.onnx.types import dtype_of
from tilewright.graph.signature import Parameter
from tilewright.graph.value import Constant, Value
from tilewright.ir.errors import TargetError

#: The oldest set of operators whose broadcasting is NumPy's.
OLDEST = 7


class OnnxModel:
    """A model as a file has it: its inputs, whose shapes may be open, and its graph for each.

    Parameters
    ----------
    source : a path, or the file's contents.

    Raises :class:`ModelError` for what is no model, for operators that are not supported, all of
    them at once, and for data that lies outside of the folder of the file.
    """

    def __init__(self, source: str | Path | bytes) -> None:
        with in_memory("the model" if isinstance(source, bytes) else str(source)):
            proto, folder = _read(source)
            load_external(proto, folder)
            proto = _inlined(expanded(proto))
        self._proto, self.graph_proto = proto, proto.graph
        self.opset = next((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), 1)
        if self.opset > (newest := _onnx().defs.onnx_opset_version()):
            raise ModelError(f"the model is of opset {self.opset}: onnx here knows up to {newest}")
        if missing := unsupported(self.graph_proto):
            hint = "export the model without them, or cut it before and after them"
            if any(kind.startswith(f"{DOMAIN}.") for kind in missing):
                hint = "those of ONNX Runtime are of its optimizer: give the model as it was before"
            raise ModelError(f"operators that are not supported: {', '.join(missing)}; {hint}")
        if self.opset < OLDEST and (changed := _changed(self.graph_proto, self.opset)):
            raise ModelError(
                f"the model is of opset {self.opset}, in which {', '.join(changed)} mean something "
                f"else than since {OLDEST}: convert it with onnx.version_converter"
            )
        if self.graph_proto.sparse_initializer:
            raise ModelError("sparse initializers are not supported")
        initialized = {t.name for t in self.graph_proto.initializer}
        self.inputs = tuple(
            _parameter(x) for x in self.graph_proto.input if x.name not in initialized
        )
        self.outputs = tuple(x.name for x in self.graph_proto.output)
        for what, names in (("inputs", [p.name for p in self.inputs]), ("outputs", self.outputs)):
            if twice := sorted({x for x in names if names.count(x) > 1}):
                raise ModelError(f"several {what} are called {', '.join(twice)}")
        self.name = self.graph_proto.name or "model"

    @cached_property
    def constants(self) -> Mapping[str, Constant]:
        """The initializers by name."""
        return {t.name: constant_of(t) for t in self.graph_proto.initializer}

    def to_bytes(self) -> bytes:
        """The model as the contents of a file, with what lay in other files; raises
        :class:`ModelError` for one of more than 2 GiB, which ONNX does not write."""
        try:
            data: bytes = self._proto.SerializeToString()
        except Exception as error:  # protobuf's own, of either implementation
            raise ModelError(f"the model {self.name} cannot be written: {error}") from None
        return data

    def graph(self, inputs: Iterable[Value]) -> Graph:
        """The graph of inputs whose shapes are known, in the order of :attr:`inputs`; one whose
        data is needed is a constant."""
        return convert(self.graph_proto, self.opset, self.constants, inputs)

    def halves(self, inputs: Sequence[Value]) -> tuple[Head, Tail] | None:
        """The model as one that is compiled, and what NumPy computes of its outputs, where shapes
        depend on data; None where they do not, or where that is more than NumPy should compute."""
        return halves(self, inputs)


def _onnx() -> Any:
    try:
        import onnx
    except ImportError:
        raise TargetError("models are read with onnx: pip install 'tilewright[onnx]'") from None
    return onnx


def _read(source: str | Path | bytes) -> tuple[Any, Path | None]:
    onnx = _onnx()
    data, folder, name = source, None, "the model"
    if not isinstance(source, bytes):
        path = Path(source)
        name, folder = str(path), path.resolve().parent
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ModelError(f"{path} cannot be read: {error.strerror}") from None
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except Exception as error:  # protobuf's own, of either implementation
        raise ModelError(f"{name} is no ONNX model: {error}") from None
    if not proto.graph.output:
        raise ModelError(f"{name} is no ONNX model: it has no graph with an output")
    if not all(isinstance(x, str) for x in _texts(proto)):
        raise ModelError(f"{name} is no ONNX model: it has names that are no text")
    return proto, folder


def _texts(message: Any) -> Iterator[Any]:
    """The texts in a message but documentation; protobuf gives bytes for what is no UTF-8."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_STRING and field.name != "doc_string":
            yield from (value,) if isinstance(value, (str, bytes)) else value
        elif field.message_type is not None:
            for inner in (value,) if hasattr(value, "ListFields") else value:
                yield from _texts(inner)


def _changed(graph: Any, opset: int) -> list[str]:
    """The operators that have changed between an old opset and the oldest."""
    from onnx import defs

    def since(kind: str, version: int) -> int:
        return int(defs.get_schema(kind, max_inclusive_version=version).since_version)

    kinds = sorted({node.op_type for node in graph.node if node.domain in ("", "ai.onnx")})
    if opset < 1:
        return kinds
    try:
        return [kind for kind in kinds if since(kind, opset) != since(kind, OLDEST)]
    except defs.SchemaError:  # one that came later
        return kinds


def _inlined(proto: Any) -> Any:
    """The model without functions of its own, and with what operators that are not converted are
    made of, where ONNX says that they are made of others."""
    from onnx.inliner import inline_local_functions, inline_selected_functions

    if proto.functions:
        try:
            proto = inline_local_functions(proto)
        except Exception as error:
            raise ModelError(f"the functions of the model cannot be inlined: {error}") from None
    # What onnx cannot do it says by several kinds of errors; the model is refused then.
    with contextlib.suppress(Exception):
        tried: set[str] = set()
        while new := set(unsupported(proto.graph)) - tried:  # also what functions are made of
            tried |= new
            names = [(domain, kind) for domain, _, kind in (n.rpartition(".") for n in new)]
            proto = inline_selected_functions(_typed(proto), names, inline_schema_functions=True)
    return proto


def _typed(proto: Any) -> Any:
    """The model with a type for each value, as inlining asks for: of initializers too, and of
    operands that are left out, which have an empty name."""
    from onnx import helper, shape_inference

    known = {x.name for x in (*proto.graph.input, *proto.graph.value_info)}
    proto.graph.value_info.append(helper.make_tensor_value_info("", 1, []))
    for t in proto.graph.initializer:
        if t.name not in known:
            info = helper.make_tensor_value_info(t.name, t.data_type, t.dims)
            proto.graph.value_info.append(info)
    return shape_inference.infer_shapes(proto)


def _parameter(x: Any) -> Parameter:
    # Of what is optional, the model is one in which it is given.
    found = x.type.optional_type.elem_type if x.type.HasField("optional_type") else x.type
    if not found.HasField("tensor_type"):
        raise ModelError(f"the input {x.name} is no tensor")
    kind = found.tensor_type
    shape: tuple[int | str, ...] | None = None
    if kind.HasField("shape"):
        shape = tuple(
            d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else (d.dim_param or "?")
            for d in kind.shape.dim
        )
    narrow = NARROW.get(kind.elem_type)
    also = () if narrow is None else (narrow.element,)
    return Parameter(x.name, dtype_of(kind.elem_type, x.name), shape, also)
