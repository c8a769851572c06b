"""Walking and rewriting programs: one generic rewriter, and the questions asked everywhere."""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, TypeAlias, cast, final

from tilewright.ir.buffer import Buffer
from tilewright.ir.dtype import wrapped
from tilewright.ir.expr import (
    Add,
    Binary,
    Call,
    Compare,
    Expr,
    FloatImm,
    FloorDiv,
    IntImm,
    LetExpr,
    Load,
    Mul,
    Reduce,
    Reducer,
    Shl,
    StringImm,
    Sub,
    TruncDiv,
    Var,
)
from tilewright.ir.stmt import (
    Access,
    Allocate,
    AllReduce,
    For,
    If,
    Instr,
    Let,
    Remark,
    Seq,
    Stmt,
    Store,
)
from tilewright.ir.values import as_data

Node = Expr | Stmt
_NODES = (Expr, Stmt)

#: Expressions without others below them.
_LEAVES = frozenset({Var, IntImm, FloatImm, StringImm})


def _kinds(cls: Any) -> Iterator[Any]:
    """A class and all that are derived from it."""
    yield cls
    for derived in cls.__subclasses__():
        yield from _kinds(derived)


#: Expressions of two operands, ``a`` and ``b``.
_PAIRS = frozenset((*_kinds(Binary), *_kinds(Compare)))

#: Arithmetic of which the result may leave the range of its operands' type.
WRAPPING = (Add, Sub, Mul, Shl, FloorDiv, TruncDiv)
_ON_CONSTANTS: dict[type, Callable[[int, int], int]] = {
    Add: operator.add, Sub: operator.sub, Mul: operator.mul
}  # fmt: skip

#: Fields that hold no expressions to descend into, of all node classes and by class.
_PLAIN = ("dtype", "name", "kind", "tag", "annotations", "pipelines", "reducer")
_OPAQUE: dict[type, tuple[str, ...]] = {
    Reduce: ("reducer", "axes", "index"),
}


@cache
def _fields(cls: Any) -> tuple[tuple[str, bool], ...]:
    """The fields of a node class, and whether there may be expressions or buffers in them."""
    names: tuple[str, ...] = cls.__match_args__
    skip = {*_OPAQUE.get(cls, ()), *_PLAIN}
    return tuple((name, name not in skip) for name in names)


@cache
def _inner(cls: Any) -> Callable[[Any], tuple[Any, ...]]:
    """Reads those fields of a node, but for buffers."""
    buffers = ("buffer", "buffers", "frees")
    names = [name for name, descends in _fields(cls) if descends and name not in buffers]
    read = operator.attrgetter(*names) if names else lambda node: ()
    return read if len(names) != 1 else lambda node: (read(node),)


#: A call that may be nested to any depth, as :func:`run` carries it out: what it yields are calls
#: that it waits for, what it is sent are their results.
Steps: TypeAlias = Generator[Any, Any, Any]


def run(steps: Steps) -> Any:
    """Carry out recursive calls that are written as generators, on a stack of their own.

    Where a function would call itself, its generator yields the generator of that call, and gets
    what it returns, or the exception that it raises.
    """
    stack = [steps]
    result: Any = None
    error: BaseException | None = None
    while stack:
        top = stack[-1]
        try:
            if error is not None:
                called, error = top.throw(error), None
                stack.append(called)
                top, result = called, None
            while True:
                called = top.send(result)
                stack.append(called)
                top, result = called, None
        except StopIteration as stop:
            result, error = stop.value, None
            stack.pop()
        except BaseException as raised:
            error = raised
            stack.pop()
    if error is not None:
        raise error
    return result


#: Statements that hold others.
_NESTS = frozenset({For, If, Seq, Allocate, Let, Instr, *Remark.__subclasses__()})


def remade(old: Binary | Compare, a: Expr, b: Expr) -> Expr:
    """``old`` of other operands.

    What was arithmetic on data stays that where the data turns out to be indices and constants, as
    it does where an element is computed in place of the one that was read: it wraps around.
    """
    new = type(old)(a, b)
    if not new.exact or old.exact or not isinstance(old, WRAPPING):
        return new
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        compute = _ON_CONSTANTS.get(type(old))
        if compute is not None:
            return IntImm(a.dtype, wrapped(compute(a.value, b.value), a.dtype))
    return type(old)(as_data(a), b)


