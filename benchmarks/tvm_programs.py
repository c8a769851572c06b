"""Random programs under TVM's names, built and run by TVM and by Tilewright: are results the same?

``python benchmarks/tvm_programs.py --tvm PYTHON --programs 500`` draws programs of seven kinds,
each decided by one integer, writes their text once, and runs it with ``import tvm`` in the
interpreter PYTHON, which has TVM 0.19, and with ``from tilewright import tvm`` in this one. Outputs
are to have the same type, shape and bits; where a program divides or calls functions of real
numbers, the same values up to a few units of the last place. Programs that TVM refuses are counted
apart. ``--show`` prints the texts of seeds and what both make of them; the exit status is 1 where
any differ.

What neither language defines is not drawn: signed overflow of 32 bits, division by zero, shifts as
wide as their type, and casts of real numbers to integers that do not hold them. Nor is what TVM
0.19 computes wrongly: negative values of uint32 (its LLVM code declares that they do not occur) and
float64 cast to float16 (-4 becomes 0). Nor is what it refuses: negative numbers beside unsigned
elements, stages computed at splits of fused axes, and of topi, schedules of ``sort``, ``resize2d``
and ``power`` of integers.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
FLOATS = ("float16", "float32", "float64")
#: Relative to the largest value of an output, where a program is not exact.
NEAR = {"float16": 4e-3, "float32": 4e-6, "float64": 1e-11}


class Drawn:
    """A program as it is drawn: its lines, its inputs and whether its arithmetic is exact."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.seed, self.lines, self.exact = seed, list[str](), True
        self.inputs: list[tuple[str, tuple[int, ...], str]] = []

    def input(self, shape: tuple[int, ...], dtype: str) -> str:
        name = f"A{len(self.inputs)}"
        self.inputs.append((name, shape, dtype))
        self.lines.append(f"{name} = te.placeholder({shape}, dtype={dtype!r}, name={name!r})")
        return name

    def say(self, line: str) -> None:
        self.lines.append(line)

    def shape(self, rank: int, low: int = 2, high: int = 12) -> tuple[int, ...]:
        return tuple(self.draw.randint(low, high) for _ in range(rank))

    def type(self, *groups: tuple[str, ...]) -> str:
        return self.draw.choice([t for g in groups or (INTEGERS, FLOATS) for t in g])

    def split(self, stage: str, axes: str) -> str:
        """The name of an axis that a split of one of ``axes`` has made."""
        how = self.draw.choice(["factor", "nparts"])
        name = f"x{len(self.lines)}"
        size = self.draw.choice([2, 3, 4, 5, 8])
        self.say(f"{name}o, {name}i = s[{stage}].split({axes}, {how}={size})")
        return name


def small(draw: random.Random, element: str, depth: int, dtype: str) -> str:
    """An expression of small values in which no operation overflows a signed 32-bit number."""
    low = 0 if dtype.startswith("uint") else -7
    if depth == 0:
        return draw.choice([element, element, str(draw.randint(low, 9)), f"{draw.randint(1, 7)}.5"])
    a, b = (small(draw, element, depth - 1, dtype) for _ in "ab")
    form = draw.choice([
        "({a} + {b})", "({a} + {b})" if low == 0 else "({a} - {b})", "({a} * {c})",
        "te.max({a}, {b})", "te.min({a}, {b})",
        "tir.Select({e} > {c}, ({a}).astype('{t}'), ({b}).astype('{t}'))",
        "tir.if_then_else({e} <= {c}, ({a}).astype('{t}'), ({b}).astype('{t}'))",
        "te.abs(te.const(0, 'float32') + {a})", "({a}).astype('{t}')",
        "tir.Select(tir.all({e} > {c}, {e} < {d}), te.const(1, '{t}') * {a}, "
        "te.const(1, '{t}') * {a})",
    ])  # fmt: skip
    if "astype" in form:  # a number of Python has no type to be cast from
        a, b = (v if element in v else f"({element} + {v})" for v in (a, b))
    return form.format(
        a=a, b=b, e=element, c=draw.randint(max(low, -4), 6), d=draw.randint(1, 9),
        t=draw.choice(("int32", "int64", *FLOATS[1:])),
    )  # fmt: skip


