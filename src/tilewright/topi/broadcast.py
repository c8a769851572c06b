"""Functions of several tensors, element by element, of shapes that NumPy's rules make one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.arith import Analyzer
from tilewright.ir.dtype import wrapped
from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import FloatImm, IntImm
from tilewright.ir.ops import as_expr, is_const
from tilewright.te import Tensor

#: The tag of stages whose operands may lack dimensions, or have one element along them.
BROADCAST = "broadcast"


def shape_of(x: Tensor) -> tuple[Any, ...]:
    """A shape: integers, and extents that only a call knows as they are."""
    return tuple(e.value if isinstance(e, IntImm) else e for e in x.shape)


def common_shape(*shapes: Sequence[Any]) -> tuple[Any, ...]:
    """The shape that all of these are broadcast to; raises :class:`LanguageError` without one.

    >>> common_shape((8, 1, 3), (5, 1))
    (8, 5, 3)

    What only a call knows is nothing that is repeated, nor does it fit what is known.
    """
    rank = max(map(len, shapes), default=0)
    found = []
    for extents in zip(*((1,) * (rank - len(s)) + tuple(s) for s in shapes), strict=True):
        sizes = {e for e in extents if not _is_one(e)}
        if len(sizes) > 1:
            texts = " and ".join("x".join(map(str, s)) or "a scalar" for s in shapes)
            raise LanguageError(f"shapes {texts} do not fit one another")
        found.append(sizes.pop() if sizes else 1)
    return tuple(found)


def proves_equal(a: Any, b: Any) -> bool:
    """Whether two extents, or products of some, are certainly equal."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return is_const(Analyzer().simplify(as_expr(a) - b), 0)


def _is_one(extent: Any) -> bool:
    return isinstance(extent, int) and extent == 1


def read(x: Any, index: Sequence[Any]) -> Any:
    """The element of ``x`` at an index of the shape that it is broadcast to; a constant itself."""
    if not isinstance(x, Tensor):
        return x
    if not x.ndim:
        return x()
    own = index[len(index) - x.ndim :]
    places = [0 if _is_one(e) else i for e, i in zip(shape_of(x), own, strict=True)]
    return x[tuple(places)]


def broadcast(
    function: Callable[..., Any], operands: Sequence[Tensor | float], name: str
) -> Tensor:
    """``function`` of the elements of tensors, and of numbers, which fit any shape."""
    tensors = [x for x in operands if isinstance(x, Tensor)]
    dtype = tensors[-1].dtype  # of numbers, too: the first may be a condition
    given = [x if isinstance(x, Tensor) else te.const(x, dtype) for x in operands]
    made: Tensor = te.compute(
        common_shape(*map(shape_of, tensors)),
        lambda *i: function(*(read(x, i) for x in given)),
        name=name,
        tag=BROADCAST,
    )
    return made


def broadcast_to(x: Tensor, shape: Sequence[int]) -> Tensor:
    """``x`` repeated along dimensions of one element, and new ones in front."""
    made: Tensor = te.compute(
        common_shape(shape_of(x), shape), lambda *i: read(x, i), name="broadcast_to", tag=BROADCAST
    )
    return made


def _divide(a: Any, b: Any) -> Any:
    return te.truncdiv(a, b) if a.dtype.is_int else a / b


def _mod(a: Any, b: Any) -> Any:
    """The remainder of the division that rounds down: of the sign of ``b``."""
    if a.dtype.is_int:
        return te.floormod(a, b)
    rest, zero = _fmod(a, b), te.const(0, a.dtype)
    apart = te.all(te.logical_not(rest.equal(zero)), (rest < zero) != (b < zero))
    return te.Select(apart, rest + b, rest)


def _fmod(a: Any, b: Any) -> Any:
    """The remainder of the division that rounds towards zero: of the sign of ``a``."""
    if a.dtype.is_int:
        return te.truncmod(a, b)
    if a.dtype.bits == 16:
        return _fmod(a.astype("float32"), b.astype("float32")).astype(a.dtype)
    endless = te.all(te.abs(b).equal(te.max_value(b.dtype)), te.abs(a) < te.max_value(a.dtype))
    # Where the quotient was rounded up to an integer, what is left has the other sign.
    rest, zero = te.fma(-te.trunc(a / b), b, a), te.const(0, a.dtype)
    over = te.all(te.logical_not(rest.equal(zero)), (rest < zero) != (a < zero))
    rest = te.Select(over, rest + te.Select((a < zero) != (b < zero), -b, b), rest)
    return te.Select(endless, a, rest)


