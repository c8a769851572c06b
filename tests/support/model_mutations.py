"""Mistakes put into ONNX models: by what a model means, and anywhere in the message that it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.support.drawing import Dice

#: What stands in place of an integer.
INTEGERS = (0, -1, 1, 2, 3, 4, 7, 11, 16, 100, 1000, 2**16, 2**31 - 1, -(2**31), 2**31, 2**40,
            2**62, 2**63 - 1, -(2**63))  # fmt: skip
FLOATS = (0.0, -1.0, 1.0, 0.5, 1e-30, 3e38, float("inf"), float("nan"))
TEXTS = ("", "x", "y", "w", "none", "ai.onnx", "é" * 40, "a/b", "\n", "SAME_UPPER", "bilinear",
         "x" * 5000)  # fmt: skip
#: Where data beside a model may be said to lie: see ``tests/support/model_mutants.py``.
PATHS = ("../outside/secret.bin", "../model/w.bin", "/etc/passwd", "/dev/zero", "/proc/self/mem",
         "link.bin", "folder/secret.bin", "pipe", ".", "", "sparse.bin", "absent.bin", "w.bin\0x",
         "w.bin/w.bin", "{outside}/secret.bin", "x" * 5000, "./w.bin", "folder/../w.bin", "é.bin",
         "//etc/passwd", "..\\outside\\secret.bin", "loop.bin", "m.onnx")  # fmt: skip
#: Operators that a node may be made one of, beside those of the model.
KINDS = ("Einsum", "MatMul", "Squeeze", "Tile", "Concat", "Conv", "Loop", "If", "Gemm", "Softmax",
         "Reshape", "Identity", "NonZero", "LSTM", "Resize", "Nothing", "Scan", "Where", "Sum",
         "CastLike", "SequenceAt", "Attention", "CenterCropPad", "ScatterND", "Pad", "Slice",
         "Constant", "NonMaxSuppression", "TopK", "Split", "GridSample")  # fmt: skip


def graphs(graph: Any) -> Iterator[Any]:
    """A graph, and those inside of it."""
    yield graph
    for n in graph.node:
        for a in n.attribute:
            for inner in (a.g, *a.graphs):
                if inner.node:
                    yield from graphs(inner)


def _nodes(proto: Any) -> list[Any]:
    return [n for g in graphs(proto.graph) for n in g.node]


def _tensors(proto: Any) -> list[Any]:
    found = [t for g in graphs(proto.graph) for t in g.initializer]
    return found + [a.t for n in _nodes(proto) for a in n.attribute if a.type == a.TENSOR]


def names(proto: Any) -> list[str]:
    """Every name of a value."""
    found = [x for n in _nodes(proto) for x in (*n.input, *n.output)]
    return found + [t.name for t in (*proto.graph.initializer, *proto.graph.input)]


# -- by what a model means -----------------------------------------------------------------------


def edge(d: Dice, proto: Any) -> None:
    """A node reads another value: one of a later node makes a cycle."""
    n = d.pick(_nodes(proto))
    if n.input:
        n.input[d.number(0, len(n.input) - 1)] = d.pick([*names(proto), "", "absent"])


def result(d: Dice, proto: Any) -> None:
    """A node makes a value that another one makes, too, or nothing."""
    n = d.pick(_nodes(proto))
    if n.output:
        n.output[d.number(0, len(n.output) - 1)] = d.pick([*names(proto), "", "other"])


def kind(d: Dice, proto: Any) -> None:
    """A node is of another operator."""
    d.pick(_nodes(proto)).op_type = d.pick([*sorted({n.op_type for n in _nodes(proto)}), *KINDS])


def arity(d: Dice, proto: Any) -> None:
    """A node has more or fewer operands or results."""
    n = d.pick(_nodes(proto))
    which = n.input if d.chance(70) else n.output
    if d.chance(50) or not which:
        which.extend([d.pick(names(proto))] * d.pick([1, 1, 2, 30]))
    else:
        del which[d.number(0, len(which) - 1) :]


def attribute(d: Dice, proto: Any) -> None:
    """An attribute has another value, name or type, or is missing."""
    with_some = [n for n in _nodes(proto) if n.attribute]
    if not with_some:
        return
    n = d.pick(with_some)
    a = d.pick(n.attribute)
    match d.number(0, 6):
        case 0:
            n.attribute.remove(a)
        case 1:
            a.name = d.pick([b.name for m in with_some for b in m.attribute])
        case 2:
            a.type = d.number(0, 14)
        case 3:
            a.s = d.pick(TEXTS).encode()
        case 4 if a.ints:
            del a.ints[d.number(0, len(a.ints) - 1) :]
        case 5:
            n.attribute.add().CopyFrom(a)
        case _:
            a.i, a.f = d.pick(INTEGERS), d.pick(FLOATS)
            if a.ints:
                a.ints[d.number(0, len(a.ints) - 1)] = d.pick(INTEGERS)


def size(d: Dice, proto: Any) -> None:
    """A tensor has another dimension, type, or amount of data."""
    if not (tensors := _tensors(proto)):
        return
    t = d.pick(tensors)
    match d.number(0, 4):
        case 0 if t.dims:
            t.dims[d.number(0, len(t.dims) - 1)] = d.pick(INTEGERS)
        case 1:
            t.dims.extend([d.pick(INTEGERS)] * d.pick([1, 1, 2, 40]))
        case 2:
            t.data_type = d.number(0, 30)
        case 3:
            t.raw_data = t.raw_data[: d.pick([0, 1, 4, 7, 8, 30])]
        case _:
            t.raw_data += b"\0" * d.pick([1, 4, 8, 1000])


def number(d: Dice, proto: Any) -> None:
    """Integers that are data are others: shapes, axes, places."""
    whole = [t for t in _tensors(proto) if t.data_type == 7 and len(t.raw_data) >= 8]
    if whole:
        t = d.pick(whole)
        at = 8 * d.number(0, len(t.raw_data) // 8 - 1)
        new = d.pick(INTEGERS).to_bytes(8, "little", signed=True)
        t.raw_data = t.raw_data[:at] + new + t.raw_data[at + 8 :]


def signature(d: Dice, proto: Any) -> None:
    """An input or an output is of another shape, type or name, there twice, or not at all."""
    which = proto.graph.input if d.chance(70) else proto.graph.output
    if not which:
        return
    x = d.pick(which)
    dims = x.type.tensor_type.shape.dim
    match d.number(0, 6):
        case 0 | 1 if dims:
            d.pick(dims).dim_value = d.pick(INTEGERS)
        case 2:
            x.type.tensor_type.elem_type = d.number(0, 30)
        case 3:
            x.name = d.pick(names(proto))
        case 4:
            which.add().CopyFrom(x)
        case 5:
            which.remove(x)
        case _:
            dims.add().dim_param = d.pick(TEXTS)


def opset(d: Dice, proto: Any) -> None:
    """Another set of operators, several, or none."""
    match d.number(0, 3):
        case 0:
            del proto.opset_import[:]
        case 1:
            new = proto.opset_import.add()
            new.domain, new.version = d.pick(["", "ai.onnx", "own"]), d.pick(INTEGERS)
        case _ if proto.opset_import:
            versions = [*range(1, 28), 99, -1, 2**40]
            d.pick(proto.opset_import).version = d.pick(versions)
        case _:
            proto.ir_version = d.pick(INTEGERS)


def place(d: Dice, proto: Any) -> None:
    """Data is said to lie in a file, with an offset and a length that may not be those of it."""
    if not (tensors := _tensors(proto)):
        return
    t = d.pick(tensors)
    entries = {e.key: e for e in t.external_data}
    t.data_location = 1
    for key, values in (("location", PATHS), ("offset", INTEGERS), ("length", INTEGERS)):
        if key not in entries and (key == "location" or d.chance(30)):
            entries[key] = t.external_data.add()
            entries[key].key, entries[key].value = key, "w.bin" if key == "location" else "0"
        if key in entries and d.chance(60):
            entries[key].value = str(d.pick(values))
    if d.chance(20):
        del t.dims[:]
        t.dims.extend([d.pick(INTEGERS), d.pick(INTEGERS)])


def nest(d: Dice, proto: Any) -> None:
    """Graphs inside of graphs, a node's own attribute among them."""
    n = d.pick(_nodes(proto))
    depth = d.pick([1, 2, 5, 20])
    inner = type(proto.graph)()
    inner.CopyFrom(proto.graph)
    del inner.initializer[:], inner.input[:]
    for _ in range(depth):
        outer = type(proto.graph)()
        m = outer.node.add()
        m.op_type, m.output[:], m.input[:] = "If", ["y"], [d.pick(names(proto))]
        for name in ("then_branch", "else_branch"):
            a = m.attribute.add()
            a.name, a.type = name, 5
            a.g.CopyFrom(inner)
            if depth > 5:
                break
        outer.output.add().name = "y"
        inner = outer
    a = n.attribute.add()
    a.name, a.type = d.pick(["body", "then_branch", "else_branch"]), 5
    a.g.CopyFrom(inner)
    if d.chance(50):
        n.op_type = d.pick(["If", "Loop", "Scan"])


