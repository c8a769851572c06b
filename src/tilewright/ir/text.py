"""Programs as text, close to TVM's script: what ``repr`` shows of a program and of its parts.

:mod:`tilewright.ir.script` prints whole programs in the form of TVM's articles.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir import expr as E
from tilewright.ir import stmt as S
from tilewright.ir.buffer import Buffer
from tilewright.ir.func import Func
from tilewright.ir.parts import in_parts
from tilewright.ir.visit import Steps, run

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


class Printer:
    """Writes expressions, statements and functions; names may repeat."""

    quote = staticmethod(repr)

    def name(self, thing: E.Var | Buffer) -> str:
        """What a variable or a buffer is called."""
        return expr_name(thing.name)

    def exprs(self, values: Sequence[E.Expr]) -> str:
        """Expressions with commas between them."""
        return ", ".join(map(self.expr, values))

    def element(self, buffer: Buffer, indices: Sequence[E.Expr]) -> str:
        """An element of a buffer."""
        return f"{self.name(buffer)}[{self.exprs(indices)}]"

    def expr(self, e: E.Expr) -> str:
        """An expression on one line."""

        def sub(child: E.Expr, strict: bool = False) -> str:
            text = self.expr(child)
            inner, outer = _level(child), _level(e)
            return f"({text})" if inner < outer or (strict and inner == outer) else text

        match e:
            case E.Var():
                return self.name(e)
            case E.IntImm(t, value):
                return str(bool(value)) if t.is_bool else str(value)
            case E.FloatImm(t, value):
                whole = value == value and abs(value) < 1e15 and value == int(value)
                return f"T.{t}({int(value) if whole else value})"
            case E.StringImm(value):
                return self.quote(value)
            case E.And(a, b):
                return f"{sub(a)} and {sub(b)}"
            case E.Or(a, b):
                return f"{sub(a)} or {sub(b)}"
            case E.Not(a):
                return f"not {sub(a)}"
            case E.Min(a, b) | E.Max(a, b):
                return f"T.{type(e).__name__.lower()}({self.exprs((a, b))})"
            case E.TruncDiv(a, b) | E.TruncMod(a, b):
                name = "truncdiv" if isinstance(e, E.TruncDiv) else "truncmod"
                return f"T.{name}({self.exprs((a, b))})"
            case E.Binary(a, b):
                return f"{sub(a)} {e.symbol} {sub(b, strict=True)}"
            case E.Compare(a, b):
                return f"{sub(a, strict=True)} {e.symbol} {sub(b, strict=True)}"
            case E.Cast(t, value):
                return f"T.Cast({self.quote(str(t))}, {self.expr(value)})"
            case E.Select(c, t, f):
                name = "if_then_else" if isinstance(e, E.IfThenElse) else "Select"
                return f"T.{name}({self.exprs((c, t, f))})"
            case E.Load(buffer, indices, predicate):
                text = self.element(buffer, indices)
                return text if predicate is None else f"{text}.where({self.expr(predicate)})"
            case E.Ramp(base, stride, lanes):
                return f"T.Ramp({self.exprs((base, stride))}, {lanes})"
            case E.Broadcast(value, lanes):
                return f"T.Broadcast({self.expr(value)}, {lanes})"
            case E.Lane(vector, index):
                return f"T.lane({self.expr(vector)}, {index})"
            case E.Concat(values):
                return f"T.concat({self.exprs(values)})"
            case E.Call(_, name, args):
                return f"T.{name}({self.exprs(args)})"
            case E.LetExpr(var, value, body):
                return f"T.let({self.exprs((var, value, body))})"
            case E.Reduce(reducer, source, axes, condition, _, _):
                whole = condition is E.IntImm(E.BOOL, 1)
                where = "" if whole else f", where={self.expr(condition)}"
                over = self.exprs([axis.var for axis in axes])
                return f"{reducer.name}({self.exprs(source)}, axis=[{over}]{where})"
        raise AssertionError(f"no text for {type(e).__name__}")

    def span(self, low: E.Expr, extent: E.Expr) -> str:
        """The arguments of a loop's range."""
        end = self.expr(low + extent)
        return end if isinstance(low, E.IntImm) and low.value == 0 else f"{self.expr(low)}, {end}"

    def stmt(self, s: S.Stmt, indent: int = 0) -> str:
        """A statement, one line a store or a loop."""
        text: str = run(self._steps(s, indent))
        return text

    def _steps(self, s: S.Stmt, indent: int) -> Steps:
        pad = "    " * indent
        match s:
            case S.For(_, _, _, S.ForKind.THREAD | S.ForKind.VTHREAD, body):
                inner = yield self._steps(body, indent)
                return f"{pad}{self.thread(s)}\n{inner}"
            case S.For(var, low, extent, kind, body):
                form = "range" if kind is S.ForKind.SERIAL else f"T.{kind.value}"
                head = f"for {self.expr(var)} in {form}({self.span(low, extent)}):"
                inner = yield self._steps(body, indent + 1)
                return f"{pad}{head}\n{inner}"
            case S.If(condition, then, orelse):
                inner = yield self._steps(then, indent + 1)
                text = f"{pad}if {self.expr(condition)}:\n{inner}"
                if orelse is None:
                    return text
                inner = yield self._steps(orelse, indent + 1)
                return f"{text}\n{pad}else:\n{inner}"
            case S.Seq(stmts):
                lines = []
                for x in stmts:
                    lines.append((yield self._steps(x, indent)))
                return "\n".join(lines) or f"{pad}pass"
            case S.Allocate(buffer, body):
                head = f"{self.name(buffer)} = {self.allocation(buffer)}"
                inner = yield self._steps(body, indent)
                return f"{pad}{head}\n{inner}"
            case S.Let(var, value, body):
                head = f"{self.name(var)}: T.{var.dtype} = {self.expr(value)}"
                inner = yield self._steps(body, indent)
                return f"{pad}{head}\n{inner}"
            case S.Begins(_, body):  # the text would be the same without it
                return (yield self._steps(body, indent))
            case S.Remark(body=body):
                inner = yield self._steps(body, indent + 1)
                return f"{pad}{self.remark(s)}\n{inner}"
            case S.Sync(_, frees) if frees:
                return f"{pad}{self.remark(s)}\n{pad}    {self.action(s)}"
            case S.Instr(_, _, _, body):
                inner = yield self._steps(body, indent + 1)
                return f"{pad}{self.instruction(s)}\n{inner}"
        return pad + self.action(s)

    def thread(self, s: S.For) -> str:
        """The head of a loop over threads."""
        launch = f"T.launch_thread({self.quote(s.tag)}, {self.expr(s.extent)})"
        return f"{self.name(s.var)} = {launch}"

    def allocation(self, buffer: Buffer) -> str:
        """What makes a buffer."""
        types = f"{self.quote(str(buffer.dtype))}, {self.quote(buffer.scope)}"
        return f"T.allocate([{self.exprs(buffer.shape)}], {types})"

    def instruction(self, s: S.Instr) -> str:
        """The head of an instruction, whose loops follow."""
        views = ", ".join(self.element(o.buffer, o.indices) for o in s.operands)
        name: Any = getattr(s.instruction, "name", s.instruction)
        return f"with T.instruction({self.quote(name)}, {views}):"

    def remark(self, s: S.Stmt) -> str:
        """The head of a remark."""
        key, value = remark(s)
        return f"with T.attr({self.quote(key)}, {self.quote(value)}):"

    def action(self, s: S.Stmt) -> str:
        """A statement that holds no others."""
        match s:
            case S.Store(buffer, indices, value, predicate):
                where = "" if predicate is None else f"  # where {self.expr(predicate)}"
                return f"{self.element(buffer, indices)} = {self.expr(value)}{where}"
            case S.Evaluate(value):
                return self.expr(value)
            case S.Sync(scope):
                return f"T.sync({self.quote(scope)})"
            case S.Queue(queue, action, pending):
                count = f", {pending}" if action == "wait" else ""
                return f"T.queue({self.quote(queue)}, {self.quote(action)}{count})"
            case S.AllReduce(reducer, buffers, indices, source, condition, axes, _):
                into = ", ".join(self.element(b, indices) for b in buffers)
                how = f"{self.quote(reducer.name)}, {self.exprs(source)}"
                where = f"over=[{self.exprs(axes)}], where={self.expr(condition)}"
                return f"{into} = T.allreduce({how}, {where})"
        raise AssertionError(f"no text for {type(s).__name__}")

    def parameter(self, p: Buffer | E.Var) -> str:
        """A parameter with its type."""
        if isinstance(p, E.Var):
            return f"{self.name(p)}: T.{p.dtype}"
        shape = self.exprs(p.shape) + ("," if len(p.shape) == 1 else "")
        return f'{self.name(p)}: T.Buffer(({shape}), "{p.dtype}")'

    def signature(self, f: Func) -> str:
        """The first line of a function."""
        return f"def {f.name}({', '.join(map(self.parameter, f.params))}):"

    def func(self, f: Func) -> str:
        """A function with its parameters and launch axes."""
        lines = [self.signature(f)]
        for axis in f.launch:
            launch = f"T.launch_thread({self.quote(axis.tag)}, {self.expr(axis.extent)})"
            lines.append(f"    {self.name(axis.var)} = {launch}")
        if f.producer:
            lines.append("    T.producer()")
        return "\n".join([*lines, self.stmt(f.body, 1)])


