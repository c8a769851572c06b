"""Functions of float32 in CUDA C++ that take fewer instructions than those of its library.

A GPU has instructions for ``2**x`` and ``1 / x`` that are right to two units in the last place. The
library's functions correct them for every argument there is; these do so where a result needs it.
"""

from __future__ import annotations

import math

from tilewright.ir import expr as E
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.expr import Expr
from tilewright.ir.visit import exprs, substitute

_FLOAT32 = dtype("float32")

#: Functions whose results need less where they, or products of them, are rounded to 16 bits.
_ROUNDED = {"sigmoid": "sigmoid_rounded", "erfc": "erfc_rounded"}

#: PTX ISA, "ex2" and "rcp": errors of at most 2**-22 and 2**-23; below 2**-126 is zero.
_APPROXIMATE = """static __device__ __forceinline__ float power_of_two(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}
static __device__ __forceinline__ float reciprocal(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0f / x;
#endif
}"""

#: ``2**t`` with t = -x / ln 2 is as wrong as t was rounded, by up to 4e-6 where it is large. It is
#: rounded down, so that what e**-x has beyond it is a factor of 1 + rest with a rest from 0 to 1,
#: to which infinities and what comes of them are brought as well.
_SIGMOID = """static __device__ __forceinline__ float sigmoid_single(float x) {
  const float t = __fmul_rd(x, -1.44269504f);
  const float rest = __saturatef(fmaf(t, -0.693147181f, -x));
  return reciprocal(fmaf(power_of_two(t), 1.0f + rest, 1.0f));
}"""

#: The same without the rest: within 2**-17.
_SIGMOID_ROUNDED = """static __device__ __forceinline__ float sigmoid_rounded(float x) {
  return reciprocal(1.0f + power_of_two(x * -1.44269504f));
}"""

#: The sigmoid over ``w``, of ``t = -x / ln 2``.
_SIGMOID_SCALED = """static __device__ __forceinline__ float sigmoid_scaled(float t, float w) {
  return reciprocal(fmaf(power_of_two(t), w, w));
}"""

#: ``e**-z**2 * P(u) * u`` with u = 1 / (1 + 0.3 z) and P the polynomial of degree 8 whose relative
#: error for z from 0 to 9.5 is least, 2e-8. The rest has what rounding took from z**2 as well as
#: from t: the square is rounded up, 1 / ln 2 is the next number above it, and t is rounded down.
_ERFC = """static __device__ __forceinline__ float erfc_single(float x) {
  const float z = fabsf(x), square = __fmul_ru(z, z);
  const float t = __fmul_rd(square, -1.44269514f);
  const float rest = __saturatef(fmaf(t, -0.693147181f, -square) - fmaf(z, z, -square));
  const float u = reciprocal(fmaf(0.3f, z, 1.0f));
  float p = fmaf(-0.129434228f, u, 0.48509714f);
  p = fmaf(p, u, -0.511227965f);
  p = fmaf(p, u, 0.546396792f);
  p = fmaf(p, u, -0.0936324894f);
  p = fmaf(p, u, 0.214436799f);
  p = fmaf(p, u, 0.148482308f);
  p = fmaf(p, u, 0.170691952f);
  p = fmaf(p, u, 0.169189617f);
  const float tail = p * u * (power_of_two(t) * (1.0f + rest));
  return x < 0.0f ? 2.0f - tail : tail;
}"""

#: The same with u = 1 / (1 + 0.65 z), degree 5 and no rest: within 2**-15.
_ERFC_ROUNDED = """static __device__ __forceinline__ float erfc_rounded(float x) {
  const float z = fabsf(x), u = reciprocal(fmaf(0.65f, z, 1.0f));
  float p = fmaf(0.1442516f, u, -0.473307103f);
  p = fmaf(p, u, 0.357274443f);
  p = fmaf(p, u, 0.231453702f);
  p = fmaf(p, u, 0.373955399f);
  p = fmaf(p, u, 0.366380423f);
  const float tail = p * u * power_of_two(z * z * -1.44269504f);
  return x < 0.0f ? 2.0f - tail : tail;
}"""

