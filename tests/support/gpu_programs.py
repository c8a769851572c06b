"""GPU programs written by hand, as lowering leaves them; each with what NumPy says of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright import ir
from tilewright.ir import expr as E
from tilewright.ir import ops
from tilewright.ir.expr import Broadcast, Expr, Load, Ramp, Var
from tilewright.ir.ops import const
from tilewright.ir.stmt import Allocate, For, ForKind, If, Let, Produce, Stmt, Store, Sync, seq

Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass
class Program:
    """A module, shapes for its symbolic extents, and the meaning of its outputs."""

    module: ir.Module
    reference: Callable[[Arrays], Arrays]
    extents: dict[str, int] = field(default_factory=dict)

    @property
    def params(self) -> list[ir.Buffer]:
        return [p for p in self.module.params if isinstance(p, ir.Buffer)]

    def arrays(self, seed: int = 0) -> Arrays:
        """Small integers, so that every sum is exact."""
        rng = np.random.default_rng(seed)
        made = {}
        for p in self.params:
            shape = tuple(
                e.value if isinstance(e, E.IntImm) else self.extents[e.name] for e in p.shape
            )
            kind = np.float32 if p.dtype.is_float else np.dtype(str(p.dtype))
            made[p.name] = rng.integers(-4, 5, shape).astype(kind)
        return made


def typed(program: Program, arrays: Arrays) -> Arrays:
    """The arrays in the types of the parameters; bfloat16 as its bits."""
    made = {}
    for p, (name, a) in zip(program.params, arrays.items(), strict=True):
        if p.dtype == "bfloat16":
            made[name] = (a.view("uint32") >> 16).astype("uint16")
        else:
            made[name] = a.astype(str(p.dtype))
    return made


def as_float(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What :func:`typed` made of float32, as float32 or what it is."""
    return (a.astype("uint32") << 16).view("float32") if a.dtype == np.uint16 else a


def buffer(name: str, shape: tuple[Any, ...], type: str = "float32", scope: str = "global") -> Any:
    return ir.Buffer(name, tuple(map(ops.as_index, shape)), ir.dtype(type), scope)


def loop(var: Var, extent: Any, body: Stmt, kind: ForKind = ForKind.SERIAL, low: Any = 0) -> For:
    return For(var, ops.as_index(low), ops.as_index(extent), kind, body)


def store(b: ir.Buffer, *args: Any) -> Store:
    """``store(b, i, j, value)``."""
    *indices, value = args
    return Store(b, tuple(map(ops.as_index, indices)), ops.as_expr(value), None)


def kernel(
    name: str, params: tuple[Any, ...], body: Stmt, workspaces: Any = (), **axes: Any
) -> ir.Module:
    """A module of one kernel; ``blockIdx_x=(var, extent)`` and so on are its launch axes."""
    launch = tuple(
        ir.LaunchAxis(tag.replace("_", "."), var, ops.as_index(extent))
        for tag, (var, extent) in axes.items()
    )
    scalars = tuple(dict.fromkeys(e for p in params for e in p.shape if isinstance(e, Var)))
    func = ir.Func(name, (*params, *scalars), body, launch)
    return ir.Module(name, params, (func,), workspaces)


def ramp(base: Any, lanes: int, stride: Any = 1) -> Ramp:
    return Ramp(ops.as_index(base), const(stride), lanes)


def vload(b: ir.Buffer, *indices: Any) -> Load:
    return Load(b, tuple(map(ops.as_index, indices)), None)


