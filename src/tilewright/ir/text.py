"""Programs as text, in the form of TVM's script."""

from __future__ import annotations

from tilewright.ir import expr as E
from tilewright.ir import stmt as S
from tilewright.ir.func import Func

_PRECEDENCE: list[tuple[type[E.Expr], ...]] = [
    (E.Or,), (E.And,), (E.Not,), (E.Compare,), (E.BitOr,), (E.BitXor,), (E.BitAnd,),
    (E.Shl, E.Shr), (E.Add, E.Sub), (E.Mul, E.Div, E.FloorDiv, E.FloorMod),
]  # fmt: skip


def expr_name(name: str) -> str:
    """A name as an identifier."""
    return name.replace(".", "_")


def _level(e: E.Expr) -> int:
    for level, classes in enumerate(_PRECEDENCE):
        if isinstance(e, classes):
            return level
    return len(_PRECEDENCE)


def expr_text(e: E.Expr) -> str:
    """An expression on one line."""

    def sub(child: E.Expr, strict: bool = False) -> str:
        text = expr_text(child)
        inner, outer = _level(child), _level(e)
        return f"({text})" if inner < outer or (strict and inner == outer) else text

    match e:
        case E.Var(name):
            return expr_name(name)
        case E.IntImm(t, value):
            return str(bool(value)) if t.is_bool else str(value)
        case E.FloatImm(t, value):
            short = (
                int(value)
                if value == value and abs(value) < 1e15 and value == int(value)
                else value
            )
            return f"T.{t}({short})"
        case E.StringImm(value):
            return repr(value)
        case E.And(a, b):
            return f"{sub(a)} and {sub(b)}"
        case E.Or(a, b):
            return f"{sub(a)} or {sub(b)}"
        case E.Not(a):
            return f"not {sub(a)}"
        case E.Min(a, b) | E.Max(a, b):
            return f"T.{type(e).__name__.lower()}({expr_text(a)}, {expr_text(b)})"
        case E.TruncDiv(a, b) | E.TruncMod(a, b):
            name = "truncdiv" if isinstance(e, E.TruncDiv) else "truncmod"
            return f"T.{name}({expr_text(a)}, {expr_text(b)})"
        case E.Binary(a, b):
            return f"{sub(a)} {e.symbol} {sub(b, strict=True)}"
        case E.Compare(a, b):
            return f"{sub(a, strict=True)} {e.symbol} {sub(b, strict=True)}"
        case E.Cast(t, value):
            return f"T.Cast({str(t)!r}, {expr_text(value)})"
        case E.Select(c, t, f):
            name = "if_then_else" if isinstance(e, E.IfThenElse) else "Select"
            return f"T.{name}({expr_text(c)}, {expr_text(t)}, {expr_text(f)})"
        case E.Load(buffer, indices, predicate):
            text = f"{expr_name(buffer.name)}[{', '.join(map(expr_text, indices))}]"
            return text if predicate is None else f"{text}.where({expr_text(predicate)})"
        case E.Ramp(base, stride, lanes):
            return f"T.Ramp({expr_text(base)}, {expr_text(stride)}, {lanes})"
        case E.Broadcast(value, lanes):
            return f"T.Broadcast({expr_text(value)}, {lanes})"
        case E.Lane(vector, index):
            return f"T.lane({expr_text(vector)}, {index})"
        case E.Concat(values):
            return f"T.concat({', '.join(map(expr_text, values))})"
        case E.Call(_, name, args):
            return f"T.{name}({', '.join(map(expr_text, args))})"
        case E.LetExpr(var, value, body):
            return f"T.let({expr_text(var)}, {expr_text(value)}, {expr_text(body)})"
        case E.Reduce(reducer, source, axes, condition, _, _):
            where = "" if E.IntImm(E.BOOL, 1) is condition else f", where={expr_text(condition)}"
            over = ", ".join(expr_text(axis.var) for axis in axes)
            return f"{reducer.name}({', '.join(map(expr_text, source))}, axis=[{over}]{where})"
    raise AssertionError(f"no text for {type(e).__name__}")


