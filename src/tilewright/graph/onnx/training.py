"""ONNX's steps of optimizers: new values of parameters, by their gradients and what was kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.graph.builder import cast, constant
from tilewright.graph.onnx.operation import Operation
from tilewright.graph.value import Value

#: From a parameter, its gradient and what is kept of earlier steps to the new ones of these.
_Step = Callable[[Operation, tuple[Value, ...]], tuple[Value, ...]]


def _each(kept: int, step: _Step) -> Callable[[Operation], tuple[Value, ...]]:
    """A step of each of several parameters, of which ``kept`` tensors are kept."""

    def convert(n: Operation) -> tuple[Value, ...]:
        given = [n[k] for k in range(2, len(n.inputs))]
        count = len(given) // (2 + kept)
        if len(given) != count * (2 + kept) or not count:
            raise n.error(f"{len(given)} operands are not {2 + kept} for each parameter")
        rows = [step(n, tuple(given[k::count])) for k in range(count)]
        return tuple(x for column in zip(*rows, strict=True) for x in column)

    return convert


def _gradient(n: Operation, x: Value, gradient: Value) -> Value:
    """With that of half the square of the parameter, by a factor."""
    factor = float(n.attribute("norm_coefficient", 0.0))
    return n("add", n("multiply", x, factor), gradient) if factor else gradient


def _mixed(n: Operation, old: Value, keep: float, new: Value, take: float) -> Value:
    return n("add", n("multiply", old, keep), n("multiply", new, take))


def _count(n: Operation) -> Value:
    """The number of the step, as a real number."""
    return cast(n[1], n[0].dtype)


def _adagrad(n: Operation, given: tuple[Value, ...]) -> tuple[Value, ...]:
    x, gradient, squares = given
    g = _gradient(n, x, gradient)
    decay = n("multiply", _count(n), float(n.attribute("decay_factor", 0.0)))
    rate = n("divide", n[0], n("add", decay, 1.0))
    squares = n("add", squares, n("multiply", g, g))
    root = n("add", n("sqrt", squares), float(n.attribute("epsilon", 1e-6)))
    return n("subtract", x, n("divide", n("multiply", g, rate), root)), squares


def _adam(n: Operation, given: tuple[Value, ...]) -> tuple[Value, ...]:
    x, gradient, mean, squares = given
    alpha, beta = float(n.attribute("alpha", 0.9)), float(n.attribute("beta", 0.999))
    g, count = _gradient(n, x, gradient), _count(n)
    mean = _mixed(n, mean, alpha, g, 1 - alpha)
    squares = _mixed(n, squares, beta, n("multiply", g, g), 1 - beta)
    root = n("add", n("sqrt", squares), float(n.attribute("epsilon", 1e-6)))
    # Both began at zero: as if what was kept had been there from the start.
    rest = [n("subtract", 1.0, n("power", constant(b, count.dtype), count)) for b in (beta, alpha)]
    started = n("greater", n[1], 0)
    rest = [n("where", started, r, constant(1, r.dtype)) for r in rest]
    rate = n("divide", n("multiply", n[0], n("sqrt", rest[0])), rest[1])
    new = n("subtract", x, n("multiply", n("divide", mean, root), rate))
    post = float(n.attribute("norm_coefficient_post", 0.0))
    return n("multiply", new, 1 - post) if post else new, mean, squares


def _momentum(n: Operation, given: tuple[Value, ...]) -> tuple[Value, ...]:
    x, gradient, momentum = given
    alpha, g = float(n.attribute("alpha")), _gradient(n, x, gradient)
    beta, one = (constant(v, g.dtype) for v in (n.attribute("beta"), 1))
    take = n("where", n("greater", n[1], 0), beta, one)
    momentum = n("add", n("multiply", momentum, alpha), n("multiply", g, take))
    mode, step = n.attribute("mode").decode(), momentum
    if mode not in ("standard", "nesterov"):
        raise n.error(f"there is no mode {mode!r}")
    if mode == "nesterov":
        step = n("add", g, n("multiply", momentum, alpha))
    return n("subtract", x, n("multiply", step, n[0])), momentum


CONVERTERS: dict[str, Callable[[Operation], Any]] = {
    "ai.onnx.preview.training.Adagrad": _each(1, _adagrad),
    "ai.onnx.preview.training.Adam": _each(2, _adam),
    "ai.onnx.preview.training.Momentum": _each(1, _momentum),
}
