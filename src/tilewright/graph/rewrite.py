"""Rewriting by tables of rules: what to find, what to put there, and where."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tilewright.graph.builder import build
from tilewright.graph.graph import Graph
from tilewright.graph.passes.own_outputs import owner
from tilewright.graph.value import Node, Operand, Value

#: What "product" in a pattern stands for: operators of problems that sum products.
PRODUCTS = frozenset({"conv1d", "conv2d", "conv3d", "gemm"})
_COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum"})
#: What all that read it may compute again.
_REPEATED = frozenset({"dequantize"})


@dataclass(frozen=True)
class Match:
    """Where a pattern was found: its variables, and the nodes behind its calls by their names."""

    root: Node
    variables: dict[str, Any] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.variables[name]


class Rule(NamedTuple):
    """One rewriting.

    Attributes
    ----------
    find : calls of operators, whose arguments are calls, variables and numbers; operands of sums
        and products match in either order. "product" is any of :data:`PRODUCTS`.
    put : calls of the same kind; values of attributes may be variables. An operator that was found,
        as "product" is, has its attributes.
    where : gives further variables, or None where the rule does not hold.

    Nodes inside of the pattern are read by it alone, so that nothing is computed twice, but for
    what costs nothing.
    """

    find: str
    put: str
    where: Callable[[Match], Mapping[str, Any] | None] = lambda _: {}


def rewrite(graph: Graph, rules: Sequence[Rule]) -> Graph:
    """The graph after all rules, from the operands up, until none applies.

    >>> from tilewright.graph.value import Input
    >>> x = Input("x", (2, 3), "float32")
    >>> g = Graph("g", (x,), {"y": Node("multiply", (Node("sigmoid", (x,)), x))})
    >>> print(rewrite(g, [Rule("multiply(x, sigmoid(x))", "silu(x)")]))
    g(x: float32[2x3]):
      y = silu(x)  # float32[2x3]
    """
    uses = dict(graph.uses)
    by_root: dict[str, list[Rule]] = {}
    for rule in rules:
        by_root.setdefault(_tree(rule.find).func.id, []).append(rule)  # type: ignore[attr-defined]

    def change(old: Node, now: Node) -> Value:
        made: Value = now
        while isinstance(made, Node):
            better = _once(made, by_root, uses)
            if better is None:
                break
            made = better
        # What stands in the place of another is read as often, beside where it was read already.
        uses[made] = uses[old] + (uses[made] - 1 if made in uses and made is not old else 0)
        return made

    return graph.map(change)


def _once(node: Node, by_root: Mapping[str, list[Rule]], uses: Mapping[Value, int]) -> Value | None:
    """What the first rule that applies puts in the place of a node; None where none does."""
    kinds = (node.operator, "product") if node.operator in PRODUCTS else (node.operator,)
    for rule in (r for kind in kinds for r in by_root.get(kind, ())):
        for match in _matches(_tree(rule.find), node, Match(node), uses, True):
            more = rule.where(match)
            if more is not None:
                made = _made(_tree(rule.put), {**match.variables, **more}, match, node.name)
                if isinstance(made, Value):
                    return made
    return None


@functools.cache
def _tree(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _matches(
    pattern: ast.expr, x: Operand, so_far: Match, uses: Mapping[Value, int], root: bool
) -> Iterator[Match]:
    """The ways in which an operand is what a pattern says."""
    match pattern:
        case ast.Name(name):
            if name not in so_far.variables:
                yield replace(so_far, variables={**so_far.variables, name: x})
            elif so_far.variables[name] is x or _same_number(so_far.variables[name], x):
                yield so_far
        case ast.Constant(value):
            if isinstance(x, (int, float)) and x == value:
                yield so_far
        case ast.Call(ast.Name(kind), args):
            if not isinstance(x, Node):
                return
            if not root and uses.get(x, 1) > 1 and kind not in _REPEATED:
                return
            if x.operator != kind and not (kind == "product" and x.operator in PRODUCTS):
                return
            if len(args) != len(x.operands):
                return
            orders = [x.operands, x.operands[::-1]] if kind in _COMMUTATIVE else [x.operands]
            for operands in orders:
                found = [replace(so_far, nodes={**so_far.nodes, kind: x})]
                for arg, operand in zip(args, operands, strict=True):
                    found = [f for m in found for f in _matches(arg, operand, m, uses, False)]
                yield from found


def _same_number(a: Any, b: Any) -> bool:
    return not isinstance(a, Value) and not isinstance(b, Value) and bool(a == b)


def _made(pattern: ast.expr, variables: Mapping[str, Any], found: Match, name: str) -> Any:
    match pattern:
        case ast.Name(variable):
            return variables[variable]
        case ast.Call(ast.Name(kind), args, keywords):
            operands = [_made(a, variables, found, "") for a in args]
            attributes = {str(k.arg): _made(k.value, variables, found, "") for k in keywords}
            if kind in found.nodes:
                known = found.nodes[kind]
                kind, attributes = known.operator, {**known.attributes, **attributes}
            return build(kind, *operands, name=name, **attributes)
    return ast.literal_eval(pattern)


def regroup(
    graph: Graph,
    groups: Sequence[Sequence[Node]],
    join: Callable[[Sequence[Node], Mapping[Value, Value]], Mapping[Value, Value]],
) -> Graph:
    """The graph with groups of nodes replaced, each at once: ``join`` gives what stands for them,
    of what stands for all that they read. Of nothing that a group reads another one of it is read
    first, but for views of its own nodes."""
    group_of = {node: group for group in groups for node in group}
    made: dict[Value, Value] = {}
    waiting = list(graph.outputs.values())
    while waiting:
        value = waiting[-1]
        group = group_of.get(value) if isinstance(value, Node) else None
        whole: Sequence[Value] = [value] if group is None else group
        needs = (x for v in whole if isinstance(v, Node) for x in v.inputs)
        missing = [] if value in made else [
            x for x in needs if x not in made and (group is None or owner(x) not in group)
        ]  # fmt: skip
        waiting += missing
        if missing:
            continue
        waiting.pop()
        if value in made:
            continue
        if group is not None:
            made |= join(group, made)
        elif isinstance(value, Node):
            given = tuple(made[x] if isinstance(x, Value) else x for x in value.operands)
            same = all(a is b for a, b in zip(given, value.operands, strict=True))
            made[value] = (
                value if same else Node(value.operator, given, value.attributes, value.name)
            )
        else:
            made[value] = value
    return Graph(graph.name, graph.inputs, {n: made[x] for n, x in graph.outputs.items()})
