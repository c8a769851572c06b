"""Functions of float32 in CUDA C++ that take fewer instructions than those of its library.

A GPU has instructions for ``2**x`` and ``1 / x`` that are right to two units in the last place. The
library's functions correct them for every argument there is; these do so where a result needs it.
"""

from __future__ import annotations

from tilewright.ir import expr as E
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Expr

_FLOAT32 = dtype("float32")

#: Functions whose results need less where they, or products of them, are rounded to 16 bits.
_ROUNDED = {"sigmoid": "sigmoid_rounded"}

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

#: By the name of a helper, its text, those that it needs first.
TEXTS = {
    "approximate": _APPROXIMATE,
    "sigmoid_single": _SIGMOID,
    "sigmoid_rounded": _SIGMOID_ROUNDED,
}
#: The names of the functions in them.
HELPERS = ("power_of_two", "reciprocal", "sigmoid_single", "sigmoid_rounded")


def before_rounding(e: Expr) -> Expr:
    """``e``, a float32 that is about to be rounded to 16 bits, of functions that are right to a
    quarter of what rounding costs: where ``e`` is one, or a product.

    A sum is left as it is, since in a difference of what is nearly the same errors grow.

    >>> from tilewright.ir.expr import Call, Var
    >>> x = Var.make("x", "float32")
    >>> before_rounding(x * Call(x.dtype, "sigmoid", (x,)))
    x * T.sigmoid_rounded(x)
    """
    match e:
        case E.Mul(a, b):
            return E.Mul(before_rounding(a), before_rounding(b))
        case E.Call(t, name, args) if t is _FLOAT32 and name in _ROUNDED:
            return E.Call(t, _ROUNDED[name], args)
    return e
