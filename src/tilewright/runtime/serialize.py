"""Modules as JSON and back, and the fingerprint of a program.

Expressions stand in a table, each once, in the order of their first use; variables and buffers
are entries too, so their numbers depend on the program alone and two processes that build the
same program agree on its text.

A value is written as itself where JSON has it, else as a list whose first item tells what it is:
``e`` an entry of the table, ``b`` a buffer, ``s`` a statement, ``n`` an entry of the table of
statements that are nested deep, ``t`` a tuple, ``d`` a type, ``f`` a
float by its bits, ``m`` a mapping, ``k`` the kind of a loop, ``i`` an instruction by name, ``o`` a
data class of this package. Reading creates these and nothing else, so a file cannot run code.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
from collections.abc import Mapping
from typing import Any

from tilewright.ir import expr as E
from tilewright.ir import stmt as S
from tilewright.ir.buffer import Buffer, Layout
from tilewright.ir.distribution import Distribution
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.errors import TilewrightError
from tilewright.ir.func import Func, LaunchAxis, Module
from tilewright.ir.itervar import IterVar
from tilewright.ir.node import Interned
from tilewright.ir.visit import Steps, run
from tilewright.target import Target

_EXPRS: dict[str, Any] = {
    cls.__name__: cls
    for cls in vars(E).values()
    if isinstance(cls, type) and issubclass(cls, Interned) and cls.__match_args__
}
_STMTS: dict[str, Any] = {
    cls.__name__: cls
    for cls in vars(S).values()
    if isinstance(cls, type) and (issubclass(cls, S.Stmt) or cls is S.Access) and cls is not S.Stmt
}
_MODULES = ("tilewright.ir.", "tilewright.target.")


class NotSerializable(TilewrightError):
    """A program that holds something without a written form; the message says what."""


#: How deep statements stand in one another's lists: JSON is read and written by recursion.
_NESTED = 64


class _Writer:
    def __init__(self) -> None:
        self.table: list[list[Any]] = []
        self.buffers: list[list[Any]] = []
        self.stmts: list[list[Any]] = []
        self._numbers: dict[Any, int] = {}
        self._buffer_numbers: dict[Buffer, int] = {}

    def value(self, v: Any) -> Any:
        if isinstance(v, DType):
            return ["d", str(v)]
        if v is None or isinstance(v, (bool, int, str)):
            return v
        if isinstance(v, float):
            return ["f", v.hex()]
        if isinstance(v, (E.Expr, E.Reducer)):
            return ["e", self.entry(v)]
        if isinstance(v, (S.Stmt, S.Access)):
            row: list[Any] = run(self.stmt(v))[0]
            return row
        if isinstance(v, Buffer):
            return ["b", self.buffer(v)]
        if isinstance(v, (tuple, list)):
            return ["t", *(self.value(item) for item in v)]
        if isinstance(v, S.ForKind):
            return ["k", v.value]
        if isinstance(v, IterVar):
            return ["e", self.entry(v.var)]
        if isinstance(v, Mapping):
            return ["m", *([str(k), self.value(item)] for k, item in v.items())]
        cls = type(v)
        if dataclasses.is_dataclass(v) and cls.__module__.startswith(_MODULES):
            fields = [self.value(getattr(v, f.name)) for f in dataclasses.fields(v)]
            return ["o", cls.__module__, cls.__qualname__, *fields]
        raise NotSerializable(f"a {cls.__name__} ({v!r}) in a program has no written form")

    def entry(self, e: Any) -> int:
        number = self._numbers.get(e)
        if number is None:
            row: list[Any] = [type(e).__name__]
            if isinstance(e, E.Var):
                row += [e.name, str(e.dtype), e.most, e.least, e.exact]
            else:
                row += [self.value(getattr(e, name)) for name in e.__match_args__]
            number = self._numbers[e] = len(self.table)
            self.table.append(row)
        return number

    def buffer(self, b: Buffer) -> int:
        number = self._buffer_numbers.get(b)
        if number is None:
            layout = b.layout and [
                self.value(b.layout.strides), self.value(b.layout.base),
                self.value(b.layout.swizzle),
            ]  # fmt: skip
            spread = b.distribution
            held = spread and [spread.shape, spread.bits, spread.packed, spread.group]
            row = [b.name, self.value(b.shape), str(b.dtype), b.scope, layout, b.align, held]
            # the shape may have put other buffers in, so the number is taken last
            number = self._buffer_numbers[b] = len(self.buffers)
            self.buffers.append(row)
        return number

    def stmt(self, s: Any) -> Steps:
        """A statement or an access as a list, and how many statements stand in one another there;
        what is nested deeper is an entry of the table of statements."""
        row: list[Any] = ["s", type(s).__name__]
        nested = 0
        for name in s.__match_args__:
            item = getattr(s, name)
            if name == "instruction":
                row.append(["i", str(getattr(item, "name", item))])
            elif isinstance(item, S.Stmt):
                inner, height = yield self.stmt(item)
                nested = max(nested, height)
                row.append(inner)
            elif isinstance(s, S.Seq):
                parts: list[Any] = ["t"]
                for x in item:
                    inner, height = yield self.stmt(x)
                    nested = max(nested, height)
                    parts.append(inner)
                row.append(parts)
            else:
                row.append(self.value(item))
        if nested < _NESTED:
            return row, nested + 1
        self.stmts.append(row)
        return ["n", len(self.stmts) - 1], 0

    def func(self, f: Func, bodies: bool) -> dict[str, Any]:
        return {
            "name": f.name,
            "params": self.value(f.params),
            "launch": [[a.tag, self.value(a.var), self.value(a.extent)] for a in f.launch],
            "target": self.value(f.target),
            "body": self.value(f.body) if bodies else None,
            **({"producer": True} if f.producer else {}),
        }


def to_json(module: Module, bodies: bool = True) -> str:
    """The module as text; without ``bodies``, its head only (parameters, launches, workspaces).

    Raises :class:`NotSerializable` where something in it has no written form.
    """
    writer = _Writer()
    head = {
        "name": module.name,
        "params": writer.value(module.params),
        "workspaces": writer.value(module.workspaces),
        "target": writer.value(module.target),
        "funcs": [writer.func(f, bodies) for f in module.funcs],
    }
    whole = {"exprs": writer.table, "buffers": writer.buffers, "module": head}
    if writer.stmts:
        whole["stmts"] = writer.stmts
    return json.dumps(whole, separators=(",", ":"), allow_nan=False)


def program_key(module: Module, target: Target) -> str:
    """A fingerprint of the program and its target, the same in every process (64 hex digits)."""
    text = f"{target!r}\n{to_json(module)}"
    return hashlib.sha256(text.encode()).hexdigest()


class _Reader:
    def __init__(self, whole: dict[str, Any]) -> None:
        self.rows, self.buffer_rows = whole["exprs"], whole["buffers"]
        self._entries: dict[int, Any] = {}
        self._buffers: dict[int, Buffer] = {}
        self.stmts: list[Any] = []
        for row in whole.get("stmts", ()):  # each before those that it stands in
            self.stmts.append(self.value(row))

    def value(self, v: Any) -> Any:
        if not isinstance(v, list):
            return v
        match v[0]:
            case "e":
                return self.entry(v[1])
            case "t":
                return tuple(self.value(item) for item in v[1:])
            case "b":
                return self.buffer(v[1])
            case "s":
                return _STMTS[v[1]](*(self.value(item) for item in v[2:]))
            case "n":
                return self.stmts[v[1]]
            case "d":
                return dtype(v[1])
            case "f":
                return float.fromhex(v[1])
            case "k":
                return S.ForKind(v[1])
            case "m":
                return {key: self.value(item) for key, item in v[1:]}
            case "i":
                return _instruction(v[1])
            case "o":
                return self._object(v[1], v[2], v[3:])
        raise ValueError(f"unknown tag {v[0]!r}")

    def _object(self, module: str, name: str, fields: list[Any]) -> Any:
        cls = getattr(importlib.import_module(module), name) if module.startswith(_MODULES) else 0
        if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
            raise ValueError(f"{module}.{name} is no data class of a program")
        return cls(*(self.value(item) for item in fields))

    def entry(self, number: int) -> Any:
        made = self._entries.get(number)
        if made is None:
            name, *fields = self.rows[number]
            if name == "Var":
                made = E.Var.make(*fields)
            else:
                made = _EXPRS[name](*(self.value(item) for item in fields))
            self._entries[number] = made
        return made

    def buffer(self, number: int) -> Buffer:
        made = self._buffers.get(number)
        if made is None:
            name, shape, type, scope, layout, align, held = self.buffer_rows[number]
            made = Buffer(
                name,
                self.value(shape),
                dtype(type),
                scope,
                layout and Layout(*map(self.value, layout)),
                align,
                held and _distribution(*held),
            )
            self._buffers[number] = made
        return made

    def func(self, f: dict[str, Any]) -> Func:
        return Func(
            f["name"],
            self.value(f["params"]),
            S.Seq(()) if f["body"] is None else self.value(f["body"]),
            tuple(LaunchAxis(t, self.value(v), self.value(x)) for t, v, x in f["launch"]),
            self.value(f["target"]),
            producer=bool(f.get("producer", False)),
        )


def _instruction(name: str) -> Any:
    """The declared instruction of that name, or the name alone where it is not known here."""
    from tilewright.target.instructions import instruction_named

    return instruction_named(name) or name


def from_json(text: str) -> Module:
    """The module that :func:`to_json` wrote; :class:`ValueError` where the text is not one.

    The text may be anybody's: it makes nodes of programs, and imports modules of this package.
    """
    try:
        whole = json.loads(text)
        reader, head = _Reader(whole), whole["module"]
        module = Module(
            head["name"],
            reader.value(head["params"]),
            tuple(reader.func(f) for f in head["funcs"]),
            reader.value(head["workspaces"]),
            reader.value(head["target"]),
        )
        _check(module)
    except Exception as error:  # wrong types anywhere lead to errors of all kinds
        raise ValueError(f"not a module: {error!r}") from None
    return module


def _check(module: Module) -> None:
    """Raises :class:`ValueError` where the head, which is used before bodies are, is not one."""
    buffers = [p for p in module.params if isinstance(p, Buffer)]
    others: list[Any] = [p for p in module.params if not isinstance(p, (Buffer, E.Var))]
    others += [w for w in module.workspaces if not isinstance(w, Buffer)]
    for b in (*buffers, *(w for w in module.workspaces if isinstance(w, Buffer))):
        others += [x for x in b.shape if not isinstance(x, E.Expr)]
    if others or not isinstance(module.name, str) or not isinstance(module.target, Target | None):
        raise ValueError(f"its parameters are none: {others}")


def _distribution(shape: Any, bits: Any, packed: Any, group: int = 0) -> Distribution:
    return Distribution(tuple(shape), tuple(map(tuple, bits)), tuple(map(tuple, packed)), group)
