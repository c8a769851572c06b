"""Expressions: a few immutable, hash-consed node types.

Build them with Python's operators or with :mod:`tilewright.ir.ops`, which promote types and fold
constants; the constructors here do neither. Read them with ``match``::

    match e:
        case Add(a, IntImm(_, 0)): ...
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

from tilewright.ir.dtype import DType, dtype
from tilewright.ir.errors import LanguageError, in_declaration
from tilewright.ir.node import Interned
from tilewright.ir.operand import Operand

if TYPE_CHECKING:
    from tilewright.ir.buffer import Buffer

BOOL = dtype("bool")
INT32 = dtype("int32")


def _index_type(t: DType) -> bool:
    """Whether indices may be of this type (vectors of them too)."""
    return t.kind == "int" and t.bits >= 32


class Expr(Operand, Interned):
    """A value; ``dtype`` is its type.

    ``exact`` tells index arithmetic from arithmetic on data. It holds of integers of 32 and 64 bits
    made of axes, extents and constants alone, and of conditions on such: these are what they are in
    integers without end, as ``lower/loops/index_width.py`` sees to. All other arithmetic wraps
    around in its type, operation by operation.
    """

    #: ``contents`` are the variables in it and the buffers that it reads, once somebody has asked.
    __slots__ = ("dtype", "exact", "contents")
    if TYPE_CHECKING:  # not annotations, which would make them fields of every node

        @property
        def dtype(self) -> DType: ...

        @property
        def exact(self) -> bool: ...

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        from tilewright.ir.text import expr_text  # it knows all nodes, so it imports them

        return expr_text(self)

    def same_as(self, other: object) -> bool:
        """Whether both are one node, that is, equal in structure."""
        return self is other

    def __bool__(self) -> bool:
        return Operand.__bool__(self)


class Var(Expr):
    """A scalar variable; each is distinct, whatever its name.

    A symbolic extent is at least ``least``, and at most ``most`` where that is not None: the host
    checks both.
    """

    __slots__ = ("name", "most", "least")
    __match_args__ = ("name",)
    name: str
    most: int | None
    least: int

    # A variable is itself and not its name: it bypasses the table of equal nodes.
    @staticmethod
    def make(
        name: str, type: str = "int32", most: int | None = None, least: int = 0, exact: bool = True
    ) -> Var:
        """A variable; not ``exact`` where it stands for what was read from memory."""
        node = object.__new__(Var)
        object.__setattr__(node, "name", name)
        object.__setattr__(node, "most", most)
        object.__setattr__(node, "least", least)
        t = dtype(type)
        object.__setattr__(node, "dtype", t)
        object.__setattr__(node, "exact", exact and (t.is_bool or _index_type(t)))
        return node

    def demand(self, least: int) -> None:
        """Raise :attr:`least` to what a declaration needs, before a program is made of it."""
        object.__setattr__(self, "least", max(self.least, least))

    @staticmethod
    def of(name: str, value: Expr) -> Var:
        """A variable that is to stand for ``value``."""
        return Var.make(name, value.dtype, exact=value.exact)

    def like(self, type: str | None = None) -> Var:
        """Another variable of the same kind and name, of another type where one is given."""
        return Var.make(self.name, type or self.dtype, exact=self.exact)

    @staticmethod
    def key(*args: Any) -> tuple[Any, ...]:
        raise TypeError("make variables with te.var(name) or Var.make(name, dtype)")

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a variable has identity and cannot be pickled")


class IntImm(Expr):
    """An integer (or bool) constant."""

    __slots__ = ("value",)
    __match_args__ = ("dtype", "value")
    dtype: DType
    value: int

    def _made(self) -> None:
        t = self.dtype
        object.__setattr__(self, "exact", t.is_bool or _index_type(t))

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return self.value

    __index__ = __int__

    def __float__(self) -> float:
        return float(self.value)


class FloatImm(Expr):
    """A floating-point constant; the value is kept in double precision."""

    __slots__ = ("value",)
    __match_args__ = ("dtype", "value")
    dtype: DType
    value: float

    def _made(self) -> None:
        object.__setattr__(self, "exact", False)

    @staticmethod
    def key(*args: Any) -> tuple[Any, ...]:
        return args[0], float(args[1]).hex()  # tells 0.0 from -0.0, and NaN equals itself

    def __float__(self) -> float:
        return self.value


class StringImm(Expr):
    """A string constant: an argument of a call."""

    __slots__ = ("value",)
    __match_args__ = ("value",)
    value: str

    def _made(self) -> None:
        object.__setattr__(self, "dtype", dtype("handle"))
        object.__setattr__(self, "exact", False)


class Binary(Expr):
    """An operation on two values of one type, which is also the type of the result."""

    __slots__ = ("a", "b")
    __match_args__ = ("a", "b")
    a: Expr
    b: Expr
    symbol: ClassVar[str] = "?"

    def _made(self) -> None:
        object.__setattr__(self, "dtype", self.a.dtype)
        object.__setattr__(self, "exact", self.a.exact and self.b.exact)


class Add(Binary):
    __slots__ = ()
    symbol = "+"


class Sub(Binary):
    __slots__ = ()
    symbol = "-"


class Mul(Binary):
    __slots__ = ()
    symbol = "*"


class Div(Binary):
    """Division of floating-point values."""

    __slots__ = ()
    symbol = "/"


class FloorDiv(Binary):
    __slots__ = ()
    symbol = "//"


class FloorMod(Binary):
    __slots__ = ()
    symbol = "%"


class TruncDiv(Binary):
    """Integer division that rounds towards zero, as in C."""

    __slots__ = ()


class TruncMod(Binary):
    """The remainder of :class:`TruncDiv`; its sign is that of the dividend."""

    __slots__ = ()


class Min(Binary):
    __slots__ = ()


class Max(Binary):
    __slots__ = ()


class BitAnd(Binary):
    __slots__ = ()
    symbol = "&"


class BitOr(Binary):
    __slots__ = ()
    symbol = "|"


class BitXor(Binary):
    __slots__ = ()
    symbol = "^"


class _Shift(Binary):
    """A shift of an index is exact where it is a product with a constant, or a quotient by one."""

    __slots__ = ()

    def _made(self) -> None:
        object.__setattr__(self, "dtype", self.a.dtype)
        by = self.b
        fixed = isinstance(by, IntImm) and 0 <= by.value < 31
        object.__setattr__(self, "exact", fixed and self.a.exact)


class Shl(_Shift):
    __slots__ = ()
    symbol = "<<"


class Shr(_Shift):
    __slots__ = ()
    symbol = ">>"


class Compare(Expr):
    """A comparison of two values of one type."""

    __slots__ = ("a", "b")
    __match_args__ = ("a", "b")
    a: Expr
    b: Expr
    symbol: ClassVar[str] = "?"

    def _made(self) -> None:
        object.__setattr__(self, "dtype", BOOL.with_lanes(self.a.dtype.lanes))
        object.__setattr__(self, "exact", self.a.exact and self.b.exact)


class EQ(Compare):
    __slots__ = ()
    symbol = "=="

    def __bool__(self) -> bool:
        if self.a is not self.b and in_declaration():
            Operand.__bool__(self)
        return self.a is self.b


class NE(Compare):
    __slots__ = ()
    symbol = "!="

    def __bool__(self) -> bool:
        if self.a is not self.b and in_declaration():
            Operand.__bool__(self)
        return self.a is not self.b


class LT(Compare):
    __slots__ = ()
    symbol = "<"


class LE(Compare):
    __slots__ = ()
    symbol = "<="


class GT(Compare):
    __slots__ = ()
    symbol = ">"


class GE(Compare):
    __slots__ = ()
    symbol = ">="


class And(Binary):
    """Both; the second is evaluated only where the first holds."""

    __slots__ = ()


class Or(Binary):
    """Either; the second is evaluated only where the first does not hold."""

    __slots__ = ()


class Not(Expr):
    __slots__ = ("a",)
    __match_args__ = ("a",)
    a: Expr

    def _made(self) -> None:
        object.__setattr__(self, "dtype", self.a.dtype)
        object.__setattr__(self, "exact", self.a.exact)


class Cast(Expr):
    """A conversion of value; floats to integers truncate, integers to narrower ones wrap around."""

    __slots__ = ("value",)
    __match_args__ = ("dtype", "value")
    dtype: DType
    value: Expr

    def _made(self) -> None:
        t, value = self.dtype, self.value
        keeps = value.exact and _index_type(t) and t.bits >= value.dtype.bits
        object.__setattr__(self, "exact", keeps)


class Fitted(Cast):
    """A conversion of an index to a narrower type that holds its value wherever it is used."""

    __slots__ = ()

    def _made(self) -> None:
        object.__setattr__(self, "exact", self.value.exact)


class Select(Expr):
    """One of two values that are both evaluated, so neither may read out of bounds."""

    __slots__ = ("condition", "on_false", "on_true")
    __match_args__ = ("condition", "on_true", "on_false")
    condition: Expr
    on_true: Expr
    on_false: Expr

    def _made(self) -> None:
        if self.on_true.dtype is not self.on_false.dtype:
            raise LanguageError(
                f"a selection between {self.on_true!r}, which is of {self.on_true.dtype}, and "
                f"{self.on_false!r}, which is of {self.on_false.dtype}: cast one of them"
            )
        object.__setattr__(self, "dtype", self.on_true.dtype)
        both = self.on_true.exact and self.on_false.exact
        object.__setattr__(self, "exact", both and self.condition.exact)


class IfThenElse(Select):
    """One of two values, of which only the chosen one is evaluated."""

    __slots__ = ()


class Load(Expr):
    """An element of a buffer, or a vector of them where an index is a vector.

    A masked vector load (``predicate`` not None) gives zero in the lanes that are off.
    """

    __slots__ = ("buffer", "indices", "predicate")
    __match_args__ = ("buffer", "indices", "predicate")
    buffer: Buffer
    indices: tuple[Expr, ...]
    predicate: Expr | None

    def _made(self) -> None:
        lanes = max((i.dtype.lanes for i in self.indices), default=1)
        object.__setattr__(self, "dtype", self.buffer.dtype.with_lanes(lanes))
        object.__setattr__(self, "exact", False)


def load(buffer: Buffer, indices: tuple[Expr, ...], predicate: Expr | None = None) -> Load:
    """``buffer[indices]``."""
    return Load(buffer, indices, predicate)


class Ramp(Expr):
    """The vector ``base, base + stride, ..., base + (lanes - 1) * stride``."""

    __slots__ = ("base", "lanes", "stride")
    __match_args__ = ("base", "stride", "lanes")
    base: Expr
    stride: Expr
    lanes: int

    def _made(self) -> None:
        object.__setattr__(self, "dtype", self.base.dtype.with_lanes(self.lanes))
        object.__setattr__(self, "exact", self.base.exact and self.stride.exact)


class Broadcast(Expr):
    """A scalar in every lane."""

    __slots__ = ("lanes", "value")
    __match_args__ = ("value", "lanes")
    value: Expr
    lanes: int

    def _made(self) -> None:
        object.__setattr__(self, "dtype", self.value.dtype.with_lanes(self.lanes))
        object.__setattr__(self, "exact", self.value.exact)


class Lane(Expr):
    """One lane of a vector, by a constant number."""

    __slots__ = ("index", "vector")
    __match_args__ = ("vector", "index")
    vector: Expr
    index: int

    def _made(self) -> None:
        object.__setattr__(self, "dtype", self.vector.dtype.element)
        object.__setattr__(self, "exact", self.vector.exact)


class Concat(Expr):
    """A vector put together from scalars, the first in lane 0."""

    __slots__ = ("values",)
    __match_args__ = ("values",)
    values: tuple[Expr, ...]

    def _made(self) -> None:
        object.__setattr__(self, "dtype", self.values[0].dtype.with_lanes(len(self.values)))
        object.__setattr__(self, "exact", all(value.exact for value in self.values))


class Call(Expr):
    """A function of scalars or vectors, lane by lane: ``exp``, ``tanh``, ``popcount``...

    ``args`` may hold :class:`StringImm`. Names that start with ``extern:`` call a C symbol.
    """

    __slots__ = ("args", "name")
    __match_args__ = ("dtype", "name", "args")
    dtype: DType
    name: str
    args: tuple[Expr, ...]

    def _made(self) -> None:
        object.__setattr__(self, "exact", False)

    @property
    def op(self) -> Any:
        """TVM's name of what is called: an object whose ``name`` is such as ``tir.exp``."""
        real = self.name == "abs" and self.dtype.is_float
        return SimpleNamespace(name=f"tir.{'f' * real}{self.name}")


