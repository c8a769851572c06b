"""The articles' code blocks, and their printed programs as loops and accesses to compare."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright import tvm

FOLDER = Path(__file__).parents[1] / "articles"
FENCE = re.compile(r"^```\w+ (code|ir) ([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: Where programs that bind axes to threads run.
GPUS = [
    "sim",
    pytest.param("opencl", marks=pytest.mark.needs_opencl),
    pytest.param("cuda", marks=pytest.mark.needs_cuda),
]

#: What CUDA programs are compiled for where there is no device.
ARCHITECTURES = ["sm_80", "sm_90a", "sm_120"]


class Article:
    """The blocks of ``tests/articles/NUMBER.md``, by their labels."""

    def __init__(self, number: str) -> None:
        self.path = FOLDER / f"{number}.md"
        found = FENCE.findall(self.path.read_text())
        self.code = {label: text for kind, label, text in found if kind == "code"}
        self.ir = {label: text for kind, label, text in found if kind == "ir"}

    def run(self, label: str, names: dict[str, Any]) -> None:
        """Execute a block in the namespace ``names``."""
        exec(compile(self.code[label], f"{self.path} ({label})", "exec"), names)


def depthwise(x: np.ndarray, w: np.ndarray, stride: int = 1) -> np.ndarray:
    """Depthwise convolution of (N, C, H, W) by (C, M, K, K), padded by K // 2, in float64."""
    n, c, height, width = x.shape
    _, m, k, _ = w.shape
    p = k // 2
    wide = np.pad(x.astype("float64"), ((0, 0), (0, 0), (p, p), (p, p)))
    total = np.zeros((n, c, m, (height - 1) // stride + 1, (width - 1) // stride + 1))
    for i in range(k):
        for j in range(k):
            taken = wide[:, :, i : i + height : stride, j : j + width : stride]
            total += taken[:, :, None] * w[None, :, :, i, j, None, None]
    return total.reshape(n, c * m, *total.shape[3:])


def error(found: np.ndarray, exact: np.ndarray) -> float:
    """The norm of the difference over that of the exact result; NaN where ``found`` has one."""
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


def spills(schedule: Any, args: list[Any], arch: str) -> int:
    """The bytes that the kernels of a schedule spill when compiled for an architecture."""
    kernel = tvm.build(schedule, args, f"cuda -arch={arch}").kernel
    found = [used.spills for used in kernel.resources.values()]
    assert found
    assert None not in found
    return sum(found)


# -- printed programs ------------------------------------------------------------------------


@dataclass
class Statement:
    """One store: the loops around it, from the outermost in, and its expressions.

    ``loops`` are (tag, name, extent), the tag being "" for a loop that no thread carries out.
    """

    loops: list[tuple[str, str, int]]
    target: ast.expr
    value: ast.expr
    lets: dict[str, ast.expr]

    @property
    def nest(self) -> list[tuple[str, int]]:
        """The loops without their names; serial ones of a single iteration do nothing."""
        return [(tag, extent) for tag, _, extent in self.loops if tag or extent > 1]


@dataclass
class Program:
    """What a printed program does: its stores in order, and its allocations' sizes."""

    stores: list[Statement] = field(default_factory=list)
    allocations: dict[str, int] = field(default_factory=dict)
    views: dict[str, str] = field(default_factory=dict)

    def accesses(self, s: Statement, points: int = 1 << 16) -> dict[str, np.ndarray]:
        """By buffer, the offsets that ``s`` touches over its loops; -1 where it reads nothing.

        Each is an array of (iterations, accesses), the store first; for many iterations, of a
        random choice of them.
        """
        extents = [extent for _, _, extent in s.loops]
        total = int(np.prod(extents))
        if total <= points:
            chosen = np.arange(total)
        else:
            chosen = np.random.default_rng(0).integers(0, total, points)
        values = np.unravel_index(chosen, extents) if extents else ()
        names = {name: v for (_, name, _), v in zip(s.loops, values, strict=True)}
        reader = _Reader(self, {**names}, s.lets, np.ones(len(chosen), bool))
        found: dict[str, list[np.ndarray]] = {}
        for buffer, offset in [reader.access(s.target), *reader.reads(s.value)]:
            found.setdefault(buffer, []).append(offset)
        return {name: np.stack(columns, axis=1) for name, columns in found.items()}


@dataclass
class _Reader:
    program: Program
    values: dict[str, Any]
    lets: dict[str, ast.expr]
    active: np.ndarray

    def eval(self, e: ast.expr) -> Any:
        match e:
            case ast.Constant(value):
                return value
            case ast.Name(name):
                return self.eval(self.lets[name]) if name in self.lets else self.values[name]
            case ast.UnaryOp(ast.USub(), x):
                return -self.eval(x)
            case ast.BinOp(a, op, b):
                x, y = self.eval(a), self.eval(b)
                match op:
                    case ast.Add():
                        return x + y
                    case ast.Sub():
                        return x - y
                    case ast.Mult():
                        return x * y
                    case ast.FloorDiv():
                        return x // y
                    case ast.Mod():
                        return x % y
            case ast.Compare(a, [ast.Lt()], [b]):
                return self.eval(a) < self.eval(b)
            case ast.Compare(a, [ast.LtE()], [b]):
                return self.eval(a) <= self.eval(b)
            case ast.BoolOp(ast.And(), parts):
                return np.logical_and.reduce([self.eval(p) for p in parts])
        raise AssertionError(f"cannot evaluate {ast.unparse(e)}")

    def access(self, e: ast.expr) -> tuple[str, np.ndarray]:
        assert isinstance(e, ast.Subscript)
        assert isinstance(e.value, ast.Name)
        name = e.value.id
        offset = np.where(self.active, self.eval(e.slice), -1)
        return self.program.views.get(name, name), offset

    def reads(self, e: ast.expr) -> list[tuple[str, np.ndarray]]:
        match e:
            case ast.Subscript():
                return [self.access(e)]
            case ast.Call(_, [condition, then, other]) if "if_then_else" in ast.unparse(e.func):
                where = self.active & self.eval(condition)
                return self._under(where, then) + self._under(self.active & ~where, other)
        return [
            r for c in ast.iter_child_nodes(e) if isinstance(c, ast.expr) for r in self.reads(c)
        ]

    def _under(self, active: np.ndarray, e: ast.expr) -> list[tuple[str, np.ndarray]]:
        return _Reader(self.program, self.values, self.lets, active).reads(e)


def parse_script(text: str) -> Program:
    """A program in the form of TVM's script."""
    program = Program()
    body = ast.parse(text).body[0]
    assert isinstance(body, ast.FunctionDef)
    _walk_script(program, body.body, [], {})
    return program


def _walk_script(
    program: Program,
    body: list[ast.stmt],
    loops: list[tuple[str, str, int]],
    lets: dict[str, ast.expr],
) -> None:
    loops, lets = list(loops), dict(lets)
    for s in body:
        match s:
            case ast.Assign([ast.Name(name)], ast.Call(ast.Attribute(_, what), args, keywords)):
                match what:
                    case "launch_thread":
                        tag, extent = map(ast.literal_eval, args)
                        loops.append((tag, name, extent))
                    case "Buffer":
                        program.views[name] = ast.unparse(keywords[0].value).removesuffix(".data")
                    case "allocate":
                        program.allocations[name] = int(np.prod(ast.literal_eval(args[0])))
            case ast.With([ast.withitem(ast.Call(_, args), ast.Name(name))], inside):
                tag, extent = map(ast.literal_eval, args)
                _walk_script(program, inside, [*loops, (tag, name, extent)], lets)
            case ast.AnnAssign(ast.Name(name), _, value) if value is not None:
                lets[name] = value
            case ast.For(target, ast.Call(ast.Attribute(_, "grid"), extents), inside):
                assert isinstance(target, ast.Tuple)
                sizes = map(ast.literal_eval, extents)
                names = [ast.unparse(t) for t in target.elts]
                nest = [("", n, size) for n, size in zip(names, sizes, strict=True)]
                _walk_script(program, inside, loops + nest, lets)
            case ast.For(ast.Name(name), ast.Call(_, [extent]), inside):
                nest = [("", name, ast.literal_eval(extent))]
                _walk_script(program, inside, loops + nest, lets)
            case ast.Assign([ast.Subscript() as target], value):
                program.stores.append(Statement(list(loops), target, value, lets))
            case _:
                raise AssertionError(f"cannot read {ast.unparse(s)}")


def parse_2017(text: str) -> Program:
    """A program in the form of 2017; expressions become Python's."""
    program = Program()
    # What is open: a loop, or None for a block that is none. Threads last to the end of a block.
    blocks: list[list[tuple[str, str, int]]] = [[]]
    for line in map(str.strip, text.splitlines()):
        if found := re.match(
            r"// attr \[iter_var\((\S+), .*, (\S+)\)\] thread_extent = (\d+)", line
        ):
            name, tag, extent = found.groups()
            blocks[-1].append((tag, _identifier(name), int(extent)))
        elif found := re.match(r"\w+ \((\S+), 0, (\d+)\) \{", line):
            blocks.append([("", _identifier(found[1]), int(found[2]))])
        elif found := re.match(r"allocate (\w+)\[\w+ \* (.*)\]", line):
            program.allocations[found[1]] = int(np.prod([int(n) for n in found[2].split(" * ")]))
        elif line.startswith("produce"):
            blocks.append([])
        elif line == "}":
            blocks.pop()
        elif found := re.match(r"(\w+\[.*?\]) = (.*)", line):
            target, value = (_expression(t) for t in found.groups())
            loops = [loop for block in blocks for loop in block]
            program.stores.append(Statement(loops, target, value, {}))
        else:
            assert line.startswith("// attr ["), f"cannot read {line}"
    return program


def _identifier(name: str) -> str:
    return name.replace(".", "_")


def _expression(text: str) -> ast.expr:
    text = re.sub(r"(\d+\.\d+)f\b", r"\1", text)
    text = re.sub(r"([A-Za-z_]\w*(?:\.\w+)+)", lambda m: _identifier(m[0]), text)
    text = text.replace("&&", "and").replace("||", "or").replace("/", "//")
    return ast.parse(text, mode="eval").body


def assert_same_program(found: Program, wanted: Program) -> None:
    """The same stores in the same loops on the same threads, touching the same elements."""
    assert found.allocations == wanted.allocations
    assert [s.nest for s in found.stores] == [s.nest for s in wanted.stores]
    for mine, theirs in zip(found.stores, wanted.stores, strict=True):
        ours, given = found.accesses(mine), wanted.accesses(theirs)
        assert ours.keys() == given.keys()
        for buffer, offsets in given.items():
            np.testing.assert_array_equal(ours[buffer], offsets, err_msg=buffer)
