"""Graphs: a model whose shapes are all known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from tilewright.graph.value import Constant, Input, Node, Operand, Value, text_of


@dataclass(frozen=True)
class Graph:
    """What a model computes: ``outputs`` by name, of ``inputs``.

    >>> x = Input("x", (2, 3), "float32")
    >>> print(Graph("g", (x,), {"y": Node("relu", (Node("add", (x, 1.0)),))}))
    g(x: float32[2x3]):
      %0 = add(x, 1.0)  # float32[2x3]
      y = relu(%0)  # float32[2x3]
    """

    name: str
    inputs: tuple[Input, ...]
    outputs: Mapping[str, Value]

    @cached_property
    def values(self) -> tuple[Value, ...]:
        """All that the outputs depend on, operands before what reads them."""
        found: dict[Value, None] = {}
        waiting: list[tuple[Value, Iterator[Value]]] = []
        for output in self.outputs.values():
            waiting.append((output, _operands(output)))
            while waiting:
                value, rest = waiting[-1]
                following = next((x for x in rest if x not in found), None)
                if value in found or following is None:
                    found[value] = None
                    waiting.pop()
                else:
                    waiting.append((following, _operands(following)))
        return tuple(found)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes among :attr:`values`."""
        return tuple(v for v in self.values if isinstance(v, Node))

    @cached_property
    def constants(self) -> tuple[Constant, ...]:
        """The constants among :attr:`values`."""
        return tuple(v for v in self.values if isinstance(v, Constant))

    @cached_property
    def uses(self) -> Mapping[Value, int]:
        """How often each value is read, by nodes and as an output."""
        count = dict.fromkeys(self.values, 0)
        for node in self.nodes:
            for x in node.inputs:
                count[x] += 1
        for x in self.outputs.values():
            count[x] += 1
        return count

    def map(self, change: Callable[[Node, Node], Value]) -> Graph:
        """The graph with each node replaced, operands first: ``change`` is given the node as it
        was, and with its operands replaced."""
        made: dict[Value, Value] = {}
        for value in self.values:
            if isinstance(value, Node):
                new = tuple(made[x] if isinstance(x, Value) else x for x in value.operands)
                same = all(a is b for a, b in zip(new, value.operands, strict=True))
                now = value
                if not same:
                    now = Node(value.operator, _unshaped(value, new), value.attributes, value.name)
                made[value] = change(value, now)
            else:
                made[value] = value
        return Graph(self.name, self.inputs, {n: made[x] for n, x in self.outputs.items()})

    def exchange(self, found: Callable[[Node, Mapping[Value, int]], Value | None]) -> Graph:
        """The graph with what ``found`` gives for a node, with its operands replaced, in its place,
        where it gives anything. It receives how often values are read, those that it gave, too."""
        uses = dict(self.uses)

        def change(old: Node, now: Node) -> Value:
            uses[now] = uses[old]
            made = found(now, uses) or now
            uses[made] = uses[old]
            return made

        return self.map(change)

    @property
    def flops(self) -> int:
        """Additions and multiplications of all nodes."""
        return sum(node.problem.flops for node in self.nodes)

    def __str__(self) -> str:
        names: dict[Value, str] = {x: x.name for x in self.inputs}
        names |= {v: n for n, v in self.outputs.items() if isinstance(v, Node)}
        count = 0
        lines = [f"{self.name}({', '.join(f'{x.name}: {text_of(x.type)}' for x in self.inputs)}):"]
        for value in self.values:
            if isinstance(value, Constant):
                names[value] = _constant(value)
            elif isinstance(value, Node):
                if value not in names:
                    names[value] = f"%{count}"
                    count += 1
                lines.append(f"  {names[value]} = {_call(value, names)}  # {text_of(value.type)}")
        lines += [f"  {n} = {names[v]}" for n, v in self.outputs.items() if names[v] != n]
        return "\n".join(lines)


def _unshaped(node: Node, operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
    """The operands of a node; of a reshape what was there before all reshapes."""
    if node.operator == "reshape":
        while isinstance(operands[0], Node) and operands[0].operator == "reshape":
            operands = operands[0].operands
    return operands


def _operands(value: Value) -> Iterator[Value]:
    return iter(value.inputs if isinstance(value, Node) else ())


def _constant(value: Constant) -> str:
    if math.prod(value.shape) == 1:
        return f"{text_of(value.type)}({value.array.item()!r})"
    return f"{value.name or 'const'}: {text_of(value.type)}"


def _call(node: Node, names: Mapping[Value, str]) -> str:
    given = [names[x] if isinstance(x, Value) else repr(x) for x in node.operands]
    for name, value in node.attributes.items():
        text = "; ".join(map(str, value)) if name == "body" else repr(value)
        given.append(f"{name}={text}")
    return f"{node.operator}({', '.join(given)})"