class LetExpr(Expr):
    """``body`` with ``var`` standing for ``value``."""

    __slots__ = ("body", "value", "var")
    __match_args__ = ("var", "value", "body")
    var: Var
    value: Expr
    body: Expr

    def _made(self) -> None:
        object.__setattr__(self, "dtype", self.body.dtype)
        object.__setattr__(self, "exact", self.body.exact and self.value.exact)


class Reducer(Interned):
    """A commutative, associative combination of tuples of values, with its identity.

    ``lhs`` and ``rhs`` are the variables that ``result`` combines, one each a component.
    """

    __slots__ = ("identity", "lhs", "name", "result", "rhs")
    __match_args__ = ("name", "lhs", "rhs", "result", "identity")
    name: str
    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    result: tuple[Expr, ...]
    identity: tuple[Expr, ...]


class Reduce(Expr):
    """Component ``index`` of a reduction of ``source`` over ``axes`` where ``condition`` holds.

    It stands only at the top of a compute stage's body. ``axes`` are
    :class:`tilewright.ir.itervar.IterVar`; ``init``, where not empty, replaces the identity.
    """

    __slots__ = ("axes", "condition", "index", "init", "reducer", "source")
    __match_args__ = ("reducer", "source", "axes", "condition", "index", "init")
    reducer: Reducer
    source: tuple[Expr, ...]
    axes: tuple[Any, ...]
    condition: Expr
    index: int
    init: tuple[Expr, ...]

    def _made(self) -> None:
        object.__setattr__(self, "dtype", self.source[self.index].dtype)
        object.__setattr__(self, "exact", False)

    @property
    def axis(self) -> tuple[Any, ...]:
        """TVM's name of ``axes``."""
        return self.axes

    @property
    def combiner(self) -> Reducer:
        """TVM's name of ``reducer``."""
        return self.reducer