_PLAIN = Printer()


def remark(s: S.Stmt) -> tuple[str, Any]:
    """What a remark, or a barrier beside its scope, says: a word, and of what."""
    match s:
        case S.Produce(stage, _):
            return "produce", stage
        case S.Sync(_, frees, split):
            return "split" if split else "frees", frees
        case S.Tensorize(instruction, _, _):
            return "tensorize", getattr(instruction, "name", instruction)
        case S.FillAhead(buffer, stages, over, _, producer):
            return "produced" if producer else "pipeline", (buffer, stages, over)
        case S.Iteration():
            return "iteration", None
        case S.Committed(queue, _):
            return "committed", queue
    raise AssertionError(f"no text for {type(s).__name__}")


def expr_text(e: E.Expr) -> str:
    """An expression on one line; a large one in parts, those that it uses before it.

    >>> x = E.Var.make("x", "float32")
    >>> e = x
    >>> for _ in range(12):
    ...     e = e * e + x
    >>> text = expr_text(e)
    >>> text[:42], text[-19:]
    ('part0 = x * x + x; part1 = part0 * part0 +', 'part10 * part10 + x')
    """
    parts, (value,) = in_parts((e,))
    named = [f"{_PLAIN.name(var)} = {_PLAIN.expr(part)}" for var, part in parts]
    return "; ".join([*named, _PLAIN.expr(value)])


def stmt_text(s: S.Stmt, indent: int = 0) -> str:
    """A statement, one line a store or a loop."""
    return _PLAIN.stmt(s, indent)


def func_text(f: Func) -> str:
    """A function with its parameters and launch axes."""
    return _PLAIN.func(f)