class Rewriter:
    """Rebuilds a program from the leaves up, keeping every part that does not change.

    Override :meth:`expr` or :meth:`steps`, match the nodes of interest and fall back to
    ``super()``, which descends::

        class Double(Rewriter):
            def expr(self, e: Expr) -> Expr:
                match e:
                    case IntImm(t, v): return const(2 * v, t)
                return super().expr(e)

    Statements nest as deep as a program has stages, so for them override :meth:`steps`, whose
    calls of itself do not take Python's stack::

            def steps(self, s: Stmt) -> Steps:
                match s:
                    case Remark(body=body): return (yield self.steps(body))
                return (yield from super().steps(s))
    """

    def __init_subclass__(cls) -> None:
        if "stmt" in vars(cls):
            raise TypeError(f"{cls.__name__}: override steps, which stmt carries out")

    def expr(self, e: Expr) -> Expr:
        """The expression that replaces ``e``."""
        cls: Any = type(e)
        if cls in _LEAVES:
            return e
        if cls in _PAIRS:
            pair: Any = e
            a, b = self.expr(pair.a), self.expr(pair.b)
            return e if a is pair.a and b is pair.b else remade(pair, a, b)
        found: Expr = self._rebuilt(e, cls)
        return found

    @final
    def stmt(self, s: Stmt) -> Stmt:
        """The statement that replaces ``s``."""
        found: Stmt = run(self.steps(s))
        return found

    def steps(self, s: Stmt) -> Steps:
        """What :meth:`stmt` does, as :func:`run` carries it out."""
        if type(s) not in _NESTS:
            return self._rebuilt(s, type(s))
        changed = False
        args: list[Any] = []
        cls: Any = type(s)
        for name, descends in _fields(cls):
            old = getattr(s, name)
            new = old
            if isinstance(old, Stmt):
                new = yield self.steps(old)
            elif cls is Seq:
                parts = []
                for x in old:
                    parts.append((yield self.steps(x)))
                new = old if all(map(operator.is_, old, parts)) else tuple(parts)
            elif descends:
                new = self._field(old)
            changed = changed or new is not old
            args.append(new)
        return cls(*args) if changed else s

    def _rebuilt(self, node: Any, cls: Any) -> Any:
        args: list[Any] = []
        changed = False
        for name, descends in _fields(cls):
            old = getattr(node, name)
            if descends:
                new = self._field(old)
                changed = changed or new is not old
                old = new
            args.append(old)
        return cls(*args) if changed else node

    def buffer(self, b: Buffer) -> Buffer:
        """The buffer that replaces ``b`` wherever it is used."""
        return b

    def _field(self, old: Any) -> Any:
        if isinstance(old, Expr):
            return self.expr(old)
        if old is None:
            return None
        if isinstance(old, Buffer):
            return self.buffer(old)
        if isinstance(old, tuple):
            new = [self._field(item) for item in old]
            return old if all(map(operator.is_, old, new)) else tuple(new)
        if isinstance(old, Access):
            buffer, indices = self.buffer(old.buffer), self._field(old.indices)
            window = self._field(old.window)
            same = buffer is old.buffer and indices is old.indices and window is old.window
            return old if same else replace(old, buffer=buffer, indices=indices, window=window)
        return old


class BottomUp(Rewriter):
    """A rewriter that treats every distinct expression once, its operands first.

    It keeps a stack of its own, so that expressions may be of any height, and time goes by the
    number of distinct nodes however often they occur. Override :meth:`given`, :meth:`made` and
    ``expanded``; what replaces an expression must not depend on where it stands.
    """

    #: Of an expression whose operands are replaced, one to be treated in its place, or None.
    expanded: Callable[[Expr], Expr | None] | None = None

    def __init__(self) -> None:
        self.memo: dict[Expr, Expr] = {}

    def given(self, e: Expr) -> Expr | None:
        """What replaces ``e`` as it is, without looking into it; None to descend."""
        return None

    def made(self, old: Expr, new: Expr) -> Expr:
        """What replaces ``old``, which is ``new`` now that its operands are replaced."""
        return new

    def expr(self, e: Expr) -> Expr:
        memo = self.memo
        found = memo.get(e)
        if found is not None:
            return found
        stack: list[Any] = [e]
        while stack:
            node = stack[-1]
            if node in memo:
                stack.pop()
                continue
            found = self.given(node)
            if found is None:
                if type(node) in _LEAVES:
                    found = node
                else:
                    waiting = [x for x in reversed(below(node)) if x not in memo]
                    if waiting:
                        stack += waiting
                        continue
                    found = super().expr(node)
                further = None if self.expanded is None else self.expanded(found)
                if further is None:
                    found = self.made(node, found)
                elif further in memo:
                    found = memo[further]
                else:
                    stack.append(further)
                    continue
            memo[node] = found
            stack.pop()
        return memo[e]