#: GELU's derivative, ``T(-x) + x * D(x)`` of the normal distribution and its density: of
#: ``s = T(-z) - z * D(z)`` with z = abs(x), whose parts are e**-x**2/2 times something, ``s`` below
#: zero and ``1 - s`` above. Half of ``_ERFC``'s polynomial, of u = 1 / (1 + 0.3 z / sqrt(2)): the
#: parts cancel at -0.752, about which the result is within 2**-24.
_GELU_SLOPE = """static __device__ __forceinline__ float gelu_slope(float x) {
  const float z = fabsf(x), u = reciprocal(fmaf(0.212132034f, z, 1.0f));
  float p = fmaf(-0.064717114f, u, 0.24254857f);
  p = fmaf(p, u, -0.2556139825f);
  p = fmaf(p, u, 0.273198396f);
  p = fmaf(p, u, -0.0468162447f);
  p = fmaf(p, u, 0.1072183995f);
  p = fmaf(p, u, 0.074241154f);
  p = fmaf(p, u, 0.085345976f);
  p = fmaf(p, u, 0.0845948085f);
  const float s = power_of_two(x * x * -0.721347520f) * fmaf(z, -0.398942280f, p * u);
  return x < 0.0f ? s : 1.0f - s;
}"""

#: ``max(x, 0) - z * T(z)`` with z = abs(x) and T(z) = erfc(z / sqrt(2)) / 2, of which the logarithm
#: is nearly a parabola: 2**q with q the polynomial of degree 7 whose error is least where results
#: of the type are not 0: within 2**-17 for z to 5.75, and 2**-11 for z to 12.8. Beyond, it falls,
#: as its last coefficient is negative. Of +inf z is 16, so that z * 0 is a number; of -inf it is
#: infinite, and the result NaN, as that of ``x * 0.5 * erfc(..)`` is.
_GELU = """static __device__ __forceinline__ float {name}(float x) {{
  const float z = fmaxf(-x, fminf(x, 16.0f));
  float q = fmaf({first}f, z, {second}f);
{steps}
  return fmaf(-z, power_of_two(q), at_least(x, 0.0f));
}}"""
_LOGARITHMS = {
    "gelu_float16": (-1.82547876e-06, 6.14398232e-05, -0.00092948752, 0.0085045984,
                     -0.0539548509, -0.458468199, -1.151250005, -0.999995351),
    "gelu_bfloat16": (-3.51689977e-07, 1.91517647e-05, -0.000439987343, 0.00562609825,
                      -0.0450880975, -0.471670121, -1.14380932, -1.00068581),
}  # fmt: skip


def _gelu(name: str) -> str:
    """The text of one of them."""
    first, second, *others = _LOGARITHMS[name]
    steps = "\n".join(f"  q = fmaf(q, z, {c}f);" for c in others)
    return _GELU.format(name=name, first=first, second=second, steps=steps)


#: By the name of a helper, its text, those that it needs first.
TEXTS = {
    "approximate": _APPROXIMATE,
    "sigmoid_single": _SIGMOID,
    "sigmoid_rounded": _SIGMOID_ROUNDED,
    "sigmoid_scaled": _SIGMOID_SCALED,
    "erfc_single": _ERFC,
    "erfc_rounded": _ERFC_ROUNDED,
    "gelu_slope": _GELU_SLOPE,
    **{name: _gelu(name) for name in _LOGARITHMS},
}
#: The names of the functions in them.
HELPERS = ("power_of_two", "reciprocal", *list(TEXTS)[1:])
#: By the name of a function of float32, that of what computes it.
SINGLE = {
    "exp2": "power_of_two",
    "sigmoid": "sigmoid_single",
    "erfc": "erfc_single",
    "sigmoid_scaled": "sigmoid_scaled",
    "gelu_slope": "gelu_slope",
    **{name: name for name in (*_ROUNDED.values(), *_LOGARITHMS)},
}
#: Those that take what :mod:`~tilewright.codegen.cuda_prelude` has.
BOUNDED = frozenset(_LOGARITHMS)
#: By what the sigmoid multiplies its argument.
_EXPONENT = -1.442695040888963
#: By what GELU multiplies the argument of ``erfc``.
_ROOT = -math.sqrt(0.5)
#: The density of the normal distribution at 0.
_DENSITY = (2 * math.pi) ** -0.5


def rounded(name: str) -> str:
    """What stands for a function of float32 whose result is rounded to 16 bits."""
    return _ROUNDED.get(name, name)


