"""Calls: functions of numbers, by :mod:`~tilewright.codegen.llvm.math`, and symbols of C."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.codegen.llvm import math
from tilewright.codegen.llvm.builder import Value, literal, mangled
from tilewright.codegen.llvm.types import FLOAT32, cast, widen
from tilewright.ir import expr as E
from tilewright.ir.errors import TargetError
from tilewright.ir.expr import Expr
from tilewright.ir.ops import BITS_FUNCTIONS, FLOAT_FUNCTIONS

if TYPE_CHECKING:
    from tilewright.codegen.llvm.expr import Expressions


def write(w: Expressions, e: E.Call) -> Value:
    """The value of a call."""
    t, name = e.dtype, e.name
    if name.startswith("extern:"):
        return _extern(w, e)
    if name == "address_of":
        return w.address(e.args[0])
    args = [w.expr(a) for a in e.args]
    source = e.args[0].dtype
    if name == "popcount":
        return w.b.intrinsic("ctpop", args[0])
    if name in BITS_FUNCTIONS:
        return w.b.convert("bitcast", args[0], w.types.register(t))
    if name == "abs" and t.is_int:
        return w.b.call(
            args[0].type, f"llvm.abs.{mangled(args[0].type)}", [*args, Value("i1", "false")]
        )
    if name == "isnan":
        if w.types.narrow(source):
            args = [widen(w.b, source, args[0])]
        return w.b.compare("fcmp uno", args[0], literal(args[0].type, 0.0))
    if name not in FLOAT_FUNCTIONS and name not in ("pow", "fma", "abs"):
        raise TargetError(f"the function {name!r} does not exist on a CPU")
    if source.bits == 16:
        wide = FLOAT32.with_lanes(t.lanes)
        args = [cast(w.b, w.types, source, wide, a) for a in args]
        found = math.apply(w.b, name, args)
        return cast(w.b, w.types, wide, t, found)
    return math.apply(w.b, name, args)


def _extern(w: Expressions, e: E.Call) -> Value:
    symbol = e.name.removeprefix("extern:")
    args = [_string(w, a.value) if isinstance(a, E.StringImm) else _passed(w, a) for a in e.args]
    returns = "i8" if e.dtype.is_bool else w.types.register(e.dtype)
    found = w.b.call(returns, symbol, args, external=True)
    w.forget_loads()
    return w.b.convert("trunc", found, "i1") if e.dtype.is_bool else found


def _passed(w: Expressions, a: Expr) -> Value:
    """An argument as C takes it: a bool as a byte."""
    held = w.expr(a)
    return w.b.convert("zext", held, "i8") if held.type == "i1" else held


def _string(w: Expressions, text: str) -> Value:
    data = text.encode() + b"\0"
    name = f"@.str{len(w.b.globals)}"
    body = "".join(f"\\{c:02X}" for c in data)
    w.b.globals.append(f'{name} = private unnamed_addr constant [{len(data)} x i8] c"{body}"')
    return Value("ptr", name)