class _Substitution(BottomUp):
    def __init__(self, mapping: Mapping[Expr, Expr]) -> None:
        super().__init__()
        self.given = mapping.get  # type: ignore[assignment, method-assign]

    def made(self, old: Expr, new: Expr) -> Expr:
        """A reducer may read axes of the element that is computed too."""
        if not isinstance(new, Reduce):
            return new
        known = new.reducer
        before = (*known.result, *known.identity)
        after = tuple(map(self.expr, before))
        if all(a is b for a, b in zip(after, before, strict=True)):
            return new
        result, identity = after[: len(known.result)], after[len(known.result) :]
        reducer = Reducer(known.name, known.lhs, known.rhs, result, identity)
        return Reduce(reducer, new.source, new.axes, new.condition, new.index, new.init)


def substitute(node: Any, mapping: Mapping[Any, Expr]) -> Any:
    """``node`` with every expression that is a key replaced by its value, all at once.

    Replacements are put in as they are, without simplifying; type of ``node`` is kept.
    """
    if not mapping:
        return node
    rewriter = _Substitution(mapping)
    return rewriter.expr(node) if isinstance(node, Expr) else rewriter.stmt(node)


class _BufferReplacement(BottomUp):
    def __init__(self, mapping: Mapping[Buffer, Buffer]) -> None:
        super().__init__()
        self.mapping = mapping

    def buffer(self, b: Buffer) -> Buffer:
        return self.mapping.get(b, b)


def replace_buffers(node: Any, mapping: Mapping[Buffer, Buffer]) -> Any:
    """``node`` with buffers replaced by others of the same rank."""
    rewriter = _BufferReplacement(mapping)
    return rewriter.expr(node) if isinstance(node, Expr) else rewriter.stmt(node)


class _Rule(BottomUp):
    def __init__(self, rule: Callable[[Expr], Expr | None]) -> None:
        super().__init__()
        self.rule = rule

    def made(self, old: Expr, new: Expr) -> Expr:
        found = self.rule(new)
        return new if found is None else found


def rewrite_exprs(node: Any, rule: Callable[[Expr], Expr | None]) -> Any:
    """Apply ``rule`` to every distinct expression, children first; None keeps it."""
    rewriter = _Rule(rule)
    return rewriter.expr(node) if isinstance(node, Expr) else rewriter.stmt(node)


def below(node: Node) -> list[Node]:
    cls: Any = type(node)
    pair: Any = node
    if cls in _PAIRS:
        return [pair.a, pair.b]
    found: list[Node] = []
    if cls in _LEAVES:
        return found
    for value in _inner(cls)(node):
        if isinstance(value, _NODES):
            found.append(value)
        elif isinstance(value, tuple) and value:  # whose items are all of one kind
            if isinstance(value[0], _NODES):
                found += value
            elif isinstance(value[0], Access):
                for item in value:
                    found += item.indices + item.window
    return found


def children(node: Node) -> Iterator[Node]:
    """The expressions and statements directly below ``node``, in order of evaluation."""
    return iter(below(node))


def walk(node: Node) -> Iterator[Node]:
    """Every expression and statement in ``node``, itself first, each occurrence once."""
    stack: list[Node] = [node]
    while stack:
        top = stack.pop()
        yield top
        if type(top) not in _LEAVES:
            stack += reversed(below(top))


def statements(node: Node) -> Iterator[Stmt]:
    """Every statement in ``node``, itself first: :func:`walk` without the expressions."""
    stack: list[Stmt] = [node] if isinstance(node, Stmt) else []
    while stack:
        top = stack.pop()
        yield top
        if type(top) in _NESTS:
            stack += [s for s in reversed(below(top)) if isinstance(s, Stmt)]


def distinct(node: Node) -> Iterator[Node]:
    """Every statement in ``node``, and every expression once however often it occurs."""
    seen: set[Node] = set()
    stack: list[Node] = [node]
    while stack:
        top = stack.pop()
        if isinstance(top, Expr):
            if top in seen:
                continue
            seen.add(top)
        yield top
        if type(top) not in _LEAVES:
            stack += reversed(below(top))


def exprs(node: Node) -> Iterator[Expr]:
    """Every distinct expression in ``node``, each once however often it occurs."""
    found = distinct(node)
    if isinstance(node, Expr):  # below which there are only others
        return cast("Iterator[Expr]", found)
    return (e for e in found if isinstance(e, Expr))


_Contents: TypeAlias = tuple[frozenset[Var], frozenset[Buffer]]
_NOTHING: _Contents = frozenset(), frozenset()
_put_contents: Callable[[Expr, _Contents], None] = vars(Expr)["contents"].__set__


