"""Values: what a graph is made of. Each is immutable, and a node is the one value that it makes.

A graph is an expression, as those of ``te`` are, of whole tensors: a node points at its operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from tilewright.graph.errors import ModelError
from tilewright.ir.errors import ProblemError
from tilewright.topi.functions import FUNCTIONS
from tilewright.topi.operators.program import Call, Program, apply
from tilewright.topi.problem import OPERATORS, Problem, TensorType, operator

_T = TypeVar("_T")

#: Elements of a value, at most.
MOST = 1 << 33
#: A dimension: its extent, or its name where it is known only when the model runs.
Dim = int | str


class Value:
    """A tensor of a graph.

    Attributes
    ----------
    name : as in the model, for people; it need not be the only one.
    type : its shape and the type of its elements.
    """

    name: str
    type: TensorType

    @property
    def shape(self) -> tuple[int, ...]:
        """Its extents."""
        return self.type.shape

    @property
    def dtype(self) -> str:
        """The type of its elements."""
        return self.type.dtype

    @property
    def rank(self) -> int:
        """The number of its dimensions."""
        return len(self.type.shape)


class Input(Value):
    """What the caller gives."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: str) -> None:
        self.name, self.type = name, TensorType(tuple(shape), dtype)


class Constant(Value):
    """What is known, as an array that nobody writes to."""

    def __init__(self, array: np.ndarray[Any, Any], name: str = "") -> None:
        self.array = np.asarray(array)
        self.name, self.type = name, TensorType(self.array.shape, str(self.array.dtype))


#: A tensor, or a number in its place where a function is of elements.
Operand = Value | int | float


class Node(Value):
    """An operator and its operands.

    Attributes
    ----------
    operator : a function of :data:`~tilewright.topi.functions.FUNCTIONS`, "program" (several of
        them, in the attribute ``body``), or an operator of problems: "conv2d", "gemm".
    attributes : by name; those of an operator are the values of its problem.
    """

    def __init__(
        self,
        operator: str,
        operands: tuple[Operand, ...],
        attributes: Mapping[str, Any] = MappingProxyType({}),
        name: str = "",
    ) -> None:
        self.operator, self.operands, self.name = operator, operands, name
        self.attributes = MappingProxyType(dict(attributes))
        self.type = self._type()
        if math.prod(self.shape) > MOST:
            raise ModelError(f"{name}: {operator} makes {text_of(self.type)}: too many elements")

    @cached_property
    def inputs(self) -> tuple[Value, ...]:
        """The operands that are tensors."""
        return tuple(x for x in self.operands if isinstance(x, Value))

    @cached_property
    def problem(self) -> Problem:
        """The work, as selection, tuning and caches name it."""
        constant = tuple(isinstance(x, Constant) for x in self.inputs)
        return _kept((self._signature(), constant), self._problem)

    def _problem(self) -> Problem:
        types = [x.type for x in self.inputs]
        if self.operator == Program.NAMES[0]:
            return Program.of(types, self.attributes["body"])
        if self.operator in FUNCTIONS:
            return Program.of(types, [self.call])
        values = {"dtype": types[0].dtype, **self.attributes}
        problem = operator(self.operator).of_shapes(*(t.shape for t in types), **values)
        added = {name for step in problem.epilogue for name, _ in step.tensors}
        known = [isinstance(x, Constant) for x in self.inputs]
        names = zip(problem.inputs(), known, strict=True)
        fixed = tuple(name for name, constant in names if constant and name not in added)
        return problem.replace(constants=fixed) if fixed else problem

    @property
    def call(self) -> Call:
        """Of a function: its call, where the inputs are ``a0``, ``a1`` and so on."""
        names = iter(f"a{k}" for k in range(len(self.inputs)))
        given = tuple(next(names) if isinstance(x, Value) else x for x in self.operands)
        return Call(self.operator, given, dict(self.attributes))

    def _signature(self) -> tuple[str, ...]:
        """All that its type and its problem depend on, but for which operands are known."""
        types = [x.type if isinstance(x, Value) else x for x in self.operands]
        return self.operator, repr(types), repr(self.attributes)

    def _type(self) -> TensorType:
        try:
            if self.operator in FUNCTIONS:
                return _kept(self._signature(), lambda: function_type(self))
            if self.operator not in OPERATORS and self.operator != Program.NAMES[0]:
                raise ModelError(f"there is no operator {self.operator!r}")
            result = self.problem.result
        except ProblemError as error:
            types = ", ".join(text_of(x.type) for x in self.inputs)
            where = f"{self.name}: " if self.name else ""
            raise ModelError(f"{where}{self.operator} of {types}: {error}") from error
        shape = self.attributes.get("shape") if self.operator == Program.NAMES[0] else None
        return result if shape is None else TensorType(shape, result.dtype)


#: Types and problems by what they depend on: a graph has few different ones, and each pass
#: makes nodes of its own.
_KEPT: dict[Any, Any] = {}
_MOST_KEPT = 1 << 14


def _kept(key: Any, make: Callable[[], _T]) -> _T:
    found: _T | None = _KEPT.get(key)
    if found is None:
        found = make()
        if len(_KEPT) >= _MOST_KEPT:
            _KEPT.clear()
        _KEPT[key] = found
    return found


def function_type(node: Node) -> TensorType:
    """The type of what a function makes: read off its declaration."""
    from tilewright import te

    call = node.call
    known = {
        f"a{k}": te.placeholder(x.shape, x.dtype, name=f"a{k}") for k, x in enumerate(node.inputs)
    }
    made = apply(call, known)
    shape = tuple(int(extent) for extent in made.shape)
    return TensorType(shape, str(made.dtype))


def text_of(type: TensorType) -> str:
    """A type as it is written.

    >>> text_of(TensorType((2, 3), "float32"))
    'float32[2x3]'
    """
    return f"{type.dtype}[{'x'.join(map(str, type.shape))}]"