def function(d: Dice, proto: Any) -> None:
    """A function of the model's own, which may call itself."""
    f = proto.functions.add()
    f.name, f.domain = d.pick(["Own", "Relu"]), d.pick(["own", ""])
    f.input[:], f.output[:] = ["x"], ["y"]
    m = f.node.add()
    m.op_type, m.domain = d.pick(["Own", "Relu"]), d.pick(["own", ""])
    m.input[:], m.output[:] = ["x"], ["y"]
    f.opset_import.add().version = 17
    n = d.pick(_nodes(proto))
    n.op_type, n.domain = f.name, f.domain
    if d.chance(70):
        new = proto.opset_import.add()
        new.domain, new.version = "own", 1


def order(d: Dice, proto: Any) -> None:
    """Nodes, or initialisers, that are missing, doubled, or in another order."""
    g = d.pick(list(graphs(proto.graph)))
    which = g.node if d.chance(70) or not g.initializer else g.initializer
    if not which:
        return
    k = d.number(0, len(which) - 1)
    match d.number(0, 2):
        case 0:
            del which[k]
        case 1:
            which.add().CopyFrom(which[k])
        case _:
            kept = [type(x).FromString(x.SerializeToString()) for x in d.shuffled(which)]
            del which[:]
            which.extend(kept)


