"""Index arithmetic as sums of multiples of registers, each computed once.

The turns of an unrolled loop differ in constants only. What their indices have in common, the sum
without its constant, is kept from turn to turn, so that a turn adds a constant to it and no more.
Registers stand in the order in which they were made, those of outer loops first: prefixes of a sum
are kept too, and serve every index that begins alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tilewright.codegen.llvm.builder import Builder, Value, constant, opaque
from tilewright.codegen.llvm.known import Known
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr

I64 = "i64"
#: Coefficients by the name of a register.
Terms = dict[str, int]
#: Coefficients of variables, and of what is neither a sum nor a multiple, and a constant.
Spread = tuple[tuple[tuple[Expr, int], ...], int]


@dataclass
class Start:
    """Where the body of a long loop begins, with what its indices have in common there.

    A sum of registers that are older than ``newest`` is computed once, in ``lines`` at the start of
    the body, and is :func:`.builder.opaque`.
    """

    newest: str
    lines: list[str] = field(default_factory=list)
    sums: dict[tuple[tuple[str, int], ...], str] = field(default_factory=dict)


class Sums(Known):
    """Writes sums of i64 that do not overflow."""

    b: Builder

    def __init__(self) -> None:
        super().__init__()
        self.start: Start | None = None  # of the innermost long loop
        self._spreads: dict[Expr, Spread] = {}

    def index(self, e: Expr) -> Value:
        """A scalar integer as i64, computed as if 64 bits had been meant from the start."""
        raise NotImplementedError

    def collect(self, e: Expr, scale: int, terms: Terms) -> int:
        """Add ``scale * e`` to ``terms``; the constant part of it is returned."""
        found = self._spreads.get(e)
        if found is None:
            found = self._spreads[e] = spread([(e, 1)])
        return self.gather(found, scale, terms)

    def gather(self, parts: Spread, scale: int, terms: Terms) -> int:
        """:meth:`collect` of what :func:`spread` gave."""
        atoms, least = parts
        least *= scale
        for atom, k in atoms:
            value = self.index(atom)
            known = constant(value)
            if known is None:
                terms[value.text] = terms.get(value.text, 0) + k * scale
            else:
                least += known * k * scale
        return least

    def add(self, x: Value, scale: int, terms: Terms) -> int:
        """Add ``scale * x`` to ``terms``; the constant part of it is returned."""
        known = constant(x)
        if known is not None:
            return known * scale
        terms[x.text] = terms.get(x.text, 0) + scale
        return 0

    def total(self, terms: Terms, least: int) -> Value:
        """The sum of ``terms`` and a constant."""
        items = [(name, k) for name, k in terms.items() if k]
        if not items:
            return Value(I64, str(least))
        if len(items) > 1:
            items.sort(key=_by_age)
            if self.start is not None:
                items = self._begun(self.start, items)
        found = self._prefix(tuple(items))
        return self._plus(found, least) if least else found

    def _begun(self, start: Start, items: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """``items`` with what is known at the start of the loop as one of them."""
        newest = _by_age((start.newest, 0))
        count = sum(_by_age(item) < newest for item in items)
        if count < 2:
            return items
        key = tuple(items[:count])
        name = start.sums.get(key)
        if name is None:
            total = ""
            for register, k in key:
                part = self.b.name()
                start.lines.append(f"  {part} = mul nsw i64 {register}, {k}")
                if total:
                    start.lines.append(f"  {part}.s = add nsw i64 {total}, {part}")
                    part += ".s"
                total = part
            name = start.sums[key] = self.b.name()
            start.lines.append(f"  {name} = {opaque(total)}")
        return [(name, 1), *items[count:]]

    def _prefix(self, items: tuple[tuple[str, int], ...]) -> Value:
        if len(items) == 1:
            ((name, k),) = items
            return self.product(Value(I64, name), Value(I64, str(k)))
        found = self.recall_sum(items)
        if found is None:
            left, (name, k) = self._prefix(items[:-1]), items[-1]
            right = self.product(Value(I64, name), Value(I64, str(abs(k))))
            found = self.b.binary("add nsw" if k > 0 else "sub nsw", left, right)
            self.keep_sum(items, found)
        return found

    def _plus(self, x: Value, least: int) -> Value:
        key = (x.text, least)
        found = self.recall_sum(key)
        if found is None:
            found = self.b.binary("add nsw", x, Value(I64, str(least)))
            self.keep_sum(key, found)
        return found

    def product(self, x: Value, y: Value) -> Value:
        """``x * y``."""
        a, b = constant(x), constant(y)
        if a is not None and b is not None:
            return Value(I64, str(a * b))
        if a == 0 or b == 0:
            return Value(I64, "0")
        if b == 1:
            return x
        if a == 1:
            return y
        key = (x.text, "*", y.text)
        found = self.recall_sum(key)
        if found is None:
            found = self.b.binary("mul nsw", x, y)
            self.keep_sum(key, found)
        return found

    def arithmetic(self, opcode: str, a: Value, b: Value) -> Value:
        """add, sub or mul of i64."""
        if opcode == "mul":
            return self.product(a, b)
        terms: Terms = {}
        least = self.add(a, 1, terms)
        least += self.add(b, 1 if opcode == "add" else -1, terms)
        return self.total(terms, least)

    def element(self, type: str, pointer: Value, offset: Value, there: bool = True) -> Value:
        """The address of an element of ``type``; see :meth:`Builder.element`."""
        key = (type if there else f"{type} under a mask", pointer.text, offset.text)
        found = self.recall_sum(key)
        if found is None:
            found = self.b.element(type, pointer, offset, there)
            self.keep_sum(key, found)
        return found


def spread(parts: Iterable[tuple[Expr, int]]) -> Spread:
    """The sum of expressions, each times a number: the same in every turn of a loop."""
    atoms: dict[Expr, int] = {}
    least = sum(_spread(e, k, atoms) for e, k in parts)
    return tuple((atom, k) for atom, k in atoms.items() if k), least


def _spread(e: Expr, scale: int, atoms: dict[Expr, int]) -> int:
    if isinstance(e, E.IntImm):
        return scale * e.value
    if e.exact and e.dtype.is_int:
        match e:
            case E.Add(a, b):
                return _spread(a, scale, atoms) + _spread(b, scale, atoms)
            case E.Sub(a, b):
                return _spread(a, scale, atoms) + _spread(b, -scale, atoms)
            case E.Mul(a, E.IntImm(_, k)) | E.Mul(E.IntImm(_, k), a):
                return _spread(a, scale * k, atoms)
            case E.Cast(_, a) if a.dtype.kind == "int" and a.dtype.bits >= 32:
                return _spread(a, scale, atoms)
    atoms[e] = atoms.get(e, 0) + scale
    return 0


def _by_age(item: tuple[str, int]) -> tuple[int, str]:
    """Names end in a number that grows; those of parameters are short."""
    return len(item[0]), item[0]