def depthwise(k: int = 3, size: int = 14, type: str = "float32") -> Program:
    """A padded depthwise convolution, a thread an output, the padding by if_then_else."""
    c, pad = 8, k // 2
    A, F = buffer("Input", (1, c, size, size), type), buffer("Filter", (c, k, k), type)
    O = buffer("Output", (1, c, size, size), type)
    acc = buffer("acc", (1,), "float32", "local")
    bx, ty, tx, di, dj = (Var.make(n) for n in ("blockIdx.x", "ty", "tx", "di", "dj"))
    h, w = ty + di - pad, tx + dj - pad
    inside = ops.logical_and(h >= 0, h < size, w >= 0, w < size)
    value = ops.if_then_else(inside, A[0, bx, h, w], const(0.0, type))
    product = ops.cast("float32", value) * ops.cast("float32", F[bx, di, dj])
    update = store(acc, 0, acc[0] + product)
    nest = loop(di, k, loop(dj, k, update, ForKind.UNROLLED), ForKind.UNROLLED)
    result = ops.cast(type, acc[0])
    body = Allocate(
        acc,
        seq(
            Produce("DepthwiseConv2d", seq(store(acc, 0, 0.0), nest)),
            store(O, 0, bx, ty, tx, result),
        ),
    )
    module = kernel(
        "depthwise", (A, F, O), body,
        blockIdx_x=(bx, c), threadIdx_y=(ty, size), threadIdx_x=(tx, size),
    )  # fmt: skip

    def reference(a: Arrays) -> Arrays:
        padded = np.pad(a["Input"].astype("float64"), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
        out = np.zeros(a["Output"].shape)
        for i in range(k):
            for j in range(k):
                tap = a["Filter"][None, :, i, j, None, None]
                out += padded[:, :, i : i + size, j : j + size] * tap
        return {"Output": out}

    return Program(module, reference)


def shared_tile(rows: int = 128, columns: int = 96) -> Program:
    """A transpose through a padded tile in shared memory."""
    A, B = buffer("A", (rows, columns)), buffer("B", (columns, rows))
    tile = ir.Buffer(
        "tile", (const(32), const(32)), ir.dtype("float32"), "shared",
        ir.Layout((const(33), const(1))),
    )  # fmt: skip
    bx, by, tx, ty, i = (Var.make(n) for n in ("bx", "by", "tx", "ty", "i"))
    r = ty + i * 8
    body = Allocate(
        tile,
        seq(
            loop(i, 4, store(tile, r, tx, A[by * 32 + r, bx * 32 + tx]), ForKind.UNROLLED),
            Sync("shared"),
            loop(i, 4, store(B, bx * 32 + r, by * 32 + tx, tile[tx, r]), ForKind.UNROLLED),
        ),
    )
    module = kernel(
        "transpose", (A, B), body, blockIdx_x=(bx, columns // 32), blockIdx_y=(by, rows // 32),
        threadIdx_x=(tx, 32), threadIdx_y=(ty, 8),
    )  # fmt: skip
    return Program(module, lambda a: {"B": a["A"].T})


def vector_copy(lanes: int = 4, type: str = "float32") -> Program:
    """A copy by vectors."""
    A, B = buffer("A", (64 * lanes,), type), buffer("B", (64 * lanes,), type)
    tx = Var.make("tx")
    at = ramp(tx * lanes, lanes)
    module = kernel("copy", (A, B), Store(B, (at,), vload(A, at), None), threadIdx_x=(tx, 64))
    return Program(module, lambda a: {"B": a["A"]})


def scale_shift(lanes: int = 4, type: str = "float32") -> Program:
    """``max(A * scale + shift, 0)`` a channel, by vectors."""
    A, B = buffer("A", (8, 64 * lanes), type), buffer("B", (8, 64 * lanes), type)
    scale, shift = buffer("Scale", (8,), type), buffer("Shift", (8,), type)
    bx, tx = Var.make("bx"), Var.make("tx")
    at = ramp(tx * lanes, lanes)
    zero = const(0.0, f"{type}x{lanes}")
    value = ops.maximum(vload(A, bx, at) * scale[bx] + shift[bx], zero)
    module = kernel(
        "scale_shift", (A, scale, shift, B), Store(B, (bx, at), value, None),
        blockIdx_x=(bx, 8), threadIdx_x=(tx, 64),
    )  # fmt: skip

    def reference(a: Arrays) -> Arrays:
        linear = a["A"] * a["Scale"][:, None] + a["Shift"][:, None]
        return {"B": np.maximum(linear, 0)}

    return Program(module, reference)


def half_fma(type: str = "float16") -> Program:
    """Products summed in registers, two lanes an operation."""
    n, lanes = 16, 8
    A, B = buffer("A", (n, 32 * lanes), type), buffer("B", (n, 32 * lanes), type)
    C = buffer("C", (32 * lanes,), type)
    acc = buffer("acc", (lanes,), type, "local")
    tx, k = Var.make("tx"), Var.make("k")
    at, mine = ramp(tx * lanes, lanes), ramp(0, lanes)
    body = Allocate(
        acc,
        seq(
            Store(acc, (mine,), const(0.0, f"{type}x{lanes}"), None),
            loop(
                k, n,
                Store(acc, (mine,), vload(acc, mine) + vload(A, k, at) * vload(B, k, at), None),
            ),
            Store(C, (at,), vload(acc, mine), None),
        ),
    )  # fmt: skip
    module = kernel("half_fma", (A, B, C), body, threadIdx_x=(tx, 32))
    return Program(module, lambda a: {"C": (a["A"] * a["B"]).sum(0)})


def masked_tail(n: int = 250) -> Program:
    """``B = A + 1`` where the last vector is cut off, under a mask."""
    A, B = buffer("A", (n,)), buffer("B", (n,))
    tx = Var.make("tx")
    at = ramp(tx * 4, 4)
    mask = E.LT(at, Broadcast(const(n), 4))
    value = Load(A, (at,), mask) + 1.0
    module = kernel("tail", (A, B), Store(B, (at,), value, mask), threadIdx_x=(tx, 64))
    return Program(module, lambda a: {"B": a["A"] + 1})


def warp_sum() -> Program:
    """A sum over the threads of a warp by shuffles."""
    A, B = buffer("A", (4, 32)), buffer("B", (4,))
    bx, tx = Var.make("bx"), Var.make("tx")
    total = A[bx, tx]
    body: Stmt
    steps: list[tuple[Var, Expr]] = []
    for distance in (16, 8, 4, 2, 1):
        other = E.Call(ir.dtype("float32"), "shuffle_xor", (total, const(distance)))
        var = Var.make("sum", "float32")
        steps.append((var, total + other))
        total = var
    body = If(tx.equal(0), store(B, bx, total))
    for var, value in reversed(steps):
        body = Let(var, value, body)
    module = kernel("warp_sum", (A, B), body, blockIdx_x=(bx, 4), threadIdx_x=(tx, 32))
    return Program(module, lambda a: {"B": a["A"].sum(1)})


def symbolic_batch(n: int = 5) -> Program:
    """A kernel that serves every batch; its grid depends on the batch."""
    batch = Var.make("n")
    A, B = buffer("A", (batch, 40)), buffer("B", (batch, 40))
    bx, tx = Var.make("bx"), Var.make("tx")
    flat = bx * 64 + tx
    body = If(flat < batch * 40, store(B, flat // 40, flat % 40, A[flat // 40, flat % 40] * 2.0))
    module = kernel(
        "double_all", (A, B), body, blockIdx_x=(bx, (batch * 40 + 63) // 64), threadIdx_x=(tx, 64)
    )
    return Program(module, lambda a: {"B": a["A"] * 2}, {"n": n})


def two_kernels() -> Program:
    """A row's sum into a workspace, then each row divided by it."""
    A, B, S = buffer("A", (16, 32)), buffer("B", (16, 32)), buffer("total", (16,))
    tx, i, bx, ty = (Var.make(n) for n in ("tx", "i", "bx", "ty"))
    first = ir.Func(
        "sums", (A, S),
        seq(store(S, tx, 1.0), loop(i, 32, store(S, tx, S[tx] + ops.absolute(A[tx, i])))),
        (ir.LaunchAxis("threadIdx.x", tx, const(16)),),
    )  # fmt: skip
    second = ir.Func(
        "divide", (A, S, B), store(B, bx, ty, A[bx, ty] / S[bx]),
        (ir.LaunchAxis("blockIdx.x", bx, const(16)), ir.LaunchAxis("threadIdx.x", ty, const(32))),
    )  # fmt: skip

    def reference(a: Arrays) -> Arrays:
        return {"B": a["A"] / (1 + np.abs(a["A"]).sum(1, keepdims=True))}

    return Program(ir.Module("normalize", (A, B), (first, second), (S,)), reference)


def functions() -> Program:
    """Every function of floats, of one value."""
    names = [f for f in ops.FLOAT_FUNCTIONS if f not in ("acos", "asin")]
    A, B = buffer("A", (32,)), buffer("B", (len(names), 32))
    tx = Var.make("tx")
    x = ops.absolute(A[tx]) * 0.25 + 0.5
    body = seq(*(store(B, k, tx, ops.unary(name, x)) for k, name in enumerate(names)))
    module = kernel("functions", (A, B), body, threadIdx_x=(tx, 32))

    def reference(a: Arrays) -> Arrays:
        special: dict[str, Callable[[Any], Any]] = {
            "exp10": lambda v: 10.0**v, "rsqrt": lambda v: v**-0.5,
            "erf": np.vectorize(math.erf), "erfc": np.vectorize(math.erfc),
            "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
            "round": lambda v: np.floor(v + 0.5), "nearbyint": np.rint,
            "atan": np.arctan, "exp": np.exp,
        }  # fmt: skip
        v = np.abs(a["A"].astype("float64")) * 0.25 + 0.5
        return {"B": np.stack([special.get(n, getattr(np, n, None))(v) for n in names])}

    return Program(module, reference)


def integers() -> Program:
    """Division that rounds down, of either sign; narrow types; bits; booleans."""
    A, B = buffer("A", (32,), "int32"), buffer("B", (12, 32), "int32")
    Q, M = buffer("Q", (32,), "int8"), buffer("M", (32,), "bool")
    tx = Var.make("tx")
    a, q = A[tx], Q[tx]

    def negated(v: Expr, bits: int) -> Expr:
        """By the sign of a float of ``bits``."""
        held = ops.reinterpret(f"uint{bits}", ops.cast(f"float{bits}", v))
        return ops.reinterpret(f"float{bits}", held ^ const(1 << bits - 1, f"uint{bits}"))

    values = [
        a // 3, a % 3, a // 4, a % 4, (tx + 1) // 3, a // (q * 0 - 3),
        ops.cast("int32", q * const(50, "int8")), ops.popcount(a),
        ops.cast("int32", ops.logical_and(M[tx], a > 0)), ops.truncmod(a, const(3)),
        negated(a, 32), negated(a, 64),
    ]  # fmt: skip
    body = seq(*(store(B, k, tx, ops.cast("int32", v)) for k, v in enumerate(values)))
    module = kernel("integers", (A, Q, M, B), body, threadIdx_x=(tx, 32))

    def reference(x: Arrays) -> Arrays:
        a, q, i = x["A"], x["Q"], np.arange(32)
        bits = np.array([bin(int(v) & 0xFFFFFFFF).count("1") for v in a])
        rows = [
            a // 3, a % 3, a // 4, a % 4, (i + 1) // 3, a // -3,
            (q * np.int8(50)).astype("int32"), bits, x["M"] & (a > 0), np.fmod(a, 3), -a, -a,
        ]  # fmt: skip
        return {"B": np.stack(rows)}

    return Program(module, reference)


def changed_bounds(n: int = 16) -> Program:
    """Loops that run as often as they were to when they began, from where they were to, whatever
    they write since."""
    A, B, count = (buffer("A", (n,), "int32"), buffer("B", (n,), "int32"),
                   buffer("count", (1,), "int32", "local"))  # fmt: skip
    tx, i, j = Var.make("tx"), Var.make("i"), Var.make("j")
    given, changed = store(count, 0, ops.maximum(A[tx], 0)), store(count, 0, const(9))
    body = seq(
        store(B, tx, const(0)),
        given, loop(i, count[0], seq(changed, store(B, tx, B[tx] + 1))),
        given, loop(j, 1, seq(changed, store(B, tx, B[tx] + j)), low=count[0]),
        given, loop(Var.make("k"), 2, seq(changed, store(B, tx, B[tx] + 1)), low=count[0]),
    )  # fmt: skip
    module = kernel("count", (A, B), Allocate(count, body), threadIdx_x=(tx, n))
    return Program(module, lambda a: {"B": 2 * np.maximum(a["A"], 0) + 2})


def shifted_mask(n: int = 16) -> Program:
    """A vector whose mask, and whose value, are read where other lanes of it are written."""
    A, B, x = (buffer("A", (n, 8), "int32"), buffer("B", (n, 8), "int32"),
               buffer("x", (8,), "int32", "local"))  # fmt: skip
    tx, i, j = Var.make("tx"), Var.make("i"), Var.make("j")
    mask = E.LT(vload(x, ramp(0, 4)), Broadcast(const(0), 4))
    body = seq(
        loop(i, 8, store(x, i, A[tx, i])),
        Store(x, (ramp(1, 4),), vload(x, ramp(2, 4)), mask),
        loop(j, 8, store(B, tx, j, x[j])),
    )

    def reference(a: Arrays) -> Arrays:
        made = a["A"].copy()
        made[:, 1:5] = np.where(a["A"][:, :4] < 0, a["A"][:, 2:6], a["A"][:, 1:5])
        return {"B": made}

    return Program(kernel("shift", (A, B), Allocate(x, body), threadIdx_x=(tx, n)), reference)


PROGRAMS: dict[str, Callable[[], Program]] = {
    "depthwise": depthwise,
    "depthwise_half": lambda: depthwise(5, 16, "float16"),
    "shared_tile": shared_tile,
    "copy": vector_copy,
    "copy_eight": lambda: vector_copy(8),
    "copy_half_eight": lambda: vector_copy(8, "float16"),
    "copy_three": lambda: vector_copy(3),
    "copy_bytes": lambda: vector_copy(16, "int8"),
    "scale_shift": scale_shift,
    "scale_shift_half": lambda: scale_shift(8, "float16"),
    "half_fma": half_fma,
    "bfloat_fma": lambda: half_fma("bfloat16"),
    "masked_tail": masked_tail,
    "warp_sum": warp_sum,
    "symbolic_batch": symbolic_batch,
    "two_kernels": two_kernels,
    "functions": functions,
    "integers": integers,
    "changed_bounds": changed_bounds,
    "shifted_mask": shifted_mask,
}