def integer(draw: random.Random, element: str, depth: int, dtype: str) -> str:
    """An expression of integers, division, remainders, shifts and bits included."""
    unsigned = dtype.startswith("uint")
    if depth == 0:
        return draw.choice([element, element, str(draw.randint(0 if unsigned else -9, 20))])
    a, b = (f"te.const(0, 'int32') + {integer(draw, element, depth - 1, dtype)}" for _ in "ab")
    form = draw.choice([
        "({a} + {b})", "({a} - {b})", "({a} * {c})", "tir.floordiv({a}, {c})",
        "tir.floormod({a}, {c})", "tir.truncdiv({a}, {c})", "tir.truncmod({a}, {c})",
        "tir.indexdiv({a}, {c})", "(({a}) << {k})", "(({a}) >> {k})", "(({a}) & {m})",
        "(({a}) | {m})", "(({a}) ^ ({b}))", "(~({a}))", "te.max({a}, {b})", "te.abs({a})",
        "({a}).astype('{t}')", "tir.popcount({a})", "tir.clz(({a}) | te.const(1, 'int32'))",
        "(~({a}))" if unsigned else "(-({a}))",
    ])  # fmt: skip
    return form.format(
        a=a, b=b, c=draw.choice([2, 3, 4, 7] if unsigned else [-5, -3, -1, 2, 3, 4, 7]),
        k=draw.randint(0, 3), m=draw.randint(0, 60), t=draw.choice(INTEGERS[:-1]),
    )  # fmt: skip


def elements(p: Drawn) -> None:
    """Expressions of one or two tensors whose types differ, and of numbers."""
    shape = p.shape(p.draw.randint(1, 3))
    names = [p.input(shape, p.type()) for _ in range(p.draw.randint(1, 2))]
    i = ", ".join("ijk"[: len(shape)])
    strict = max((t for _, _, t in p.inputs), key=lambda t: t.startswith("uint"))
    value = small(p.draw, f"{p.draw.choice(names)}[{i}]", p.draw.randint(1, 3), strict)
    for name in names:
        signs = "+*" if strict.startswith("uint") else "+-*"
        value = f"({value} {p.draw.choice(signs)} {name}[{i}])"
    if p.draw.random() < 0.4:
        p.exact = False
        function = p.draw.choice(
            "exp tanh sigmoid sqrt log sin cos atan erf round floor ceil trunc nearbyint".split()
        )
        p.exact = function in ("round", "floor", "ceil", "trunc", "nearbyint")
        kind = p.draw.choice(FLOATS[1:])
        inside = f"({value}).astype({kind!r}) / {p.draw.choice([2, 4, 8])}"
        inside = f"te.abs({inside}) + 1" if function in ("sqrt", "log") else inside
        inside = f"te.min({inside}, 8.0)" if function == "exp" else inside
        value = f"te.{function}({inside})"
    p.say(f"B = te.compute({shape}, lambda {i}: {value}, name='B')")
    p.say("s = te.create_schedule(B.op)")
    p.say("outs = [B]")


def integers(p: Drawn) -> None:
    """Integer arithmetic: divisions of both kinds, shifts, bits, casts that wrap around."""
    shape = p.shape(1, 4, 24)
    name = p.input(shape, p.type(INTEGERS))
    dtype = p.inputs[0][2]
    value = integer(p.draw, f"{name}[i]", p.draw.randint(1, 3), dtype)
    others = ["i", "tir.floormod(i, 3)", "i % 4", "(i - 5) // 2"]
    other = p.draw.choice(others[:3] if dtype == "uint32" else others)
    p.say(f"B = te.compute({shape}, lambda i: {value} + {other}, name='B')")
    p.say("s = te.create_schedule(B.op)")
    p.say("outs = [B]")


