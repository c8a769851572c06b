"""``tvm.te.hybrid.script``: a function of Python's syntax that is a program.

Called with tensors it declares a stage, whose statements are those of the function; called with
NumPy arrays it is run by Python. Names that are assigned once stand for their value, others are
variables; conditions that are known while the program is written choose what is in it.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import operator
import textwrap
import types
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright import te
from tilewright.ir import ops
from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import Expr
from tilewright.target import Target, current_target
from tilewright.te import Tensor
from tilewright.tvm import ir_builder

_TYPES = "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()
_LOOPS = {"range": "serial", "const_range": "unroll", "parallel": "parallel", "unroll": "unroll",
          "vectorize": "vectorize"}  # fmt: skip
_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.Eq: operator.eq,
    ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.inv,
}  # fmt: skip


def _max_num_threads(allow_none: bool = True) -> int:
    return (current_target() or Target.parse("cuda")).max_num_threads


#: What a function's names mean while it is written into a program.
_WRITTEN: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(te, name)
        for name in (
            "abs ceil cos erf exp floor log popcount power round rsqrt sigmoid sin sqrt tanh"
        ).split()
    },
    **{name: lambda v, type=name: ops.cast(type, ops.as_expr(v)) for name in _TYPES},
    "ceil_div": lambda a, b: (a + b - 1) // b,
    "inf": te.max_value, "len": len, "likely": lambda v: v, "max_num_threads": _max_num_threads,
    "max": te.max, "min": te.min, "ninf": te.min_value,
}  # fmt: skip


def _zeros(shape: Any, dtype: Any = "float32", scope: str = "global") -> Any:
    return np.zeros(shape, str(dtype))


#: What they mean where Python runs it.
HYBRID_GLOBALS: dict[str, Any] = {
    **{name: getattr(np, name) for name in (*_TYPES, "exp", "log", "power", "sqrt", "tanh")},
    **dict.fromkeys(("const_range", "parallel", "unroll", "vectorize"), range),
    "allocate": _zeros, "bind": lambda tag, extent: range(extent), "ceil_div": _WRITTEN["ceil_div"],
    "inf": lambda type: np.iinfo(type).max, "likely": lambda v: v,
    "max_num_threads": _max_num_threads, "ninf": lambda type: np.iinfo(type).min,
    "output_tensor": _zeros, "popcount": lambda x: int(x).bit_count(),
    "round": np.round, "rsqrt": lambda x: 1 / np.sqrt(x), "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}  # fmt: skip


class Script:
    """A function that :func:`script` decorates."""

    def __init__(self, function: Any) -> None:
        self.function, self.__name__, self.__doc__ = function, function.__name__, function.__doc__
        self.__globals__ = function.__globals__

    def __call__(self, *args: Any) -> Any:
        if any(isinstance(a, (Tensor, Expr)) for a in args):
            return self._declare(args)
        f = self.function
        known = {**f.__globals__, **HYBRID_GLOBALS}
        return types.FunctionType(f.__code__, known, f.__name__, f.__defaults__, f.__closure__)(
            *args
        )

    def _declare(self, args: tuple[Any, ...]) -> Any:
        tree: Any = ast.parse(textwrap.dedent(inspect.getsource(self.function))).body[0]
        names = [a.arg for a in tree.args.args]
        if len(names) != len(args):
            raise LanguageError(f"{self.__name__} takes {len(names)} arguments, got {len(args)}")
        found = inspect.getclosurevars(self.function)
        known = {**found.globals, **found.nonlocals, **dict(zip(names, args, strict=True))}
        writer = _Writer(self.__name__, tree, known)
        shapes, dtypes = writer.outputs()
        tensors = [a for a in args if isinstance(a, Tensor)]

        def body(ins: Any, outs: Any) -> Any:
            buffers = dict(
                zip((n for n in names if isinstance(known[n], Tensor)), ins, strict=True)
            )
            buffers |= dict(zip(writer.returned, outs, strict=True))
            return writer.write(buffers)

        made = te.extern(shapes, tensors, body, self.__name__, dtypes)
        return made if isinstance(made, Tensor) else list(made)


def script(pyfunc: Any) -> Script:
    """Decorate a function: ``@te.hybrid.script``."""
    return Script(pyfunc)


class _Writer:
    """Writes the statements of one function."""

    def __init__(self, name: str, tree: ast.FunctionDef, known: dict[str, Any]) -> None:
        self.name, self.tree, self.values = name, tree, dict(known)
        self.ib: Any = None
        last = tree.body[-1]
        value = last.value if isinstance(last, ast.Return) else None
        parts = value.elts if isinstance(value, ast.Tuple) else [value]
        self.returned = [p.id for p in parts if isinstance(p, ast.Name)]
        if not self.returned or len(self.returned) != len(parts):
            raise self.error(tree, "it is to end with a return of what output_tensor made")
        stored = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and _is_store(n)]
        more = [n.target.id for n in ast.walk(tree)
                if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)]  # fmt: skip
        self.changed = {n for n, count in Counter(stored).items() if count > 1} | set(more)

    def error(self, node: Any, what: str) -> LanguageError:
        return LanguageError(f"{self.name}, line {node.lineno} of the script: {what}")

    def outputs(self) -> tuple[list[Any], list[str]]:
        """The shapes and types of what is returned."""
        made: dict[str, tuple[Any, str]] = {}
        for node in self.tree.body:
            if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
                continue
            target, (call, given) = node.targets[0].id, self.call(node.value)
            if call == "output_tensor":
                if len(given) != 2:
                    raise self.error(node, "output_tensor takes a shape and a type")
                shape, type = map(self.value, given)
                made[target] = tuple(shape), str(type)
            elif call != "allocate" and target not in self.changed:
                self.values[target] = self.value(node.value)
        missing = [n for n in self.returned if n not in made]
        if missing:
            raise self.error(self.tree, f"{missing[0]} is returned, but not made by output_tensor")
        return [made[n][0] for n in self.returned], [made[n][1] for n in self.returned]

    def call(self, node: Any) -> tuple[str, list[ast.expr]]:
        """The name of a function that is called, and its arguments; "" for what is no such call."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            return "", []
        if node.keywords:
            raise self.error(node, f"{node.func.id} takes its arguments by their places")
        return node.func.id, node.args

    def write(self, buffers: dict[str, Any]) -> Any:
        self.ib = ir_builder.create()
        self.values |= {name: self.ib.buffer_ptr(b) for name, b in buffers.items()}
        self.block(self.tree.body)
        return self.ib.get()

    # -- statements ----------------------------------------------------------------------------

    def block(self, nodes: list[ast.stmt]) -> None:
        for node in nodes:
            write = getattr(self, f"_{type(node).__name__.lower()}", None)
            if write is None:
                raise self.error(node, f"{type(node).__name__} is no statement of scripts")
            write(node)

    def _expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            raise self.error(node, "an expression does nothing by itself")

    def _pass(self, node: ast.stmt) -> None:
        pass

    _assert = _pass  # accesses are proved to be inside; assertions are for readers

    def _return(self, node: ast.Return) -> None:
        if node is not self.tree.body[-1]:
            raise self.error(node, "a function returns at its end")

    def _assign(self, node: ast.Assign) -> None:
        if len(node.targets) > 1:
            raise self.error(node, "one name or element is assigned to at a time")
        target, (call, given) = node.targets[0], self.call(node.value)
        if call == "output_tensor":
            return
        if call == "allocate" and isinstance(target, ast.Name):
            if not 1 <= len(given) <= 3:
                raise self.error(node, "allocate takes a shape, and a type, and a scope")
            shape, type, scope = self.memory(*map(self.value, given))
            self.values[target.id] = self.ib.allocate(type, shape, target.id, scope=scope)
            return
        self._store(target, self.value(node.value))

    def memory(self, shape: Any, dtype: Any = "float32", scope: str = "global") -> Any:
        """What ``allocate`` is given; the memory of a function is its own where none is said."""
        return shape, str(dtype), "local" if scope == "global" else scope

    def _augassign(self, node: ast.AugAssign) -> None:
        value = ast.copy_location(ast.BinOp(node.target, node.op, node.value), node)
        self._store(node.target, self.value(value))

    def _store(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Subscript):
            self.value(target.value)[self.value(target.slice)] = value
        elif not isinstance(target, ast.Name):
            raise self.error(target, "names and elements can be assigned to")
        elif target.id not in self.changed:
            reads = isinstance(value, Expr) and not value.exact
            self.values[target.id] = self.ib.let(target.id, value) if reads else value
        else:
            kept = self.values.get(target.id)
            if not isinstance(kept, _Variable):
                first = ops.as_expr(value)
                memory = self.ib.allocate(str(first.dtype), (1,), target.id, scope="local")
                kept = self.values[target.id] = _Variable(memory)
            kept.memory[0] = value

    def _for(self, node: ast.For) -> None:
        name, (call, args) = getattr(node.target, "id", "i"), self.call(node.iter)
        given = [self.value(a) for a in args]
        if node.orelse:
            raise self.error(node, "loops have no else")
        if call == "bind":
            axis = te.thread_axis(given[0])
            with self.ib.new_scope():
                self.ib.scope_attr(axis, "thread_extent", given[1])
                self.values[name] = axis.var
                self.block(node.body)
            return
        if call not in _LOOPS or len(given) > 2:
            raise self.error(node, f"loops go over {', '.join(_LOOPS)} of one or two numbers")
        low, high = given if len(given) == 2 else (0, given[0])
        with self.ib.for_range(low, high, name, kind=_LOOPS[call]) as i:
            self.values[name] = i
            self.block(node.body)

    def _if(self, node: ast.If) -> None:
        condition = self.value(node.test)
        if not isinstance(condition, Expr):
            self.block(node.body if condition else node.orelse)
            return
        with self.ib.if_scope(condition):
            self.block(node.body)
        if node.orelse:
            with self.ib.else_scope():
                self.block(node.orelse)

    # -- expressions ---------------------------------------------------------------------------

    def value(self, node: Any) -> Any:
        match node:
            case ast.Constant(value):
                return value
            case ast.Name(name):
                return self._named(node, name)
            case ast.Tuple(parts) | ast.List(parts):
                return tuple(map(self.value, parts))
            case ast.Attribute(inner, "shape" | "dtype" as name):
                found = self.value(inner)
                return getattr(getattr(found, "buffer", found), name)
            case ast.Subscript(inner, index):
                return self.value(inner)[self.value(index)]
            case ast.BinOp(a, op, b) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](self.value(a), self.value(b))
            case ast.BinOp(a, ast.Pow(), b):
                return te.power(self.value(a), self.value(b))
            case ast.UnaryOp(ast.Not(), a):
                held = self.value(a)
                return ~ops.as_condition(held) if isinstance(held, Expr) else not held
            case ast.UnaryOp(op, a):
                return _OPERATORS[type(op)](self.value(a))
            case ast.BoolOp(op, parts):
                return _joined(isinstance(op, ast.And), [self.value(p) for p in parts])
            case ast.Compare(first, signs, others) if all(type(op) in _OPERATORS for op in signs):
                values = [self.value(v) for v in (first, *others)]
                pairs = zip(signs, values, values[1:], strict=False)
                return _joined(True, [_compared(type(op), a, b) for op, a, b in pairs])
            case ast.IfExp(test, a, b):
                held = self.value(test)
                if not isinstance(held, Expr):
                    return self.value(a if held else b)
                return te.if_then_else(held, self.value(a), self.value(b))
            case ast.Call():
                name, args = self.call(node)
                if name in _WRITTEN:
                    return _WRITTEN[name](*map(self.value, args))
        raise self.error(node, f"{ast.unparse(node)} is no expression of scripts")

    def _named(self, node: ast.Name, name: str) -> Any:
        if name in self.values:
            found = self.values[name]
            return found.memory[0] if isinstance(found, _Variable) else found
        if hasattr(builtins, name):
            return getattr(builtins, name)
        raise self.error(node, f"{name} has no value here")


class _Variable:
    """A name that is assigned more than once: memory of one element."""

    def __init__(self, memory: Any) -> None:
        self.memory = memory


def _is_store(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _compared(op: type, a: Any, b: Any) -> Any:
    if op in (ast.Eq, ast.NotEq) and (isinstance(a, Expr) or isinstance(b, Expr)):
        same = ops.as_expr(a).equal(b)
        return same if op is ast.Eq else ~same
    return _OPERATORS[op](a, b)


def _joined(every: bool, parts: list[Any]) -> Any:
    open_ = [p for p in parts if isinstance(p, Expr)]
    fixed = [bool(p) for p in parts if not isinstance(p, Expr)]
    if not open_ or (every and not all(fixed)) or (not every and any(fixed)):
        return all(fixed) if every else any(fixed)
    return te.all(*open_) if every else te.any(*open_)
