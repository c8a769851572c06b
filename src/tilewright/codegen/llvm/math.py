"""Functions of floating-point values.

LLVM turns a vector of ``llvm.exp`` into as many calls to libm, so in float32 the usual functions
are written out: range reduction and a polynomial, without branches, for scalars and vectors alike.
The polynomials are minimax fits of the relative error (Lawson's iteration over Chebyshev nodes, in
double precision); with their evaluation in float32 the functions stay within 4 units in the last
place, denormals, infinities and NaN included (tests/correctness/test_llvm_math.py). Rarer functions
and float64 call libm, lane by lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright.codegen.llvm.builder import FLAGS, Builder, Value, literal, split_type, vector_type

_LN2_HIGH = 0.693359375  # so few bits that a product with an exponent is exact
_LN2_LOW = math.log(2) - _LN2_HIGH
_LOG10_2_HIGH = 0.301025390625
_LOG10_2_LOW = math.log10(2) - _LOG10_2_HIGH
_ROUND = 12582912.0  # 1.5 * 2**23: adding it leaves the nearest integer in the lowest bits

#: (exp(r) - 1 - r) / r**2 for |r| <= ln(2) / 2
_EXP = (0.4999999344869881, 0.16666520645345356, 0.04166838788830486, 0.00836871521895885,
        0.00138146018441738)  # fmt: skip
#: (log(1 + f) - f + f**2 / 2) / f**3 for sqrt(1/2) <= 1 + f <= sqrt(2)
_LOG = (0.3333333170780469, -0.2500082103550084, 0.20001226865403537, -0.16623357298094807,
        0.14201758233826067, -0.13160183062726602, 0.1276157564343488,
        -0.07634493023237666)  # fmt: skip
#: (tanh(x) / x - 1) / x**2 in powers of x**2 for |x| <= 0.625
_TANH = (-0.33333281942089504, 0.13331442199960328, -0.053739715219467354, 0.020639087648258683,
         -0.005704987418422713)  # fmt: skip
#: erf(x) / x - 1 in powers of x**2 for |x| <= 0.95
_ERF = (0.12837914234152778, -0.3761244599769369, 0.11281321063625038, -0.026748873628393538,
        0.004967517051903889, -0.0005862122898587091)  # fmt: skip
#: -log(1 - erf(x)) for 0.93 <= x <= 4
_ERFC = (0.0002113126051399048, 1.127611209237985, 0.6372904183021766, 0.10383690915630284,
         -0.022181387299636146, 0.0030318201691637015, -0.00019477771339848626)  # fmt: skip

#: exp(x**2) * (1 - erf(x)) * (1 + 2 * x) in powers of (x - 2) / (x + 2) for 0 <= x <= 10.6
_ERFCX = (1.2769783960905239, -0.09276400143572106, -0.166031609822359, 0.1640557282579392,
          -0.05420219545590421, -0.008061116540653954, 0.008623781734479795, 0.001312291060449976,
          -0.0012204919053698127, -0.0003950051358969428)  # fmt: skip


class _Float32:
    """Arithmetic on float32 values of one shape, and integers of the same shape."""

    def __init__(self, b: Builder, type: str) -> None:
        self.b, self.type = b, type
        self.int = vector_type("i32", split_type(type)[1])

    def __call__(self, value: float) -> Value:
        return literal(self.type, value)

    def bits(self, x: Value) -> Value:
        return self.b.convert("bitcast", x, self.int)

    def from_bits(self, x: Value) -> Value:
        return self.b.convert("bitcast", x, self.type)

    def integer(self, value: int) -> Value:
        return literal(self.int, value)

    def add(self, x: Value, y: Value) -> Value:
        return self.b.binary("fadd", x, y)

    def sub(self, x: Value, y: Value) -> Value:
        return self.b.binary("fsub", x, y)

    def mul(self, x: Value, y: Value) -> Value:
        return self.b.binary("fmul", x, y)

    def div(self, x: Value, y: Value) -> Value:
        return self.b.binary("fdiv", x, y)

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        """``x * y + z``, fused where the machine can."""
        return self.b.intrinsic("fmuladd", x, y, z)

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        total = self(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            total = self.fma(total, x, self(c))
        return total

    def abs(self, x: Value) -> Value:
        return self.b.intrinsic("fabs", x)

    def where(self, opcode: str, x: Value, y: Value, yes: Value, no: Value) -> Value:
        return self.b.select(self.b.compare(f"fcmp {opcode}", x, y), yes, no)


def _exp_reduced(f: _Float32, n: Value, r: Value, falls: bool = False) -> Value:
    """``2**n * exp(r)``; ``n`` is an integer. Twice half the power, as it may leave the range;
    where it ``falls``, is at most 63, a power that does not, and one that is known."""
    b = f.b
    p = f.fma(f.mul(r, r), f.polynomial(r, _EXP), r)
    total = f.add(p, f(1.0))
    if falls:
        biased = b.binary("add", n, f.integer(127 + 64))
        power = f.from_bits(b.binary("shl", biased, f.integer(23)))
        return f.mul(f.mul(total, power), f(2.0**-64))
    half = b.binary("ashr", n, f.integer(1))
    for part in (half, b.binary("sub", n, half)):
        biased = b.binary("add", part, f.integer(127))
        total = f.mul(total, f.from_bits(b.binary("shl", biased, f.integer(23))))
    return total


def _clamp(f: _Float32, x: Value, low: float, high: float) -> Value:
    """Brought into the range beyond which nothing changes; NaN stays."""
    x = f.where("ogt", x, f(high), f(high), x)
    return f.where("olt", x, f(low), f(low), x)


def _to_integer(f: _Float32, x: Value, scale: float) -> tuple[Value, Value]:
    """``x * scale`` rounded, as an integer and as a float."""
    shifted = f.fma(x, f(scale), f(_ROUND))
    n = f.b.binary("sub", f.bits(shifted), f.bits(f(_ROUND)))
    return n, f.sub(shifted, f(_ROUND))


def _exp(f: _Float32, x: Value, falls: bool = False) -> Value:
    """``falls``: ``x`` is at most 40."""
    x = f.where("olt", x, f(-104.0), f(-104.0), x) if falls else _clamp(f, x, -104.0, 89.0)
    n, whole = _to_integer(f, x, 1 / math.log(2))
    r = f.fma(whole, f(-_LN2_LOW), f.fma(whole, f(-_LN2_HIGH), x))
    return _exp_reduced(f, n, r, falls)


def _exp2(f: _Float32, x: Value) -> Value:
    x = _clamp(f, x, -151.0, 129.0)
    n, whole = _to_integer(f, x, 1.0)
    return _exp_reduced(f, n, f.mul(f.sub(x, whole), f(math.log(2))))


def _exp10(f: _Float32, x: Value) -> Value:
    x = _clamp(f, x, -46.0, 39.0)
    n, whole = _to_integer(f, x, math.log2(10))
    r = f.fma(whole, f(-_LOG10_2_LOW), f.fma(whole, f(-_LOG10_2_HIGH), x))
    return _exp_reduced(f, n, f.mul(r, f(math.log(10))))


def _log(f: _Float32, x: Value) -> Value:
    b = f.b
    tiny = b.compare("fcmp olt", x, f(2.0**-126))
    scaled = b.select(tiny, f.mul(x, f(2.0**23)), x)
    base = 0x3F3504F3  # the bits of sqrt(1/2)
    shifted = b.binary("sub", f.bits(scaled), f.integer(base))
    exponent = b.binary("ashr", shifted, f.integer(23))
    exponent = b.binary("sub", exponent, b.select(tiny, f.integer(23), f.integer(0)))
    mantissa = b.binary("add", b.binary("and", shifted, f.integer(0x7FFFFF)), f.integer(base))
    e = b.convert("sitofp", exponent, f.type)
    m = f.sub(f.from_bits(mantissa), f(1.0))
    square = f.mul(m, m)
    tail = f.mul(f.mul(m, square), f.polynomial(m, _LOG))
    tail = f.fma(e, f(_LN2_LOW), tail)
    tail = f.fma(square, f(-0.5), tail)
    found = f.fma(e, f(_LN2_HIGH), f.add(m, tail))
    found = f.where("oeq", x, f(math.inf), x, found)
    found = f.where("olt", x, f(0.0), f(math.nan), found)
    found = f.where("oeq", x, f(0.0), f(-math.inf), found)
    return f.where("uno", x, x, x, found)


def _scaled_log(factor: float) -> Callable[[_Float32, Value], Value]:
    return lambda f, x: f.mul(_log(f, x), f(factor))


def _log1p(f: _Float32, x: Value) -> Value:
    """log(u) * x / (u - 1) for u = 1 + x as it was rounded (Kahan)."""
    u = f.add(x, f(1.0))
    change = f.sub(u, f(1.0))
    found = f.mul(_log(f, u), f.div(x, change))
    found = f.where("oeq", u, f(math.inf), u, found)
    return f.where("oeq", change, f(0.0), x, found)


def _expm1(f: _Float32, x: Value) -> Value:
    """(u - 1) * x / log(u) for u = exp(x) as it was rounded (Kahan)."""
    u = _exp(f, x)
    change = f.sub(u, f(1.0))
    found = f.mul(change, f.div(x, _log(f, u)))
    found = f.where("oeq", u, f(math.inf), u, found)
    found = f.where("ole", x, f(-18.0), f(-1.0), found)
    return f.where("oeq", change, f(0.0), x, found)


def _tanh(f: _Float32, x: Value) -> Value:
    size = f.abs(x)
    square = f.mul(x, x)
    small = f.fma(f.mul(x, square), f.polynomial(square, _TANH), x)
    e = _exp(f, f.add(size, size))
    large = f.sub(f(1.0), f.div(f(2.0), f.add(e, f(1.0))))
    large = f.b.intrinsic("copysign", large, x)
    return f.where("olt", size, f(0.625), small, large)


def _sigmoid(f: _Float32, x: Value) -> Value:
    e = _exp(f, f.b.op(f.type, f"fneg {f.abs(x)}"), falls=True)
    positive = f.div(f(1.0), f.add(e, f(1.0)))
    return f.where("oge", x, f(0.0), positive, f.mul(e, positive))


def _erf(f: _Float32, x: Value) -> Value:
    size = f.abs(x)
    small = f.fma(x, f.polynomial(f.mul(x, x), _ERF), x)
    bounded = f.where("ogt", size, f(4.0), f(4.0), size)
    q = f.polynomial(bounded, _ERFC)
    large = f.sub(f(1.0), _exp(f, f.b.op(f.type, f"fneg {q}"), falls=True))
    large = f.b.intrinsic("copysign", large, x)
    return f.where("olt", size, f(0.94), small, large)


def _erfc(f: _Float32, x: Value) -> Value:
    """Beyond the middle as ``exp(-x**2)`` times what changes slowly (Shepherd and Laframboise 1981,
    "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x"), so that it is exact where it is tiny.

    The square is the sum of that of ``high``, whose 12 bits make it exact, and a rest.
    """
    b = f.b
    size = f.abs(x)
    middle = f.sub(f(1.0), f.fma(x, f.polynomial(f.mul(x, x), _ERF), x))
    a = f.where("ogt", size, f(10.6), f(10.6), size)
    high = f.from_bits(b.binary("and", f.bits(a), f.integer(-4096)))
    whole, rest = f.mul(high, high), f.mul(f.sub(a, high), f.add(a, high))
    n, power = _to_integer(f, f.add(whole, rest), -1 / math.log(2))
    r = f.sub(f.fma(power, f(-_LN2_HIGH), b.op(f.type, f"fneg {whole}")), rest)
    r = f.fma(power, f(-_LN2_LOW), r)
    slow = f.polynomial(f.div(f.sub(a, f(2.0)), f.add(a, f(2.0))), _ERFCX)
    tail = f.mul(_exp_reduced(f, n, r, falls=True), f.div(slow, f.fma(a, f(2.0), f(1.0))))
    tail = f.where("olt", x, f(0.0), f.sub(f(2.0), tail), tail)
    return f.where("olt", size, f(0.5), middle, tail)


_WRITTEN_OUT: dict[str, Callable[[_Float32, Value], Value]] = {
    "exp": _exp,
    "exp2": _exp2,
    "exp10": _exp10,
    "expm1": _expm1,
    "log": _log,
    "log1p": _log1p,
    "log2": _scaled_log(1 / math.log(2)),
    "log10": _scaled_log(1 / math.log(10)),
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "erf": _erf,
    "erfc": _erfc,
}
#: What the processor does, or LLVM writes out well.
_NATIVE = {"sqrt", "floor", "ceil", "trunc", "nearbyint", "round"}


def apply(b: Builder, name: str, args: Sequence[Value]) -> Value:
    """The function ``name`` of float32 or float64 values, scalars or vectors."""
    x = args[0]
    if name in _NATIVE:
        return b.intrinsic(name, x)
    if name == "fma":
        return b.intrinsic("fma", *args)
    if name == "abs":
        return b.intrinsic("fabs", x)
    if name == "rsqrt":
        return b.binary("fdiv", literal(x.type, 1.0), b.intrinsic("sqrt", x))
    element, _ = split_type(x.type)
    written = _WRITTEN_OUT.get(name)
    if element == "float" and written is not None:
        return written(_Float32(b, x.type), x)
    if name == "sigmoid":
        e = library(b, "exp", [b.op(x.type, f"fneg {x}")])
        one = literal(x.type, 1.0)
        return b.binary("fdiv", one, b.binary(f"fadd {FLAGS}", one, e))
    if name == "exp10":
        return library(b, "pow", [literal(x.type, 10.0), x])
    return library(b, name, args)


def library(b: Builder, name: str, args: Sequence[Value]) -> Value:
    """A function of libm, lane by lane."""
    element, lanes = split_type(args[0].type)
    symbol = name + ("f" if element == "float" else "")
    if lanes == 1:
        return b.call(element, symbol, args, external=True)
    found = []
    for k in range(lanes):
        each = [b.lane(a, k) for a in args]
        found.append(b.call(element, symbol, each, external=True))
    return b.gather(found)
