"""A depthwise convolution and what normalises its pixels are one kernel, where that is fast."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.graph.errors import ModelError
from tilewright.graph.graph import Graph
from tilewright.graph.passes.join_products import apart_takes, bytes_of, predicted
from tilewright.graph.value import Node, Value, text_of
from tilewright.target import Target
from tilewright.topi.gpu.conv_row_tiles import depthwise_time, suits_conv_rows
from tilewright.topi.operators.conv import Conv
from tilewright.topi.operators.conv_program import ConvProgram
from tilewright.topi.operators.program import Call


def join_rows(target: Target) -> Callable[[Graph], Graph]:
    """A pass: a program of the rows of a depthwise convolution's result, which nothing else reads,
    becomes one ``program_of_conv2d`` with that.

    >>> import numpy as np
    >>> from tilewright.graph.passes.make_programs import make_programs
    >>> from tilewright.graph.value import Constant, Input
    >>> x = Input("x", (1, 14, 14, 384), "float16")
    >>> w = Constant(np.ones((384, 1, 7, 7), "float16"), "w")
    >>> y = Node("conv2d", (x, w), {"groups": 384, "padding": 3, "layout": "NHWC"})
    >>> y = Node("divide", (y, Node("sum", (y,), {"axis": (3,), "keepdims": True})))
    >>> graph = make_programs(Graph("g", (x,), {"y": y}))
    >>> joined = join_rows(Target.parse("cuda -arch=sm_90a"))(graph)
    >>> [node.operator for node in joined.nodes]
    ['program_of_conv2d']

    Where two kernels are predicted to take less, as of large images, which tensor cores multiply,
    they stay apart. Behind programs, which normalise.
    """

    def run(graph: Graph) -> Graph:
        uses = dict(graph.uses)

        def change(old: Node, now: Node) -> Value:
            made = _joined(now, uses, target) or now
            uses[made] = uses[old]
            return made

        return graph.map(change)

    run.__name__ = "join_rows"
    return run


def _is_depthwise(x: Node) -> bool:
    return "conv" in x.operator and isinstance(x.problem, Conv) and x.problem.is_depthwise


def _joined(program: Node, uses: dict[Value, int], target: Target) -> Node | None:
    """The convolution of a program with it; None where there is none, or they are better apart."""
    if program.operator != "program":
        return None
    found = [x for x in program.inputs if isinstance(x, Node) and _is_depthwise(x)]
    if len(found) != 1 or uses.get(found[0], 1) > 1:
        return None
    (conv,) = found
    others = [x for x in program.inputs if x is not conv]
    given = {f"a{program.inputs.index(x)}": f"a{k}" for k, x in enumerate((conv, *others))}
    body = tuple(
        Call(c.function, tuple(given.get(str(x), x) for x in c.operands), c.attributes)
        for c in program.attributes["body"]
    )
    attributes = {**conv.attributes, "body": body}
    attributes["operands"] = tuple(text_of(x.type) for x in others)
    try:
        made = Node("program_of_conv2d", (*conv.operands, *others), attributes, program.name)
    except ModelError:  # of types or layouts that it has not
        return None
    p = made.problem
    if not isinstance(p, ConvProgram) or not suits_conv_rows(p):
        return None
    apart = depthwise_time(p.inner) + apart_takes(bytes_of(conv) + bytes_of(program))
    return made if predicted(p, target) < apart else None