def reductions(p: Drawn) -> None:
    """Sums, products, extrema and tuples of them, of a type and over one or two axes."""
    rows, inner, more = p.shape(3)
    dtype = p.type(("int32", "int64", "uint8", "int8", "uint32"), FLOATS)
    name = p.input((rows, inner, more), dtype)
    p.say(f"k = te.reduce_axis((0, {inner}), 'k')")
    p.say(f"r = te.reduce_axis((0, {more}), 'r')")
    form = p.draw.choice(["sum", "max", "min", "prod", "own", "arg", "where", "cast"])
    value = f"{name}[i, k, r]"
    if form in ("sum", "max", "min"):
        factor = p.draw.choice(["", " * 2", " + 1", " * 0.5", " - k"])
        made = f"te.{form}({value}{factor}, axis=[k, r])"
    elif form == "prod":
        p.say("prod = te.comm_reducer(lambda x, y: x * y, lambda t: tvm.tir.const(1, t), 'prod')")
        made = f"prod(tir.Select({value} > 1, te.const(2, 'float64'), te.const(1, 'float64')), "
        made += "axis=[k, r])"
    elif form == "own":
        p.say("own = te.comm_reducer(lambda x, y: te.max(x, y), lambda t: te.min_value(t), 'own')")
        made = f"own({value} + {p.draw.randint(0, 3)}, axis=[k, r])"
    elif form == "where":
        made = f"te.sum({value}, axis=[k, r], where=te.all(k + r < {inner}, i > 0))"
    elif form == "cast":
        made = f"te.sum({value}.astype('{p.draw.choice(('int32', *FLOATS[1:]))}') * 3, axis=[k, r])"
    else:
        p.say(
            "arg = te.comm_reducer(lambda x, y: (tir.Select(x[1] >= y[1], x[0], y[0]), "
            "tir.Select(x[1] >= y[1], x[1], y[1])), "
            "lambda t, u: (tvm.tir.const(-1, t), te.min_value(u)), 'arg')"
        )
        p.say(f"B, V = te.compute(({rows}, {more}), lambda i, j: "
              f"arg((k, {name}[i, k, j]), axis=k), name='B')")  # fmt: skip
        p.say("s = te.create_schedule(B.op)")
        p.say("outs = [B, V]")
        return
    p.say(f"B = te.compute(({rows},), lambda i: {made}, name='B')")
    p.say("s = te.create_schedule(B.op)")
    if form != "where" and p.draw.random() < 0.5:
        x = p.split("B", "B.op.reduce_axis[0]")
        if p.draw.random() < 0.5:
            p.say(f"BF = s.rfactor(B, {x}i)")
    p.say("outs = [B]")


