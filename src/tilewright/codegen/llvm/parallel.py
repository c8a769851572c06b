"""Parallel loops: the body as a function over a range of iterations, which the pool calls.

What the body uses of its surroundings is passed in a closure, whose first field says whether an
iteration failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.codegen.llvm import streams
from tilewright.codegen.llvm.builder import Value
from tilewright.codegen.llvm.sums import I64
from tilewright.ir import expr as E
from tilewright.ir import stmt as S
from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr, Var
from tilewright.ir.stmt import Stmt
from tilewright.ir.visit import allocated, free_vars, walk

if TYPE_CHECKING:
    from tilewright.codegen.llvm.stmt import Statements

_PTR = "ptr"


def write(w: Statements, s: S.For) -> None:
    """The body as a function of its own over a range, which the pool calls in each thread."""
    b = w.b
    first, count = w.index(s.min), w.index(s.extent)
    variables, buffers = _captured(w, s)
    captured = [w.variables[v] for v in variables] + [w.pointers[x] for x in buffers]
    fields = ["i32", *(value.type for value in captured)]
    layout = f"{{ {', '.join(fields)} }}"
    closure = b.early(f"alloca {layout}, align 64")
    b.do(f"store i32 0, {closure}")
    for k, value in enumerate(captured):
        at = b.op(_PTR, f"getelementptr {layout}, {closure}, i32 0, i32 {k + 1}")
        b.do(f"store {value}, {at}")
    name = _outline(w, s, variables, buffers, captured, layout)
    threads = Value("i32", str(w.threads))
    b.declare("void", "tw_parallel", [_PTR, _PTR, I64, I64, "i32"], external=True)
    end = w.arithmetic("add", first, count)
    args = [Value(_PTR, f"@{name}"), closure, first, end, threads]
    b.call("void", "tw_parallel", args, external=True)
    w.forget_loads()
    status = b.op("i32", f"load i32, {closure}")
    w.fail_if(b.compare("icmp ne", status, Value("i32", "0")))


def _captured(w: Statements, s: S.For) -> tuple[list[Var], list[Buffer]]:
    """The variables and buffers of the surroundings that the loop uses."""
    own = set(allocated(s.body))
    found: dict[Buffer, None] = {}
    names: dict[Var, None] = {}
    for node in walk(s.body):
        if isinstance(node, (S.Store, E.Load, S.Access)):
            found[node.buffer] = None
        elif isinstance(node, S.Instr):
            found.update((o.buffer, None) for o in node.operands)
    shapes = [*found, *own]
    extents = [x for buffer in shapes for x in (*buffer.shape, *buffer.strides)]
    parts: list[Expr | Stmt] = [s.body, *extents]
    for part in parts:
        names.update((v, None) for v in free_vars(part))
    variables = [v for v in names if v is not s.var and v in w.variables]
    return variables, [x for x in found if x not in own]


def _outline(
    w: Statements,
    s: S.For,
    variables: list[Var],
    buffers: list[Buffer],
    captured: list[Value],
    layout: str,
) -> str:
    """Two functions: one that reads the closure, and the loop with its promises of no alias.

    They stay two: LLVM would optimise the loop, copy it into its only caller, and do so again.
    """
    b = w.b
    w.bodies += 1
    name = f"parallel.{w.bodies}"
    before = dict(w.variables), dict(w.pointers)
    params = []
    captives: list[Var | Buffer] = [*variables, *buffers]
    for k, (what, value) in enumerate(zip(captives, captured, strict=True)):
        promise = " noalias" if isinstance(what, Buffer) else ""
        params.append(f"{value.type}{promise} %c{k}")
        if isinstance(what, Buffer):
            w.pointers[what] = Value(_PTR, f"%c{k}")
        else:
            w.variables[what] = Value(value.type, f"%c{k}")
    lines = []
    for k, value in enumerate(captured):
        lines.append(f"  %p{k} = getelementptr {layout}, ptr %closure, i32 0, i32 {k + 1}")
        lines.append(f"  %c{k} = load {value.type}, ptr %p{k}")
    passed = "".join(f", {value.type} %c{k}" for k, value in enumerate(captured))
    b.functions.append(
        f"define internal void @{name}(ptr %closure, i64 %begin, i64 %end) #0 {{\n"
        + "\n".join(lines)
        + f"\n  %status = call i32 @{name}.body(i64 %begin, i64 %end{passed})\n"
        "  %bad = icmp ne i32 %status, 0\n  br i1 %bad, label %fail, label %exit\n"
        "fail:\n  store i32 1, ptr %closure\n  br label %exit\nexit:\n  ret void\n}"
    )
    head = f"define internal i32 @{name}.body(i64 %begin, i64 %end"
    head += "".join(f", {p}" for p in params) + ") noinline #0"
    begin, end = Value(I64, "%begin"), Value(I64, "%end")

    def body() -> None:
        w.counted(s.var, begin, end, lambda: w.task(s))
        streams.fence(w)

    w.function(head, body, True)
    w.variables, w.pointers = before
    return name