def stmt_text(s: S.Stmt, indent: int = 0) -> str:
    """A statement, one line a store or a loop."""
    pad = "    " * indent
    match s:
        case S.For(var, low, extent, kind, body, tag, _):
            if kind in (S.ForKind.THREAD, S.ForKind.VTHREAD):
                head = f"{pad}{expr_text(var)} = T.launch_thread({tag!r}, {expr_text(extent)})"
                return f"{head}\n{stmt_text(body, indent)}"
            end = expr_text(low + extent)
            span = (
                end if isinstance(low, E.IntImm) and low.value == 0 else f"{expr_text(low)}, {end}"
            )
            form = "range" if kind is S.ForKind.SERIAL else f"T.{kind.value}"
            return f"{pad}for {expr_text(var)} in {form}({span}):\n{stmt_text(body, indent + 1)}"
        case S.Store(buffer, indices, value, predicate):
            where = "" if predicate is None else f"  # where {expr_text(predicate)}"
            place = ", ".join(map(expr_text, indices))
            return f"{pad}{expr_name(buffer.name)}[{place}] = {expr_text(value)}{where}"
        case S.If(condition, then, orelse):
            text = f"{pad}if {expr_text(condition)}:\n{stmt_text(then, indent + 1)}"
            return (
                text if orelse is None else f"{text}\n{pad}else:\n{stmt_text(orelse, indent + 1)}"
            )
        case S.Seq(stmts):
            return "\n".join(stmt_text(x, indent) for x in stmts) or f"{pad}pass"
        case S.Allocate(buffer, body):
            shape = ", ".join(map(expr_text, buffer.shape))
            where = f"{str(buffer.dtype)!r}, {buffer.scope!r}"
            head = f"{pad}{expr_name(buffer.name)} = T.allocate([{shape}], {where})"
            return f"{head}\n{stmt_text(body, indent)}"
        case S.Let(var, value, body):
            head = f"{pad}{expr_text(var)}: T.{var.dtype} = {expr_text(value)}"
            return f"{head}\n{stmt_text(body, indent)}"
        case S.Evaluate(value):
            return f"{pad}{expr_text(value)}"
        case S.Attr(key, value, body):
            return f"{pad}with T.attr({key!r}, {value!r}):\n{stmt_text(body, indent + 1)}"
        case S.Sync(scope):
            return f"{pad}T.sync({scope!r})"
        case S.AllReduce(reducer, buffers, indices, source, condition, axes, _):
            over = ", ".join(expr_text(a) for a in axes)
            into = ", ".join(
                f"{expr_name(b.name)}[{', '.join(map(expr_text, indices))}]" for b in buffers
            )
            values = ", ".join(map(expr_text, source))
            where = f", where={expr_text(condition)}"
            return f"{pad}{into} = T.allreduce({reducer.name!r}, {values}, over=[{over}]{where})"
        case S.Instr(instruction, _, operands, body):
            views = ", ".join(
                f"{expr_name(o.buffer.name)}[{', '.join(map(expr_text, o.indices))}]"
                for o in operands
            )
            head = (
                f"{pad}with T.instruction({getattr(instruction, 'name', instruction)!r}, {views}):"
            )
            return f"{head}\n{stmt_text(body, indent + 1)}"
    raise AssertionError(f"no text for {type(s).__name__}")


def func_text(f: Func) -> str:
    """A function with its parameters and launch axes."""
    params = []
    for p in f.params:
        if isinstance(p, E.Var):
            params.append(f"{expr_name(p.name)}: T.{p.dtype}")
        else:
            shape = ", ".join(map(expr_text, p.shape)) + ("," if len(p.shape) == 1 else "")
            params.append(f'{expr_name(p.name)}: T.Buffer(({shape}), "{p.dtype}")')
    lines = [f"def {f.name}({', '.join(params)}):"]
    for axis in f.launch:
        lines.append(
            f"    {expr_text(axis.var)} = T.launch_thread({axis.tag!r}, {expr_text(axis.extent)})"
        )
    return "\n".join([*lines, stmt_text(f.body, 1)])