def windows(p: Drawn) -> None:
    """Padding, then a window that slides with strides and holes, then what is done to it."""
    rows, columns = p.shape(2, 6, 14)
    size, pad = p.draw.randint(1, 3), p.draw.randint(0, 2)
    stride, hole = p.draw.randint(1, 2), p.draw.randint(1, 2)
    dtype = p.draw.choice(("float32", "float16", "int8", "uint8", "float64"))
    a, w = p.input((rows, columns), dtype), p.input((size, size), dtype)
    wide = p.draw.choice(["", f".astype('{'int32' if 'int' in dtype else 'float64'}')"])
    p.say(f"P = te.compute(({rows + 2 * pad}, {columns + 2 * pad}), lambda y, x: tir.if_then_else("
          f"tir.all(y >= {pad}, y < {rows + pad}, x >= {pad}, x < {columns + pad}), "
          f"{a}[y - {pad}, x - {pad}], tvm.tir.const(0, {dtype!r})), name='P')")  # fmt: skip
    out = [(e + 2 * pad - (size - 1) * hole - 1) // stride + 1 for e in (rows, columns)]
    p.say(f"k, r = te.reduce_axis((0, {size}), 'k'), te.reduce_axis((0, {size}), 'r')")
    p.say(f"C = te.compute(({out[0]}, {out[1]}), lambda y, x: te.sum("
          f"P[y * {stride} + k * {hole}, x * {stride} + r * {hole}]{wide} * {w}[k, r]{wide}, "
          "axis=[k, r]), name='C')")  # fmt: skip
    after = p.draw.choice(["+ 1", "* 2", "- 0.5", "+ x", "* 1"])
    p.say(f"B = te.compute(C.shape, lambda y, x: te.max(C[y, x] {after}, 0), name='B')")
    p.say("s = te.create_schedule(B.op)")
    p.say("y, x = B.op.axis")
    if p.draw.random() < 0.7:
        p.say("s[P].compute_inline()")
    if p.draw.random() < 0.6:
        p.say(f"s[C].compute_at(s[B], {p.draw.choice('yx')})")
    elif p.draw.random() < 0.5:
        t = p.split("B", "x")
        p.say(f"s[C].compute_at(s[B], {t}o)")
    p.say("outs = [B]")


def schedules(p: Drawn) -> None:
    """A product of matrices, and primitives that change its loops and not its values."""
    m, n, depth = p.shape(3, 3, 17)
    dtype = p.draw.choice(("float32", "float64", "int32", "int8"))
    a, b = p.input((m, depth), dtype), p.input((depth, n), dtype)
    p.say(f"k = te.reduce_axis((0, {depth}), 'k')")
    p.say(f"C = te.compute(({m}, {n}), lambda i, j: te.sum({a}[i, k].astype('float64') * "
          f"{b}[k, j], axis=k), name='C')")  # fmt: skip
    p.say(f"B = te.compute(({m}, {n}), lambda i, j: C[i, j] * 2 + {a}[i, 0], name='B')")
    p.say("s = te.create_schedule(B.op)")
    p.say("i, j = B.op.axis")
    at = "j"
    form = p.draw.choice(["tile", "split", "fuse", "none"])
    if form == "tile":
        p.say(f"io, jo, ii, ji = s[B].tile(i, j, {p.draw.randint(2, 5)}, {p.draw.randint(2, 5)})")
        at, inner = "jo", "ji"
        if p.draw.random() < 0.5:
            p.say("s[B].reorder(jo, io, ii, ji)")
            at = "io"
    elif form == "split":
        x = p.split("B", "j")
        at, inner = f"{x}o", f"{x}i"
    elif form == "fuse":
        p.say("f = s[B].fuse(i, j)")
        x = p.split("B", "f")
        at, inner = f"{x}o", f"{x}i"
    else:
        inner = "j"
    cached = p.draw.random() < 0.4
    if cached:
        p.say("CL = s.cache_write(C, 'local')" if p.draw.random() < 0.6 else
              f"AL = s.cache_read({a}, 'local', [C])")  # fmt: skip
    last = p.lines[-1]
    if form != "fuse" and p.draw.random() < 0.6:
        p.say(f"s[C].compute_at(s[B], {at})")
    if cached and last.startswith("CL"):
        p.say("ko, ki = s[CL].split(s[CL].op.reduce_axis[0], 4)")
        p.say(f"s[CL].{p.draw.choice(['unroll(ki)', 'reorder(ko, s[CL].op.axis[0], ki)'])}")
    elif not cached:
        p.say(f"ko, ki = s[C].split(k, {p.draw.randint(2, 5)})")
        p.say("s[C].reorder(ko, *s[C].op.axis, ki)")
    p.say(f"s[B].{p.draw.choice(['vectorize', 'unroll'])}({inner})")
    p.say("outs = [B]")


def scans(p: Drawn) -> None:
    """Recurrences, and bodies that are written statement by statement."""
    steps, n = p.shape(2, 4, 10)
    dtype = p.draw.choice(("float32", "float64", "int32"))
    a = p.input((steps, n), dtype)
    if p.draw.random() < 0.5:
        p.say(f"st = te.placeholder(({steps}, {n}), dtype={dtype!r}, name='st')")
        p.say(f"first = te.compute((1, {n}), lambda _, i: {a}[0, i])")
        update = p.draw.choice(
            ["st[t - 1, i] + {a}[t, i]", "te.max(st[t - 1, i], {a}[t, i])",
             "st[t - 1, i] - {a}[t, tir.floormod(i + 1, {n})]", "mid[t, i] + {a}[t, i]"]
        ).format(a=a, n=n)  # fmt: skip
        if update.startswith("mid"):
            p.say(f"mid = te.compute(({steps}, {n}), lambda t, i: st[t - 1, i] * 1 + i, "
                  "name='mid')")  # fmt: skip
        p.say(f"upd = te.compute(({steps}, {n}), lambda t, i: {update}, name='upd')")
        p.say(f"X = tvm.te.scan(first, upd, st, inputs=[{a}])")
        p.say("s = te.create_schedule(X.op)")
        if p.draw.random() < 0.5:
            x = p.split("upd", "upd.op.axis[1]")
            p.say(f"s[upd].reorder({x}i, {x}o)" if p.draw.random() < 0.5 else
                  f"s[upd].unroll({x}i)")  # fmt: skip
        p.say("outs = [X]")
        return
    p.say("def body(ins, outs):")
    p.say("    ib = tvm.tir.ir_builder.create()")
    p.say("    x, y = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])")
    p.say(f"    with ib.for_range(0, {steps}, name='t') as t:")
    p.say(f"        with ib.for_range(0, {n}, name='i') as i:")
    p.say(f"            with ib.if_scope(tir.all(t > {p.draw.randint(0, 2)}, i < {n - 1})):")
    p.say(f"                y[t * {n} + i] = y[(t - 1) * {n} + i] + x[t * {n} + i + 1]")
    p.say("            with ib.else_scope():")
    p.say(f"                y[t * {n} + i] = x[t * {n} + i]{p.draw.choice([' + 1', ' * 2', ''])}")
    p.say("    return ib.get()")
    p.say(f"E = te.extern(({steps}, {n}), [{a}], body, dtype={dtype!r}, name='E')")
    p.say(f"B = te.compute(({steps}, {n}), lambda i, j: E[i, j] - {a}[i, j], name='B')")
    p.say("s = te.create_schedule(B.op)")
    p.say("outs = [B]")


def library(p: Drawn) -> None:
    """Functions of topi one behind the other, and operators on whole tensors."""
    b, c, h, w = p.draw.randint(1, 2), p.draw.choice([2, 4]), *p.shape(2, 5, 9)
    dtype = p.draw.choice(("float32", "float32", "float64", "float16", "int32", "int8"))
    x = p.input((b, c, h, w), dtype)
    floating = dtype.startswith("float")
    p.say(f"t = {x}")
    for _ in range(p.draw.randint(1, 3)):
        steps = [
            "topi.nn.relu(t)", "t + 1", "t * t.shape[0]", "t - topi.max(t, axis=1, keepdims=True)",
            "topi.clip(t, -3, 4)", "topi.flip(t, axis=3)", "topi.transpose(t, (0, 1, 3, 2))",
            "topi.nn.pad(t, (0, 0, 1, 0), (0, 0, 0, 2), pad_value=1)", "topi.cast(t, 'int32')",
            "topi.sum(t, axis=2, keepdims=True) + t", "topi.strided_slice(t, [0, 0, 1, 0], "
            "[9, 9, 9, 9], [1, 1, 2, 1])", "topi.maximum(t, 2)", "topi.repeat(t, 2, 3)",
            "topi.concatenate((t, t), axis=1)", "topi.negative(t)",
            "topi.right_shift(topi.cast(t, 'int32'), topi.const_vector(np.array([1], 'int32')))",
            "topi.floor_divide(t, tvm.tir.const(3, t.dtype))", "topi.mod(t, tvm.tir.const(5, "
            "t.dtype))", "topi.where(topi.greater(t, topi.full_like(t, 1)), t, topi.full_like("
            "t, -2))", "topi.argmax(t, axis=3, keepdims=True)", "topi.cumsum(t, axis=1)",
            "topi.sign(t)", "topi.abs(t)", "topi.tile(t, (1, 1, 1, 2))",
            "topi.nn.pool2d(t, [2, 2], [1, 1], [1, 1], [0, 0, 1, 1], 'max')",
            "topi.logical_not(topi.equal(t, topi.full_like(t, 1)))",
            "topi.take(t, topi.const_vector(np.array([1, 0], 'int32')), axis=1)",
            "topi.round(topi.cast(t, 'float32') * 0.5)",
        ]  # fmt: skip
        rounded = [
            "topi.nn.softmax(topi.cast(t, 'float32'), axis=3)", "topi.exp(topi.clip(t, -2, 2))",
            "topi.nn.pool2d(t, [2, 2], [2, 2], [1, 1], [0, 0, 0, 0], 'avg')", "topi.tanh(t)",
            "topi.sigmoid(t)", "t / 3.0", "topi.nn.leaky_relu(t, 0.1)", "topi.sqrt(topi.abs(t))",
            "topi.nn.lrn(topi.cast(t, 'float32'), 3)", "topi.rsqrt(topi.abs(t) + 1)",
            "topi.power(t, 2)",
        ]  # fmt: skip
        if p.draw.random() < 0.25 * (1 + floating):
            p.say("t = topi.cast(t, 'float32')")
            p.say(f"t = {p.draw.choice(rounded)}")
            p.exact = False
            break
        p.say(f"t = {p.draw.choice(steps)}")
    _spread(p)


def _spread(p: Drawn) -> None:
    if p.draw.random() < 0.5:
        p.say("with tvm.target.Target('llvm'):")
        p.say("    s = topi.generic.schedule_injective(t)")
    else:
        p.say("s = te.create_schedule(t.op)")
    p.say("outs = [t]")


KINDS: tuple[Callable[[Drawn], None], ...] = (
    elements, integers, reductions, windows, schedules, scans, library
)  # fmt: skip


def drawn(seed: int) -> dict[str, Any]:
    """A program: its kind, its text, its inputs and whether its outputs agree to the bit."""
    program = Drawn(seed)
    kind = KINDS[seed % len(KINDS)]
    kind(program)
    return {
        "seed": seed,
        "kind": kind.__name__,
        "text": "\n".join(program.lines),
        "inputs": program.inputs,
        "exact": program.exact,
    }


# -- one interpreter ---------------------------------------------------------------------------


def values(seed: int, place: int, shape: list[int], dtype: str) -> Any:
    """Small integers, in halves where the type has fractions; the whole range of small types."""
    import numpy as np

    state = np.random.RandomState(seed * 7 + place)
    if dtype.startswith("float"):
        return (state.randint(-12, 13, shape) / 2).astype(dtype)
    low = 0 if dtype.startswith("u") else -120
    return state.randint(low, 128 if dtype == "int8" else 250, shape).astype(dtype)


def carry_out(programs: list[dict[str, Any]], out: Path, language: str) -> None:
    """Build and run programs; outputs and errors are files named by seed."""
    import numpy as np

    if language == "tvm":
        import tvm
        from tvm import te, tir, topi
    else:
        from tilewright import tvm

        te, tir, topi = tvm.te, tvm.tir, tvm.topi
    for program in programs:
        seed = program["seed"]
        (out / f"{seed}.begun").touch()
        scope: dict[str, Any] = {"tvm": tvm, "te": te, "tir": tir, "topi": topi, "np": np}
        try:
            exec(program["text"], scope)
            outs = scope["outs"]
            names = [scope[name] for name, _, _ in program["inputs"]]
            function = tvm.build(scope["s"], [*names, *outs], "llvm")
            given = [values(seed, k, s, d) for k, (_, s, d) in enumerate(program["inputs"])]
            made = [tvm.nd.array(np.zeros([int(e) for e in t.shape], str(t.dtype))) for t in outs]
            function(*(tvm.nd.array(g) for g in given), *made)
            np.savez(out / f"{seed}.npz", *(m.numpy() for m in made))
        except Exception as error:
            lines = [line for line in str(error).strip().splitlines() if line] or [""]
            (out / f"{seed}.error").write_text(
                f"{type(error).__name__}: {lines[0] if language != 'tvm' else lines[-1]}"
            )


def run_in(python: str, programs: list[dict[str, Any]], out: Path, language: str) -> None:
    """Run programs in an interpreter, and go on behind one that ends its process."""
    out.mkdir(parents=True)
    while left := [p for p in programs if not (out / f"{p['seed']}.begun").exists()]:
        listed = out / "programs.json"
        listed.write_text(json.dumps(left))
        done = subprocess.run(
            [python, __file__, "--one", language, str(listed)],
            env={**os.environ, "TOPHUB_LOCATION": "NONE"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode and not list(out.glob("*.begun")):
            raise SystemExit(done.stderr)


def outcome(program: dict[str, Any], tvm_out: Path, our_out: Path) -> tuple[str, str]:
    """What became of a program in both, in a word and in detail."""
    import numpy as np

    seed = program["seed"]
    error = our_out / f"{seed}.error"
    if not (tvm_out / f"{seed}.npz").exists():
        said = tvm_out / f"{seed}.error"
        return "refused by TVM", said.read_text() if said.exists() else "the process ended"
    if not (our_out / f"{seed}.npz").exists():
        return "refused here", error.read_text() if error.exists() else "the process ended"
    theirs, ours = np.load(tvm_out / f"{seed}.npz"), np.load(our_out / f"{seed}.npz")
    for name in theirs.files:
        a, b = theirs[name], ours[name]
        if a.dtype != b.dtype or a.shape != b.shape:
            return "type", f"{a.dtype}{a.shape} in TVM, {b.dtype}{b.shape} here"
        near = 0.0 if program["exact"] else NEAR.get(str(a.dtype), 0.0)
        with np.errstate(all="ignore"):
            size = np.nanmax(np.where(np.isfinite(a), np.abs(a), 1), initial=0).astype("float64")
            same = (a == b) | (np.isnan(a) & np.isnan(b) if a.dtype.kind == "f" else False)
            same |= np.abs(a.astype("float64") - b.astype("float64")) <= near * (size + 1)
        if not same.all():
            at = tuple(int(v) for v in np.argwhere(~same)[0])
            return "value", f"{a[at]} in TVM, {b[at]} here, at {at} of {a.dtype}{a.shape}"
    return "same", ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tvm", help="an interpreter that has TVM 0.19")
    parser.add_argument("--programs", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--show", type=int, nargs="+", metavar="SEED", help="only these, with text")
    parser.add_argument("--out", help="a folder for the counts as JSON")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        language, listed = options.one
        carry_out(json.loads(Path(listed).read_text()), Path(listed).parent, language)
        return
    if not options.tvm:
        parser.error("--tvm names the interpreter to compare with, which has TVM 0.19")
    seeds = options.show or range(options.first, options.first + options.programs)
    programs = [drawn(seed) for seed in seeds]
    counts: dict[str, Counter[str]] = {kind.__name__: Counter() for kind in KINDS}
    with tempfile.TemporaryDirectory() as folder:
        outs = Path(folder) / "tvm", Path(folder) / "tilewright"
        for python, out in zip((options.tvm, sys.executable), outs, strict=True):
            run_in(python, programs, out, out.name)
        for program in programs:
            word, detail = outcome(program, *outs)
            counts[program["kind"]][word] += 1
            if options.show:
                print(program["text"])
            if options.show or word != "same":
                print(f"{program['seed']} {program['kind']}: {word} {detail}", flush=True)
    for kind, found in counts.items():
        print(f"{kind:10}", ", ".join(f"{n} {word}" for word, n in found.most_common()))
    total = sum(counts.values(), Counter())
    print("all       ", ", ".join(f"{n} {word}" for word, n in total.most_common()))
    if options.out:
        import measure

        every = {kind: dict(of) for kind, of in {**counts, "all": total}.items()}
        around = measure.environment("numpy", "llvmlite", gpu=False)
        around["command"] = (
            f"python benchmarks/tvm_programs.py --tvm PYTHON --programs {options.programs}"
        )
        measure.save("tvm_programs", {"environment": around, "counts": every}, options.out)
    raise SystemExit(any(total[word] for word in ("type", "value", "refused here")))


if __name__ == "__main__":
    main()