def _power(a: Any, b: Any) -> Any:
    if isinstance(b, FloatImm) and b.value in _POWERS:
        return _POWERS[b.value](a)
    if not a.dtype.is_int:
        return te.power(a, b.astype(a.dtype))
    if b.dtype.is_int:
        return _power_of_integer(a, b)
    found = te.power(a.astype("float64"), b.astype("float64"))
    # Cut off, as ONNX and NumPy do, but for what is rounding beside an integer.
    nearest = te.nearbyint(found)
    whole = te.abs(found - nearest) <= te.abs(found) * 2.0**-40
    return te.Select(whole, nearest, te.trunc(found)).astype(a.dtype)


def _power_of_integer(a: Any, b: Any) -> Any:
    """Products, which wrap around in the type of ``a`` and are exact where float64 is not. To a
    power below 0 all but 1 and -1 are fractions, and 0."""
    one = te.const(1, a.dtype)
    if isinstance(b, IntImm) and b.value >= 0:
        squares = _squares(a, b.value.bit_length())
        return _product([s for k, s in enumerate(squares) if b.value >> k & 1], one)
    # Of 0, 1 and -1, which alone have larger powers, it is enough whether the power is odd.
    even, most = (b & 1).equal(0), (1 << _BITS) - 1
    power = te.Select(b > most, te.Select(even, b * 0 + (most - 1), b * 0 + most), b)
    found = _product(
        [te.Select((power >> k & 1).equal(0), one, s) for k, s in enumerate(_squares(a, _BITS))],
        one,
    )
    if b.dtype.startswith("u"):
        return found
    below = te.Select(a.equal(1), one, te.const(0, a.dtype))
    if not a.dtype.startswith("u"):
        below = te.Select(a.equal(-1), te.Select(even, one, -one), below)
    return te.Select(b < 0, below, found)


def _squares(a: Any, count: int) -> list[Any]:
    """``a``, its square, the square of that, and so on."""
    found = []
    for _ in range(count):
        found.append(a)
        a = te.const(wrapped(a.value**2, a.dtype), a.dtype) if isinstance(a, IntImm) else a * a
    return found


def _product(factors: Sequence[Any], one: Any) -> Any:
    found = factors[0] if factors else one
    for x in factors[1:]:
        found = found * x
    return found


#: Bits of a power that data says: all but 0, 1 and -1 have left 64 bits long before.
_BITS = 7

#: Powers that are cheaper, and rounded less often, than by a logarithm.
_POWERS: dict[float, Callable[[Any], Any]] = {
    2.0: lambda a: a * a, 3.0: lambda a: a * a * a, 0.5: te.sqrt, -0.5: te.rsqrt,
}  # fmt: skip


def _prelu(a: Any, slope: Any) -> Any:
    return te.Select(a < te.const(0, a.dtype), a * slope, a)


#: What two elements become, or three, by the name of the function.
ELEMENTS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b,
    "divide": _divide, "mod": _mod, "fmod": _fmod, "power": _power,
    "maximum": te.max, "minimum": te.min,
    "equal": lambda a, b: a == b, "less": lambda a, b: a < b, "greater": lambda a, b: a > b,
    "less_equal": lambda a, b: a <= b, "greater_equal": lambda a, b: a >= b,
    "logical_and": lambda a, b: a & b, "logical_or": lambda a, b: a | b,
    "logical_xor": lambda a, b: a ^ b, "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b, "bitwise_xor": lambda a, b: a ^ b,
    "left_shift": lambda a, b: a << b, "right_shift": lambda a, b: a >> b,
    "where": te.select, "prelu": _prelu,
}  # fmt: skip


def function(name: str) -> Callable[..., Tensor]:
    """The function of :data:`ELEMENTS` as one of tensors and numbers.

    >>> x, y = te.placeholder((2, 1), name="x"), te.placeholder((3,), name="y")
    >>> function("add")(x, y)
    Tensor(add, shape=[2, 3], dtype=float32)
    """

    def of(*operands: Tensor | float) -> Tensor:
        return broadcast(ELEMENTS[name], operands, name)

    return of
