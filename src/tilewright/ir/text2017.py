"""Programs as text, in the form that TVM printed in 2017: ``produce C { for (i, 0, 4) { ... } }``.

Expressions carry all their parentheses, names keep their dots.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ir import expr as E
from tilewright.ir import stmt as S
from tilewright.ir.buffer import Buffer
from tilewright.ir.func import Func
from tilewright.ir.text import remark
from tilewright.ir.visit import allocated

_NAMES: dict[type[E.Expr], str] = {
    E.FloorDiv: "floordiv", E.FloorMod: "floormod", E.Min: "min", E.Max: "max",
}  # fmt: skip
_SYMBOLS: dict[type[E.Expr], str] = {
    E.And: "&&", E.Or: "||", E.TruncDiv: "/", E.TruncMod: "%",
}  # fmt: skip


def expr_text(e: E.Expr) -> str:
    """An expression in C's manner."""
    match e:
        case E.Var(name):
            return name
        case E.IntImm(t, value):
            text = str(value) if t == "int32" or t.is_bool else f"({t}){value}"
            return text
        case E.FloatImm(t, value):
            return f"{value:.6f}" + {"float32": "f", "float16": "h"}.get(t, "")
        case E.StringImm(value):
            return f'"{value}"'
        case E.FloorDiv(a, E.IntImm()) | E.FloorMod(a, E.IntImm()):
            return f"({expr_text(a)}{'/' if isinstance(e, E.FloorDiv) else ' % '}{expr_text(e.b)})"
        case E.Binary(a, b) if type(e) in _NAMES:
            return f"{_NAMES[type(e)]}({expr_text(a)}, {expr_text(b)})"
        case E.Mul(a, b):
            return f"({expr_text(a)}*{expr_text(b)})"
        case E.Binary(a, b) | E.Compare(a, b):
            return f"({expr_text(a)} {_SYMBOLS.get(type(e), e.symbol)} {expr_text(b)})"
        case E.Not(a):
            return f"!{expr_text(a)}"
        case E.Cast(t, value):
            return f"{t}({expr_text(value)})"
        case E.Select(c, t, f):
            name = "tvm_if_then_else" if isinstance(e, E.IfThenElse) else "select"
            return f"{name}({expr_text(c)}, {expr_text(t)}, {expr_text(f)})"
        case E.Load(buffer, indices, predicate):
            where = "" if predicate is None else f" if {expr_text(predicate)}"
            return f"{buffer.name}[{', '.join(map(expr_text, indices))}]{where}"
        case E.Ramp(base, stride, lanes):
            return f"ramp({expr_text(base)}, {expr_text(stride)}, {lanes})"
        case E.Broadcast(value, lanes):
            return f"x{lanes}({expr_text(value)})"
        case E.Lane(vector, index):
            return f"{expr_text(vector)}.s{index}"
        case E.Concat(values):
            return f"concat({', '.join(map(expr_text, values))})"
        case E.Call(_, name, args):
            return f"{name}({', '.join(map(expr_text, args))})"
        case E.LetExpr(var, value, body):
            return f"(let {var.name} = {expr_text(value)} in {expr_text(body)})"
        case E.Reduce(reducer, source, axes, _, _, _):
            over = ", ".join(axis.var.name for axis in axes)
            return f"reduce({reducer.name}, {', '.join(map(expr_text, source))}, axis=[{over}])"
    raise AssertionError(f"no text for {type(e).__name__}")


def stmt_text(
    s: S.Stmt, indent: int = 0, shapes: Mapping[Buffer, tuple[E.Expr, ...]] | None = None
) -> str:
    """A statement; loops over hardware threads stand as attributes, as TVM had them.

    ``shapes`` gives buffers another shape where they are allocated: that of before flattening.
    """
    pad = "  " * indent

    def block(head: str, body: S.Stmt) -> str:
        return f"{pad}{head} {{\n{inner(body, 1)}\n{pad}}}"

    def inner(body: S.Stmt, deeper: int = 0) -> str:
        return stmt_text(body, indent + deeper, shapes)

    match s:
        case S.For(var, _, extent, S.ForKind.THREAD, body, tag):
            axis = (
                f"iter_var({tag}, , {tag})" if var.name == tag else f"iter_var({var.name}, , {tag})"
            )
            head = f"{pad}// attr [{axis}] thread_extent = {expr_text(extent)}"
            return f"{head}\n{inner(body)}"
        case S.For(var, low, extent, kind, body):
            word = {S.ForKind.SERIAL: "for"}.get(kind, kind.value)
            return block(f"{word} ({var.name}, {expr_text(low)}, {expr_text(extent)})", body)
        case S.Store(buffer, indices, value, predicate):
            where = "" if predicate is None else f" if {expr_text(predicate)}"
            place = ", ".join(map(expr_text, indices))
            return f"{pad}{buffer.name}[{place}] = {expr_text(value)}{where}"
        case S.If(condition, then, orelse):
            text = block(f"if ({expr_text(condition)})", then)
            if orelse is None:
                return text
            return f"{text} else {{\n{inner(orelse, 1)}\n{pad}}}"
        case S.Seq(stmts):
            return "\n".join(inner(x) for x in stmts)
        case S.Allocate(buffer, body):
            extents = (shapes or {}).get(buffer, buffer.shape)
            scope = f'{pad}// attr [{buffer.name}] storage_scope = "{buffer.scope}"'
            shape = "".join(f" * {expr_text(extent)}" for extent in extents)
            made = f"{pad}allocate {buffer.name}[{buffer.dtype}{shape}]"
            return f"{scope}\n{made}\n{inner(body)}"
        case S.Begins(_, body):
            return inner(body)
        case S.Produce(stage, body):
            return block(f"produce {stage}", body)
        case S.Remark(body=body):
            key, value = remark(s)
            return f"{pad}// attr {key} = {value}\n{inner(body)}"
        case S.Let(var, value, body):
            return f"{pad}let {var.name} = {expr_text(value)}\n{inner(body)}"
        case S.Evaluate(value):
            return f"{pad}{expr_text(value)}"
        case S.Sync(scope, frees):
            key, value = remark(s)
            note = f"{pad}// attr {key} = {value}\n" if frees else ""
            return f'{note}{pad}tvm_storage_sync("{scope}")'
        case S.AllReduce(reducer, buffers, indices, source, _, axes):
            over = ", ".join(a.name for a in axes)
            into = ", ".join(f"{b.name}[{', '.join(map(expr_text, indices))}]" for b in buffers)
            values = ", ".join(map(expr_text, source))
            return f"{pad}{into} = tvm_thread_allreduce({reducer.name}, {values}, {over})"
        case S.Instr(instruction, _, _, body):
            name = getattr(instruction, "name", instruction)
            return f"{pad}// attr instruction = {name}\n{inner(body)}"
    raise AssertionError(f"no text for {type(s).__name__}")


def func_text(f: Func) -> str:
    """The body of a function; launch axes come first, as attributes."""
    lines = [
        f"// attr [iter_var({a.tag}, , {a.tag})] thread_extent = {expr_text(a.extent)}"
        for a in f.launch
    ]
    return "\n".join([*lines, stmt_text(f.body)])


def program_text(func: Func, flat: Func) -> str:
    """The body of ``flat``, which is ``func`` over flat buffers, with the shapes of ``func``."""
    pairs = zip(allocated(flat.body), allocated(func.body), strict=True)
    return stmt_text(flat.body, shapes={new: old.shape for new, old in pairs})
