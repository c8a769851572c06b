"""Integer division by what may be zero, shifts by any amount, and sizes, in C-like languages.

C leaves division by zero undefined, and that of the least integer by -1. Here ``x // 0`` and
``x % 0`` are 0, and a quotient wraps around as all arithmetic on data does (docs/language.md).
Divisors that are known not to be 0 or -1 are divided by with C's own operators.

C also leaves shifts by the width of the type or more undefined. Here they leave zeros, or copies of
the sign. Constant amounts below the width are shifted by with C's own operators.

The size of the least integer, which C's ``abs`` leaves undefined, wraps around to it.
"""

from __future__ import annotations

from tilewright.ir import expr as E
from tilewright.ir.dtype import DType

_NAMES: dict[type[E.Expr], str] = {
    E.FloorDiv: "floordiv", E.FloorMod: "floormod", E.TruncDiv: "truncdiv", E.TruncMod: "truncmod",
}  # fmt: skip

_SIGNED = {
    "truncdiv": """  return b == 0 ? 0 : b == -1 ? ({t})(0 - ({u})a) : a / b;
""",
    "truncmod": """  return b == 0 || b == -1 ? 0 : a % b;
""",
    "floordiv": """  if (b == 0 || b == -1) return ({t})(({u})a * ({u})b);
  const {t} q = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q;
""",
    "floormod": """  if (b == 0 || b == -1) return 0;
  const {t} r = a % b;
  return (r != 0 && (r < 0) != (b < 0)) ? r + b : r;
""",
}
_SIZE = "  return ({t})(a < 0 ? 0 - ({u})a : ({u})a);\n"
_UNSIGNED = {"div": "  return b == 0 ? 0 : a / b;\n", "mod": "  return b == 0 ? 0 : a % b;\n"}
#: The amount is unsigned, of 64 bits: a negative one is beyond every width.
_SHIFTS = {
    "shl": "  return b >= {bits} ? 0 : a << b;\n",
    "ushr": "  return b >= {bits} ? 0 : a >> b;\n",
    "shr": "  return a >> (b >= {bits} ? {bits} - 1 : b);\n",
}

#: The names of all functions here.
NAMES = frozenset(
    f"{name}_any{suffix}"
    for name in (*_SIGNED, "udiv", "umod", *_SHIFTS, "abs")
    for suffix in ("", "64")
)  # fmt: skip


def total_shift(node: type[E.Expr], t: DType) -> str:
    """The function that shifts by any amount; numbers of narrow types as what C promotes them to,
    and all that are shifted to the left as unsigned ones."""
    name = "shl" if node is E.Shl else "shr" if t.kind == "int" else "ushr"
    return f"{name}_any" + ("64" if t.bits == 64 else "")


def total_division(node: type[E.Expr], t: DType) -> str:
    """The function that divides by any number; of narrow types what C promotes them to."""
    name = _NAMES[node]
    if t.kind == "uint":
        name = f"u{name[-3:]}"
    return f"{name}_any" + ("64" if t.bits == 64 else "")


def total_functions(head: str, types: tuple[str, str, str, str]) -> dict[str, str]:
    """The texts of all functions of :func:`total_division` and :func:`total_shift`, by name.

    Parameters
    ----------
    head : what stands before a function: ``static inline``.
    types : the integers of 32 and 64 bits, and the unsigned ones.
    """
    found: dict[str, str] = {}
    for suffix, t, u in (("", types[0], types[2]), ("64", types[1], types[3])):
        for name, body in _SIGNED.items():
            full = f"{name}_any{suffix}"
            found[full] = f"{head}{t} {full}({t} a, {t} b) {{\n{body.format(t=t, u=u)}}}\n"
        size = _SIZE.format(t=t, u=u)
        found[f"abs_any{suffix}"] = f"{head}{t} abs_any{suffix}({t} a) {{\n{size}}}\n"
        for name, body in _UNSIGNED.items():
            full = f"u{name}_any{suffix}"
            found[full] = f"{head}{u} {full}({u} a, {u} b) {{\n{body}}}\n"
        for name, body in _SHIFTS.items():
            full, own = f"{name}_any{suffix}", t if name == "shr" else u
            shift = body.format(bits=suffix or "32")
            found[full] = f"{head}{own} {full}({own} a, {types[3]} b) {{\n{shift}}}\n"
    return found