def contents(e: Expr) -> _Contents:
    """The variables that occur in ``e``, also those that it binds, and the buffers that it reads.

    They are kept with it, and asked for by many passes of each expression.
    """
    if type(e) in _LEAVES:
        return (frozenset((e,)), _NOTHING[1]) if isinstance(e, Var) else _NOTHING
    found: _Contents | None = getattr(e, "contents", None)
    if found is not None:
        return found
    stack: list[Any] = [e]
    while stack:
        top = stack[-1]
        inside = below(top)
        waiting = [x for x in inside if not (type(x) in _LEAVES or hasattr(x, "contents"))]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        parts = [contents(x) for x in inside if isinstance(x, Expr)]
        found = _joined(parts, (top.buffer,) if isinstance(top, Load) else ())
        _put_contents(top, found)
    return contents(e)


def _joined(parts: list[_Contents], own: tuple[Buffer, ...]) -> _Contents:
    """What is in any of ``parts``, and ``own``; one of the parts where that has all."""
    if not parts:
        return frozenset(), frozenset(own)
    most = max(parts, key=lambda part: (len(part[0]), len(part[1])))
    if all(a <= most[0] and b <= most[1] for a, b in parts) and most[1].issuperset(own):
        return most
    return (
        frozenset().union(*(part[0] for part in parts)),
        frozenset(own).union(*(part[1] for part in parts)),
    )


def roots(node: Node) -> Iterator[Expr]:
    """The expressions in the statements of ``node``, or itself, without those below them."""
    stack: list[Node] = [node]
    while stack:
        top = stack.pop()
        if isinstance(top, Expr):
            yield top
        else:
            stack.extend(reversed(below(top)))


def free_vars(node: Node) -> list[Var]:
    """Variables used in ``node`` and bound outside of it, in order of appearance."""
    used: dict[Var, None] = {}
    bound: set[Var] = set()
    for e in distinct(node):
        if isinstance(e, Var):
            used[e] = None
        elif isinstance(e, (For, Let, LetExpr)):
            bound.add(e.var)
        elif isinstance(e, Reduce):
            bound.update(axis.var for axis in e.axes)
    return [v for v in used if v not in bound]


def symbolic_extents(buffer: Buffer) -> list[Var]:
    """The variables that are extents of the buffer, in order of appearance.

    Others may occur in its shape, of which no more is known than that the extents made of them are
    not negative.
    """
    return list(dict.fromkeys(extent for extent in buffer.shape if isinstance(extent, Var)))


def uses(node: Node, variables: set[Var]) -> bool:
    """Whether any of ``variables`` occurs in ``node``."""
    return any(not contents(e)[0].isdisjoint(variables) for e in roots(node))


def indexes(s: For, scope: str) -> bool:
    """Whether a loop's variable says which elements of a buffer of ``scope`` its body reads or
    writes."""
    return any(
        isinstance(x, (Store, Load))
        and x.buffer.scope == scope
        and any(uses(i, {s.var}) for i in x.indices)
        for x in distinct(s.body)
    )


def loads(node: Node) -> Iterator[Load]:
    """Every distinct read of a buffer in ``node``."""
    for e in distinct(node):
        if isinstance(e, Load):
            yield e


def stores(node: Node) -> Iterator[Store]:
    """Every write to a buffer in ``node``."""
    for s in statements(node):
        if isinstance(s, Store):
            yield s


def written_by(*bodies: Stmt) -> frozenset[Buffer]:
    """The buffers that programs write; one whose address is taken, and that is not read
    otherwise, counts as one."""
    written: set[Buffer] = set()
    read: set[Buffer] = set()
    exposed: set[Buffer] = set()
    for body in bodies:
        addresses: set[Expr] = set()
        for node in distinct(body):
            match node:
                case Store(buffer):
                    written.add(buffer)
                case AllReduce(_, buffers):
                    written.update(buffers)
                case Call(name="address_of", args=args):
                    addresses.update(args)
                case Load(buffer):
                    (exposed if node in addresses else read).add(buffer)
    return frozenset(written | (exposed - read))


def allocated(node: Node) -> list[Buffer]:
    """The buffers that ``node`` allocates."""
    return [s.buffer for s in statements(node) if isinstance(s, Allocate)]


def apply_reducer(
    reducer: Reducer, left: tuple[Expr, ...], right: tuple[Expr, ...]
) -> tuple[Expr, ...]:
    """``reducer`` applied to two tuples of values."""
    mapping: dict[Expr, Expr] = dict(zip(reducer.lhs, left, strict=True))
    mapping.update(zip(reducer.rhs, right, strict=True))
    return tuple(substitute(e, mapping) for e in reducer.result)
