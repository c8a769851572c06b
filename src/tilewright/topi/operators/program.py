"""Several functions of tensors as one piece of work: stages of one schedule."""

from __future__ import annotations

import ast
import functools
import hashlib
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from tilewright import te
from tilewright.ir.dtype import FLOAT8, SCALARS
from tilewright.ir.errors import LanguageError, ProblemError
from tilewright.ir.expr import Reduce
from tilewright.te import ComputeOp, Tensor
from tilewright.topi.batch import Batch
from tilewright.topi.problem import Problem, TensorType

if TYPE_CHECKING:
    from tilewright.topi.declared import Declared

#: Types whose sums are in float32.
_NARROW = ("float16", "bfloat16", *FLOAT8)
#: Attributes that are shapes of results.
_SHAPES = ("newshape", "shape")
_OPERAND = re.compile(r"^(\w+)\[([0-9x]*)\]$")


class Call(NamedTuple):
    """A call of a function: its name, operands (names of tensors, and numbers), attributes."""

    function: str
    operands: tuple[str | int | float, ...]
    attributes: dict[str, Any]

    def __str__(self) -> str:
        given = [str(x) if isinstance(x, str) else repr(x) for x in self.operands]
        given += [f"{name}={value!r}" for name, value in self.attributes.items()]
        return f"{self.function}({', '.join(given)})"


@dataclass(frozen=True, kw_only=True)
class Program(Problem):
    """A composition of functions of :data:`~tilewright.topi.functions.FUNCTIONS`.

    Parameters
    ----------
    operands : the types of the inputs, which are called ``a0``, ``a1`` and so on.
    body : calls, the results of which are called ``t0``, ``t1`` and so on; the last is the result.
        A result without dimensions lies as one of a single element.

    The other parameters are those of :class:`~tilewright.topi.problem.Problem`; ``dtype`` is the
    type of the result.

    >>> p = Program(operands=("float32[2x3]", "float32[3]"), body=("add(a0, a1)", "relu(t0)"))
    >>> p.result
    TensorType(shape=(2, 3), dtype='float32')
    """

    NAMES: ClassVar[tuple[str, ...]] = ("program",)
    TYPES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        name: ("float32" if name in _NARROW else name,) for name in SCALARS[:-1]
    }

    operands: tuple[str, ...]
    body: tuple[str, ...]

    def check(self) -> None:
        """Raises :class:`ProblemError` for what is no composition of functions."""
        self.put("operands", tuple(self.operands))
        self.put("body", tuple(self.body))
        _, output = _declared(self.operands, self.body)
        self.put("dtype", str(output.dtype))
        self.put("accumulate", self.TYPES[self.dtype][0])
        if self.epilogue:
            raise ProblemError("a program has no epilogue: call its functions in the body")

    @staticmethod
    def of(operands: Sequence[TensorType], body: Sequence[Call]) -> Program:
        """The program of calls."""
        texts = tuple(f"{t.dtype}[{'x'.join(map(str, t.shape))}]" for t in operands)
        return Program(operands=texts, body=tuple(map(str, body)))

    # -- tensors -----------------------------------------------------------------------------

    def inputs(self) -> dict[str, TensorType]:
        """``a0``, ``a1`` and so on."""
        return {f"a{k}": operand(text) for k, text in enumerate(self.operands)}

    @property
    def result(self) -> TensorType:
        """Of the last call."""
        _, output = _declared(self.operands, self.body)
        shape = tuple(int(extent) for extent in output.shape)
        return TensorType(shape, str(output.dtype))

    def batch_of(self, images: int, among: Collection[str]) -> Batch | None:
        return Batch.of(self.shapes(), (n for n in self.inputs() if n in among), images)

    def at(self, batch: Batch, count: int) -> Program:
        types = self.inputs()
        made = Program.of(
            [TensorType(batch.shape(n, t.shape, count), t.dtype) for n, t in types.items()],
            self.calls_at(batch, count),
        )
        return self.replace(operands=made.operands, body=made.body)

    def calls_at(self, batch: Batch, count: Any) -> list[Call]:
        """The body where a batch has another count: shapes that it says are of as many."""
        known, batched = dict(self.declare().inputs), set(batch.inputs)
        found = []
        for k, call in enumerate(map(parse, self.body)):
            known[f"t{k}"] = made = apply(call, known)
            if not batched.isdisjoint(call.operands) and _first(made) % batch.count == 0:
                batched.add(f"t{k}")
                more = {
                    name: Batch(batch.count, (name,)).shape(name, call.attributes[name], count)
                    for name in _SHAPES if name in call.attributes
                }  # fmt: skip
                call = call._replace(attributes=call.attributes | more)
            found.append(call)
        return found

    def declare(self, given: Any = None) -> Declared:
        """The stages of all calls; ``given`` as for convolutions."""
        from tilewright.topi.declare import Given, placeholders
        from tilewright.topi.declared import Declared

        count, batch = (given.batch, given.of) if isinstance(given, Given) else (None, None)
        calls = map(parse, self.body) if batch is None else self.calls_at(batch, count)
        return Declared(self, *declare(placeholders(self, given), list(calls)))

    @property
    def flops(self) -> int:
        """Elements that its stages compute, and that its reductions read."""
        _, output = _declared(self.operands, self.body)
        total, waiting, seen = 0, [output], {output}
        while waiting:
            op = waiting.pop().op
            if not isinstance(op, ComputeOp):
                continue
            axes = [*op.axis, *(op.reduce_axis if isinstance(op.body[0], Reduce) else ())]
            total += math.prod(int(a.dom.extent) for a in axes if a.dom is not None)
            waiting += (new := set(op.inputs) - seen)
            seen |= new
        return total

    # -- names -------------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """The functions, and a digest of the whole."""
        names = "-".join(text.partition("(")[0] for text in self.body)[:80]
        digest = hashlib.sha256("\n".join((*self.operands, *self.body)).encode()).hexdigest()[:16]
        return "-".join([self.operator, names, digest, *self.common_key()])

    def __str__(self) -> str:
        texts = [f"t{k} = {text}" for k, text in enumerate(self.body)]
        return f"program of {', '.join(self.operands)}: {'; '.join(texts)}{self.common_text()}"


