"""ONNX's recurrent layers: products of all inputs at once, then a step after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.graph.builder import constant, reshape
from tilewright.graph.onnx.control import row_of
from tilewright.graph.onnx.operation import Operation
from tilewright.graph.onnx.products import matmul
from tilewright.graph.onnx.shapes import part
from tilewright.graph.value import Value

#: Activations by ONNX's name, with the values that they have by themselves.
_ACTIVATIONS: dict[str, tuple[str, dict[str, float]]] = {
    "sigmoid": ("sigmoid", {}), "tanh": ("tanh", {}), "relu": ("relu", {}),
    "softsign": ("softsign", {}), "softplus": ("softplus", {}), "elu": ("elu", {"alpha": 1.0}),
    "leakyrelu": ("leaky_relu", {"slope": 0.01}),
    "hardsigmoid": ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
}  # fmt: skip
#: The state of a direction: what a step gives, and the memory of an LSTM behind it.
State = tuple[Value, ...]
#: The next state, of the input's product, and the state.
Step = Callable[[Value, State], State]

#: Steps, which are nodes, and sequences, at most.
_MOST = 1 << 14


class _Layer:
    """One direction of a node: its weights, and its functions of gates."""

    def __init__(self, n: Operation, gates: int, direction: int, defaults: Sequence[str]) -> None:
        self.n, self.gates = n, gates
        self.w, self.r = (self.of(n[k], direction) for k in (1, 2))
        self.hidden = self.r.shape[-1]
        if self.w.shape[0] != gates * self.hidden or self.r.shape != self.w.shape[:1] + (
            self.hidden,
        ):
            raise n.error(f"weights of {self.w.shape} and {self.r.shape} for {gates} gates")
        self.bias, self.own_bias = None, None
        if n.has(3):
            both = self.of(n[3], direction)
            half = gates * self.hidden
            self.bias, self.own_bias = (self.columns(both, k, 1, half) for k in (0, 1))
        names = [x.decode().lower() for x in n.attribute("activations", [])] or [
            x.lower() for x in defaults
        ] * (direction + 1)
        self.names = names[direction * len(defaults) :][: len(defaults)]
        strange = [x for x in self.names if x not in _ACTIVATIONS]
        values = "activation_alpha" in n.attributes or "activation_beta" in n.attributes
        if strange or values or len(self.names) < len(defaults):
            raise n.error(f"its activations {', '.join(names)}, with values, are not supported")

    def of(self, x: Value, direction: int) -> Value:
        """What is of a direction."""
        return row_of(self.n, x, 0, direction)

    def columns(self, x: Value, k: int, count: int = 1, size: int = 0) -> Value:
        """The part of a gate, in the last dimension."""
        size = size or self.hidden
        begin, shape = [0] * x.rank, list(x.shape)
        begin[-1], shape[-1] = k * size, count * size
        return part(self.n, x, begin, [1] * x.rank, shape)

    def product(self, x: Value, weights: Value, bias: Value | None) -> Value:
        """``x`` times weights, whose rows are of results."""
        found = matmul(self.n, x, self.n("transpose", weights, axes=(1, 0)))
        return found if bias is None else self.n("add", found, bias)

    def gate(self, k: int, *terms: Value) -> Value:
        """An activation of a sum."""
        n, total = self.n, terms[0]
        for x in terms[1:]:
            total = n("add", total, x)
        if (limit := n.attribute("clip")) is not None:
            total = n("clip", total, low=-float(limit), high=float(limit))
        function, values = _ACTIVATIONS[self.names[k]]
        return n(function, total, **values)

    def rows(self, weights: Value, k: int, count: int = 1) -> Value:
        """The weights of gates."""
        shape = [count * self.hidden, *weights.shape[1:]]
        begin = [k * self.hidden] + [0] * (weights.rank - 1)
        return part(self.n, weights, begin, [1] * weights.rank, shape)


def _lstm(n: Operation, direction: int) -> tuple[_Layer, Step]:
    layer = _Layer(n, 4, direction, ("Sigmoid", "Tanh", "Tanh"))
    peep = layer.of(n[7], direction) if n.has(7) else None
    coupled = bool(n.attribute("input_forget", 0))

    def step(given: Value, state: State) -> State:
        h, c = state
        sums = n("add", given, layer.product(h, layer.r, layer.own_bias))

        def gate(k: int, which: int, memory: Value, place: int) -> Value:
            terms = [layer.columns(sums, k)]
            if peep is not None:
                terms.append(n("multiply", memory, layer.columns(peep, place)))
            return layer.gate(which, *terms)

        i = gate(0, 0, c, 0)
        f = n("subtract", constant(np.ones((1,) * i.rank, i.dtype)), i) if coupled else gate(
            2, 0, c, 2
        )  # fmt: skip
        c = n("add", n("multiply", f, c), n("multiply", i, layer.gate(1, layer.columns(sums, 3))))
        return n("multiply", gate(1, 0, c, 1), layer.gate(2, c)), c

    return layer, step


def _gru(n: Operation, direction: int) -> tuple[_Layer, Step]:
    layer = _Layer(n, 3, direction, ("Sigmoid", "Tanh"))
    after = bool(n.attribute("linear_before_reset", 0))
    gates, inner = layer.rows(layer.r, 0, 2), layer.rows(layer.r, 2)
    own = layer.own_bias
    bias = None if own is None else layer.columns(own, 0, 2)
    last = None if own is None else layer.columns(own, 2)

    def step(given: Value, state: State) -> State:
        (h,) = state
        sums = n("add", layer.columns(given, 0, 2), layer.product(h, gates, bias))
        z, r = (layer.gate(0, layer.columns(sums, k)) for k in (0, 1))
        if after:
            new = n("multiply", r, layer.product(h, inner, last))
        else:
            new = layer.product(n("multiply", r, h), inner, last)
        new = layer.gate(1, layer.columns(given, 2), new)
        return (n("add", new, n("multiply", z, n("subtract", h, new))),)

    return layer, step


def _rnn(n: Operation, direction: int) -> tuple[_Layer, Step]:
    layer = _Layer(n, 1, direction, ("Tanh",))

    def step(given: Value, state: State) -> State:
        return (layer.gate(0, given, layer.product(state[0], layer.r, layer.own_bias)),)

    return layer, step


def _recurrent(
    make: Callable[[Operation, int], tuple[_Layer, Step]], states: int
) -> Callable[[Operation], Any]:
    def convert(n: Operation) -> tuple[Value, ...]:
        direction = n.attribute("direction", b"forward").decode()
        back = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}.get(
            direction
        )
        if back is None or n[0].rank != 3 or n[1].rank != 3 or n[1].shape[0] != len(back):
            raise n.error(f"{direction!r} with weights of {n[1].shape} for inputs of {n[0].shape}")
        turned = bool(n.attribute("layout", 0))
        x = n("transpose", n[0], axes=(1, 0, 2)) if turned else n[0]
        count, batch, _ = x.shape
        if max(count, batch) > _MOST:
            raise n.error(f"{count} steps of {batch} sequences are more than {_MOST} of each")
        lengths = n.integers(4, "lengths") if n.has(4) else (count,) * batch
        if len(lengths) != batch or not all(0 <= e <= count for e in lengths):
            raise n.error(f"lengths {lengths} of a batch of {batch} with {count} steps")
        found = [
            _direction(n, x, *make(n, k), k, reverse, lengths, states, turned)
            for k, reverse in enumerate(back)
        ]
        order = (2, 0, 1, 3) if turned else (0, 1, 2, 3)
        rows = [_joined(n, [f[0][t] for f in found], 0) for t in range(count)]
        none = constant(np.zeros((0, len(back), batch, n[2].shape[-1]), x.dtype))
        whole = n("transpose", _joined(n, rows, 0) if rows else none, axes=order)
        last = [_joined(n, [f[1][s] for f in found], 1 if turned else 0) for s in range(states)]
        return whole, *last

    return convert


def _direction(
    n: Operation, x: Value, layer: _Layer, step: Step, k: int, reverse: bool,
    lengths: Sequence[int], states: int, turned: bool,
) -> tuple[list[Value], State]:  # fmt: skip
    """What the steps of a direction give, in the order of the inputs, and the last state."""
    count, batch, _ = x.shape
    products = layer.product(x, layer.w, layer.bias)
    zero = constant(np.zeros((batch, layer.hidden), x.dtype))
    state = tuple(
        (row_of(n, n[5 + s], 1 if turned else 0, k) if n.has(5 + s) else zero)
        for s in range(states)
    )
    rows: list[Value] = [zero] * count
    for t in reversed(range(count)) if reverse else range(count):
        new = step(row_of(n, products, 0, t), state)
        if (runs := np.array([t < e for e in lengths])).all():
            state, rows[t] = new, new[0]
            continue
        mask = constant(runs.reshape(-1, 1))
        state = tuple(n("where", mask, a, b) for a, b in zip(new, state, strict=True))
        rows[t] = n("where", mask, new[0], zero)
    return rows, state


def _joined(n: Operation, parts: Sequence[Value], axis: int) -> Value:
    """Tensors along a new dimension."""
    wide = [reshape(x, (*x.shape[:axis], 1, *x.shape[axis:])) for x in parts]
    return wide[0] if len(wide) == 1 else n("concatenate", *wide, axis=axis)


CONVERTERS: dict[str, Callable[[Operation], Any]] = {
    "GRU": _recurrent(_gru, 1), "LSTM": _recurrent(_lstm, 2), "RNN": _recurrent(_rnn, 1),
}  # fmt: skip