def before_rounding(e: Expr, to: DType) -> Expr:
    """``e``, a float32 that is about to be rounded to ``to``, of 16 bits, of functions that are
    right to a quarter of what rounding costs: where ``e`` is one, or a product.

    A sum is left as it is, since in a difference of what is nearly the same errors grow.

    >>> from tilewright.ir.expr import Call, Var
    >>> x = Var.make("x", "float32")
    >>> half = dtype("float16")
    >>> before_rounding(x * Call(x.dtype, "sigmoid", (x,)), half)
    x * T.sigmoid_rounded(x)

    Constants beside a sigmoid are put together with its own.

    >>> before_rounding(Call(x.dtype, "sigmoid", (x * -0.6931471805599453,)) * 0.5, half)
    T.sigmoid_scaled(x, T.float32(2))

    GELU is one function, although its parts are three.

    >>> before_rounding(x * 0.5 * Call(x.dtype, "erfc", (x * -(0.5**0.5),)), half)
    T.gelu_float16(x)

    SiLU's derivative is one, too: where 1 - s is small, errors of e**-x are small beside it.

    >>> s = Call(x.dtype, "sigmoid", (x,))
    >>> before_rounding(s * (x * (1 - s) + 1), half)
    T.sigmoid_rounded(x) * (x * (T.float32(1) - T.sigmoid_rounded(x)) + T.float32(1))

    So is GELU's, as PyTorch writes it.

    >>> bell = Call(x.dtype, "exp", (x * x * -0.5,)) * (2 * math.pi) ** -0.5
    >>> before_rounding((Call(x.dtype, "erf", (x * 0.5**0.5,)) + 1) * 0.5 + x * bell, half)
    T.gelu_slope(x)

    A function that is needed as it is elsewhere is computed once.

    >>> before_rounding(s * (x - s), half) is s * (x - s)
    True
    """
    made = _reduced(e, to)
    if made is e:
        return e
    exact = {x for x in exprs(made) if isinstance(x, E.Call) and x.name in _ROUNDED}
    again = {E.Call(x.dtype, rounded(x.name), x.args): x for x in exact}
    return substitute(made, again) if again else made


def _reduced(e: Expr, to: DType) -> Expr:
    """The same, whatever is needed elsewhere."""
    match e:
        case E.Mul(
            E.Mul(x, E.FloatImm(_, 0.5)), E.Call(t, "erfc", (E.Mul(y, E.FloatImm(_, root)),))
        ) if t is _FLOAT32 and x is y and abs(root - _ROOT) < 2**-24:
            return E.Call(t, f"gelu_{to}", (x,))
        case E.Mul(
            E.Call(t, "sigmoid", (E.Mul(x, E.FloatImm(_, inner)),)), E.FloatImm(_, outer)
        ) if t is _FLOAT32 and outer:
            factor = inner * _EXPONENT
            exponent = x if abs(factor - 1) < 2**-24 else x * factor
            return E.Call(t, "sigmoid_scaled", (exponent, E.FloatImm(t, 1 / outer)))
        case E.Add(
            E.Mul(x, E.Sub(E.FloatImm(_, 1.0), E.Call(t, "sigmoid", (y,)) as s)),
            E.FloatImm(_, 1.0),
        ) if t is _FLOAT32 and x is y:
            short: Expr = substitute(e, {s: E.Call(t, rounded("sigmoid"), (x,))})
            return short
        case E.Add(
            E.Mul(
                E.Add(E.Call(t, "erf", (E.Mul(x, E.FloatImm(_, root)),)), E.FloatImm(_, 1.0)),
                E.FloatImm(_, 0.5),
            ),
            E.Mul(y, E.Mul(
                E.Call(_, "exp", (E.Mul(E.Mul(z, w), E.FloatImm(_, -0.5)),)),
                E.FloatImm(_, density),
            )),
        ) if (
            t is _FLOAT32 and x is y is z is w
            and abs(root + _ROOT) < 2**-24 and abs(density - _DENSITY) < 2**-24
        ):  # fmt: skip
            return E.Call(t, "gelu_slope", (x,))
        case E.Mul(a, b):
            return E.Mul(_reduced(a, to), _reduced(b, to))
        case E.Call(t, name, args) if t is _FLOAT32:
            return E.Call(t, rounded(name), args)
    return e
