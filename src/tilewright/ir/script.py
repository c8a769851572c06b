"""Whole programs as TVM's script, in the form that articles show.

Loops that nest perfectly share one ``T.grid``, buffers are flat views of the parameters, and no
name stands for two things at once::

    def main(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32")):
        blockIdx_x = T.launch_thread("blockIdx.x", 4)
        for j in range(8):
            B_1 = T.Buffer((32,), data=B.data)
            A_1 = T.Buffer((32,), data=A.data)
            B_1[blockIdx_x * 8 + j] = A_1[blockIdx_x * 8 + j]
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.ir import stmt as S
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, IntImm, Load, Var
from tilewright.ir.func import Func
from tilewright.ir.text import Printer, expr_name
from tilewright.ir.visit import children, free_vars, uses, walk

_KINDS = {
    S.ForKind.SERIAL: "T.serial",
    S.ForKind.PARALLEL: "T.parallel",
    S.ForKind.VECTORIZED: "T.vectorized",
    S.ForKind.UNROLLED: "T.unroll",
}


def script_text(func: Func, flat: Func) -> str:
    """``func`` with the body of ``flat``, which is the same program over flat buffers."""
    return _Script(func, flat).text()


class _Script(Printer):
    def __init__(self, func: Func, flat: Func) -> None:
        self.func_shaped, self.func_flat = func, flat
        self.names: dict[Var | Buffer, str] = {}
        self.taken: set[str] = set()
        self.views: dict[Buffer, Buffer] = {}  # flat buffers that are views of a parameter
        self.declared: set[Buffer] = set()
        self._used: dict[int, tuple[S.Stmt, dict[Buffer, None]]] = {}

    @staticmethod
    def quote(value: object) -> str:
        return f'"{value}"' if isinstance(value, str) else repr(value)

    def name(self, thing: Var | Buffer) -> str:
        if thing not in self.names:
            self._introduce(thing)
        return self.names[thing]

    def _introduce(self, thing: Var | Buffer) -> None:
        plain = expr_name(thing.name)
        name, count = plain, 0
        while name in self.taken:
            count += 1
            name = f"{plain}_{count}"
        self.names[thing] = name
        self.taken.add(name)

    @contextmanager
    def _local_names(self) -> Iterator[None]:
        """What is named inside is not seen after it."""
        names, taken, declared = dict(self.names), set(self.taken), set(self.declared)
        yield
        self.names, self.taken, self.declared = names, taken, declared

    def text(self) -> str:
        shaped = self.func_shaped
        head = self.signature(shaped)
        symbols = {
            v: None
            for p in shaped.params
            if isinstance(p, Buffer)
            for extent in p.shape
            for v in free_vars(extent)
            if all(v is not q for q in shaped.params)
        }
        lines = [f"    {self.name(v)} = T.{v.dtype}()" for v in symbols]
        for old, new in zip(shaped.params, self.func_flat.params, strict=True):
            if not isinstance(old, Buffer) or not isinstance(new, Buffer):
                continue
            if len(old.shape) == 1:
                self.names[new] = self.name(old)
            else:
                self.views[new] = old
        return "\n".join([head, *lines, *self.block(self.func_flat.body, 1)])

    # -- blocks ----------------------------------------------------------------------------

    def stmt(self, s: S.Stmt, indent: int = 0) -> str:
        return "\n".join(self.block(s, indent))

    def block(self, s: S.Stmt, indent: int, last: bool = True) -> list[str]:
        """The lines of a body: its views are declared where their first use stands.

        ``last`` says that nothing follows at this indentation.
        """
        pad = "    " * indent
        stmts = list(s.stmts) if isinstance(s, S.Seq) else [s]
        shared = self._shared_views(stmts)
        lines: list[str] = []
        for k, one in enumerate(stmts):
            for view in [v for v in shared if v in self._uses(one)]:
                shared.remove(view)
                self.declared.add(view)
                size, whole = self.exprs(view.shape), self.name(self.views[view])
                lines.append(f"{pad}{self.name(view)} = T.Buffer(({size},), data={whole}.data)")
            lines += self._one(one, indent, last and k == len(stmts) - 1)
        return lines or [f"{pad}pass"]

    def _shared_views(self, stmts: list[S.Stmt]) -> list[Buffer]:
        """The views to declare here: no block further inside holds all of their uses."""
        found = []
        for view in dict.fromkeys(v for s in stmts for v in self._uses(s)):
            users = [s for s in stmts if view in self._uses(s)]
            if view in self.declared:
                continue
            if len(users) > 1 or not self._only_in_body(users[0], view):
                found.append(view)
        return found

    def _only_in_body(self, s: S.Stmt, view: Buffer) -> bool:
        parts = [c for c in children(s) if isinstance(c, S.Stmt) and view in self._uses(c)]
        heads = any(
            isinstance(e, Load) and e.buffer is view
            for c in children(s)
            if isinstance(c, Expr)
            for e in walk(c)
        )
        return len(parts) == 1 and not heads

    def _uses(self, s: S.Stmt) -> dict[Buffer, None]:
        """The views that a statement uses, in order of use."""
        if id(s) not in self._used:
            found: dict[Buffer, None] = {}
            for node in walk(s):
                if isinstance(node, (S.Store, Load)):
                    found[node.buffer] = None
                elif isinstance(node, S.Instr):
                    found.update({o.buffer: None for o in node.operands})
                elif isinstance(node, S.AllReduce):
                    found.update(dict.fromkeys(node.buffers))
            self._used[id(s)] = (s, {b: None for b in found if b in self.views})
        return self._used[id(s)][1]

    # -- statements ------------------------------------------------------------------------

    def _one(self, s: S.Stmt, indent: int, last: bool) -> list[str]:
        pad = "    " * indent
        match s:
            case S.Produce(_, body) | S.Begins(_, body):
                return self.block(body, indent, last)
            case S.For(var, _, _, S.ForKind.THREAD | S.ForKind.VTHREAD, body):
                launch = f"T.launch_thread({self.quote(s.tag)}, {self.expr(s.extent)})"
                return self._scoped(var, launch, body, indent, last)
            case S.Allocate(buffer, body):
                return self._scoped(buffer, self.allocation(buffer), body, indent, last)
            case S.Let(var, value, body):
                if not last:
                    let = f"T.LetStmt({self.expr(value)})"
                    return self._scoped(var, let, body, indent, last)
                text = self.expr(value)
                return [f"{pad}{self.name(var)}: T.{var.dtype} = {text}", *self.block(body, indent)]
            case S.For():
                return self._loops(s, indent)
            case S.If(condition, then, orelse):
                lines = [f"{pad}if {self.expr(condition)}:", *self._inner(then, indent + 1)]
                if orelse is not None:
                    lines += [f"{pad}else:", *self._inner(orelse, indent + 1)]
                return lines
            case S.Remark(body=body):
                return [pad + self.remark(s), *self._inner(body, indent + 1)]
            case S.Sync(_, frees) if frees:
                return [pad + self.remark(s), f"{pad}    {self.action(s)}"]
            case S.Instr(_, _, _, body):
                return [pad + self.instruction(s), *self._inner(body, indent + 1)]
        return [pad + self.action(s)]

    def _inner(self, body: S.Stmt, indent: int) -> list[str]:
        with self._local_names():
            return self.block(body, indent)

    def _scoped(
        self, thing: Var | Buffer, made: str, body: S.Stmt, indent: int, last: bool
    ) -> list[str]:
        """What is in scope to the end of the block, or of a ``with`` where more follows."""
        pad = "    " * indent
        if last:
            return [f"{pad}{self.name(thing)} = {made}", *self.block(body, indent)]
        with self._local_names():
            head = f"{pad}with {made} as {self.name(thing)}:"
            return [head, *self.block(body, indent + 1)]

    def _loops(self, first: S.For, indent: int) -> list[str]:
        nest = [first]
        while _plain(nest[-1]) and _plain(inner := nest[-1].body):
            assert isinstance(inner, S.For)
            if uses(inner.extent, {loop.var for loop in nest}):
                break
            nest.append(inner)
        with self._local_names():
            if len(nest) > 1:
                extents = self.exprs([loop.extent for loop in nest])
                names = ", ".join(self.name(loop.var) for loop in nest)
                head = f"for {names} in T.grid({extents}):"
            else:
                span = self.span(first.min, first.extent)
                form = "range" if first.kind is S.ForKind.SERIAL else _KINDS[first.kind]
                if first.annotations:
                    notes = ", ".join(f"{self.quote(k)}: {v!r}" for k, v in first.annotations)
                    form, span = _KINDS[first.kind], f"{span}, annotations={{{notes}}}"
                head = f"for {self.name(first.var)} in {form}({span}):"
            return ["    " * indent + head, *self.block(nest[-1].body, indent + 1)]


def _plain(s: S.Stmt) -> bool:
    """Whether a loop may share a grid with others."""
    return (
        isinstance(s, S.For)
        and s.kind is S.ForKind.SERIAL
        and isinstance(s.min, IntImm)
        and s.min.value == 0
        and not s.annotations
    )