def operand(text: str) -> TensorType:
    """The type of a tensor that is written as ``float32[2x3]``; raises :class:`ProblemError`."""
    match = _OPERAND.match(text)
    if match is None or match[1] not in SCALARS:
        raise ProblemError(f"an operand is written like float32[2x3], got {text!r}")
    return TensorType(tuple(int(e) for e in match[2].split("x") if e), match[1])


class _Numbers(ast.NodeTransformer):
    """Puts in what has a name in place of digits."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        named = {"inf": math.inf, "nan": math.nan}
        return ast.Constant(named[node.id]) if node.id in named else node


def parse(text: str) -> Call:
    """A call as it is written; raises :class:`ProblemError` for anything else.

    >>> parse("clip(a0, low=0.0, high=6.0)")
    Call(function='clip', operands=('a0',), attributes={'low': 0.0, 'high': 6.0})
    >>> parse("constant_pad(a0, before=(1,), after=(0,), value=-inf)").attributes["value"]
    -inf
    """
    try:
        node = _Numbers().visit(ast.parse(text, mode="eval").body)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            raise ValueError("it is no call")
        operands = tuple(
            x.id if isinstance(x, ast.Name) else ast.literal_eval(x) for x in node.args
        )
        attributes = {str(k.arg): ast.literal_eval(k.value) for k in node.keywords}
    except (SyntaxError, ValueError) as error:
        raise ProblemError(f"a call is written like relu(t0), got {text!r}: {error}") from None
    return Call(node.func.id, operands, attributes)


def apply(call: Call, known: Mapping[str, Tensor]) -> Tensor:
    """The stages of a call; raises :class:`ProblemError` where it has no meaning."""
    from tilewright.topi.functions import FUNCTIONS

    function = FUNCTIONS.get(call.function)
    if function is None:
        raise ProblemError(f"there is no function {call.function!r}: {', '.join(FUNCTIONS)}")
    strange = [x for x in call.operands if isinstance(x, str) and x not in known]
    if strange:
        raise ProblemError(f"{call}: there is no tensor {', '.join(map(str, strange))}")
    given = [known[x] if isinstance(x, str) else x for x in call.operands]
    try:
        return function.compute(*given, **call.attributes)
    except (LanguageError, TypeError, ValueError, IndexError) as error:
        raise ProblemError(f"{call}: {error}") from error


def declare(inputs: dict[str, Tensor], body: Sequence[Call]) -> tuple[dict[str, Tensor], Tensor]:
    """The inputs by name, and the result of the last call."""
    known = dict(inputs)
    for k, call in enumerate(body):
        known[f"t{k}"] = apply(call, known)
    if len(known) == len(inputs):
        raise ProblemError("a program has at least one call")
    output = next(reversed(known.values()))
    if not output.ndim:
        scalar = output
        output = te.compute((1,), lambda _: scalar(), name="whole", tag="injective")
    return inputs, output


@functools.lru_cache(4096)
def _declared(operands: tuple[str, ...], body: tuple[str, ...]) -> tuple[dict[str, Tensor], Tensor]:
    types = [operand(text) for text in operands]
    inputs = {f"a{k}": te.placeholder(t.shape, t.dtype, name=f"a{k}") for k, t in enumerate(types)}
    return declare(inputs, [parse(text) for text in body])


def _first(x: Tensor) -> int:
    """The first extent of a tensor."""
    return int(x.shape[0]) if x.ndim else 1