# -- anywhere ------------------------------------------------------------------------------------


def anywhere(d: Dice, proto: Any) -> None:
    """Some field of some message: another value, cleared, doubled, or one of another message."""
    message = proto
    while d.chance(85):
        inner = [v for f, v in message.ListFields() if f.message_type is not None]
        if not inner:
            break
        found = d.pick(inner)
        message = d.pick(found) if hasattr(found, "append") or hasattr(found, "add") else found
    fields = list(message.DESCRIPTOR.fields)
    present = [f for f, _ in message.ListFields()]
    f = d.pick(present) if present and d.chance(75) else d.pick(fields)
    value = getattr(message, f.name)
    if d.chance(15):
        message.ClearField(f.name)
    elif f.message_type is not None:
        target = value.add() if hasattr(value, "add") else value
        if hasattr(value, "add") and len(value) > 1:
            target.CopyFrom(d.pick(value))
        else:
            target.SetInParent()
    elif hasattr(value, "append"):
        if len(value) and d.chance(50):
            value[d.number(0, len(value) - 1)] = scalar(d, f)
        else:
            value.extend([scalar(d, f)] * d.pick([1, 1, 3, 2000]))
    else:
        setattr(message, f.name, scalar(d, f))


def scalar(d: Dice, f: Any) -> Any:
    """A value for a field."""
    match f.cpp_type:
        case f.CPPTYPE_INT32:
            return max(-(2**31), min(2**31 - 1, d.pick(INTEGERS)))
        case f.CPPTYPE_INT64:
            return d.pick(INTEGERS)
        case f.CPPTYPE_UINT32 | f.CPPTYPE_UINT64:
            return abs(d.pick(INTEGERS)) % 2**32
        case f.CPPTYPE_ENUM:
            return d.pick([v.number for v in f.enum_type.values])
        case f.CPPTYPE_FLOAT | f.CPPTYPE_DOUBLE:
            return d.pick(FLOATS)
    text = d.pick(TEXTS)
    return text if f.type == f.TYPE_STRING else text.encode()


#: How often each is taken, in parts of their sum.
MUTATIONS: dict[Callable[[Dice, Any], None], int] = {
    edge: 10, result: 4, kind: 8, arity: 6, attribute: 14, size: 10, number: 12, signature: 10,
    opset: 5, place: 6, nest: 3, function: 2, order: 4, anywhere: 16,
}  # fmt: skip
_ALL = [m for m, weight in MUTATIONS.items() for _ in range(weight)]


def mutate(d: Dice, data: bytes) -> tuple[bytes, list[str]]:
    """A model with one to three mistakes, or a file with bytes that are others; and what was
    done."""
    import onnx

    if d.chance(8):
        return damaged(d, data), ["bytes"]
    proto = onnx.load_from_string(data)
    done = []
    for _ in range(d.pick([1, 1, 1, 2, 3])):
        change = d.pick(_ALL)
        if proto.graph.node:
            change(d, proto)
        done.append(change.__name__)
    return bytes(proto.SerializeToString()), done


def damaged(d: Dice, data: bytes) -> bytes:
    """Bytes that are others, missing, doubled, or behind the end."""
    made = bytearray(data)
    at = d.number(0, len(made) - 1)
    match d.number(0, 4):
        case 0:
            del made[at:]
        case 1:
            del made[at : at + d.pick([1, 2, 8, 100])]
        case 2:
            made[at:at] = bytes(made[at : at + d.pick([1, 8, 100, 1000])])
        case 3:
            made += bytes(d.number(0, 255) for _ in range(d.pick([1, 4, 40])))
        case _:
            for _ in range(d.pick([1, 1, 2, 10])):
                made[d.number(0, len(made) - 1)] = d.number(0, 255)
    return bytes(made)
