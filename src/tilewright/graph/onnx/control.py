"""ONNX's operators that hold graphs: decided, and loops unrolled, while a model is converted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.graph.builder import constant, reshape
from tilewright.graph.errors import NeedsData
from tilewright.graph.onnx.operation import Operation
from tilewright.graph.onnx.shapes import part
from tilewright.graph.value import Value

#: Converts a graph inside of a node, given its own inputs by name; the values of its outputs.
Run = Callable[[Any, Mapping[str, Value | None]], list[Value]]


def _if(n: Operation, run: Run) -> list[Value]:
    chosen = bool(n.array(0, "condition").reshape(-1)[0])
    return run(n.attribute("then_branch" if chosen else "else_branch"), {})


def _loop(n: Operation, run: Run) -> list[Value]:
    """As many copies of the body as there are iterations: the count is known, or the condition of
    each."""
    body = n.attribute("body")
    carried = [n[k] for k in range(2, len(n.inputs))]
    count = n.integers(0, "number of iterations")[0] if n.has(0) else None
    going = not n.has(1) or bool(n.array(1, "condition").reshape(-1)[0])
    names = [x.name for x in body.input]
    scans = len(body.output) - 1 - len(carried)
    if len(names) != 2 + len(carried) or scans < 0:
        raise n.error(f"its body has {len(names)} inputs and {len(body.output)} outputs")
    if count is None and not n.has(1) and not _stops(body):
        raise n.error("it never ends")
    rows: list[list[Value]] = [[] for _ in range(scans)]
    k = 0
    while going and (count is None or k < count):
        given = dict(zip(names, [constant(k, "int64"), constant(True), *carried], strict=True))
        condition, *results = run(body, given)
        carried = results[: len(carried)]
        for row, x in zip(rows, results[len(carried) :], strict=True):
            row.append(x)
        going = bool(_known(n, condition).reshape(-1)[0])
        k += 1
    return [*carried, *(_stacked(n, row, 0, body.output[1 + len(carried) + j])
                        for j, row in enumerate(rows))]  # fmt: skip


def _stops(body: Any) -> bool:
    """Whether the condition of a loop is more than what it was given."""
    made = {x for m in body.node if m.op_type != "Identity" for x in m.output}
    names = {m.output[0]: m.input[0] for m in body.node if m.op_type == "Identity" and m.input}
    name = body.output[0].name
    for _ in range(len(names)):
        name = names.get(name, name)
    return name in made


def _known(n: Operation, x: Value) -> np.ndarray[Any, Any]:
    from tilewright.graph.value import Constant

    if not isinstance(x, Constant):
        raise NeedsData(
            f"{n.kind} {n.name}: whether it goes on depends on the data of the model's inputs", x
        )
    return x.array


def _stacked(n: Operation, rows: Sequence[Value], axis: int, declared: Any) -> Value:
    """What the iterations gave, along a new dimension."""
    if not rows:
        from tilewright.graph.onnx.types import dtype_of

        kind = declared.type.tensor_type
        shape = [d.dim_value for d in kind.shape.dim]
        return constant(np.zeros((0, *shape), dtype_of(kind.elem_type, n)))
    if len({x.type for x in rows}) > 1:
        raise n.error("its iterations give tensors of several shapes or types")
    axis = n.axis(axis, rows[0].rank + 1)
    found = [reshape(x, (*x.shape[:axis], 1, *x.shape[axis:])) for x in rows]
    if 0 in found[0].shape:
        shape = list(found[0].shape)
        shape[axis] = len(found)
        return constant(np.zeros(shape, found[0].dtype))
    return found[0] if len(found) == 1 else n("concatenate", *found, axis=axis)


def _scan(n: Operation, run: Run) -> list[Value]:
    """A copy of the body for each row of the scanned operands."""
    if n.opset < 9:
        raise n.error("before opset 9 it is another operator, which is not supported")
    body, scanned = n.attribute("body"), n.attribute("num_scan_inputs")
    given = [n[k] for k in range(len(n.inputs))]
    states = len(given) - scanned
    outputs = len(body.output) - states
    if scanned < 1 or states < 0 or outputs < 0 or len(body.input) != len(given):
        raise n.error(f"{scanned} scanned operands of {len(given)}")
    carried, rows = given[:states], given[states:]

    def each(name: str, count: int) -> list[int]:
        found = list(n.attribute(name, [0] * count))
        if len(found) != count:
            raise n.error(f"{name} {tuple(found)} for {count} tensors")
        return found

    axes = [n.axis(a, x.rank) for a, x in zip(each("scan_input_axes", scanned), rows, strict=True)]
    lengths = {x.shape[a] for a, x in zip(axes, rows, strict=True)}
    if len(lengths) != 1:
        raise n.error(f"the scanned operands have {sorted(lengths)} rows")
    back, out_back = each("scan_input_directions", scanned), each("scan_output_directions", outputs)
    (length,) = lengths
    made: list[list[Value]] = [[] for _ in range(outputs)]
    for k in range(length):
        values = list(carried)
        for x, axis, reverse in zip(rows, axes, back, strict=True):
            values.append(row_of(n, x, axis, length - 1 - k if reverse else k))
        names = [x.name for x in body.input]
        results = run(body, dict(zip(names, values, strict=True)))
        carried = results[:states]
        for row, y, reverse in zip(made, results[states:], out_back, strict=True):
            row.insert(0 if reverse else len(row), y)
    places = each("scan_output_axes", outputs)
    return [*carried, *(_stacked(n, row, a, body.output[states + j])
                        for j, (row, a) in enumerate(zip(made, places, strict=True)))]  # fmt: skip


def row_of(n: Operation, x: Value, axis: int, k: int) -> Value:
    """Element ``k`` of a dimension, which is gone then."""
    begin, shape = [0] * x.rank, list(x.shape)
    begin[axis], shape[axis] = k, 1
    found = part(n, x, begin, [1] * x.rank, shape)
    return reshape(found, (*x.shape[:axis], *x.shape[axis + 1 :]))


def inner_graph(graph: Any, n: Operation, known: Mapping[str, Value | None]) -> list[Value]:
    """The values of a graph's outputs; raises for one that nothing makes."""
    found = [known.get(x.name) for x in graph.output]
    if any(x is None for x in found):
        names = ", ".join(x.name for x, v in zip(graph.output, found, strict=True) if v is None)
        raise n.error(f"nothing makes {names} of its graph")
    return [x for x in found if x is not None]


#: How each is converted, by ONNX's name.
CONTROL: dict[str, Callable[[Operation, Run], list[Value]]] = {
    "If": _if, "Loop": _loop, "Scan": _scan,
}  # fmt: skip
