"""Variables of one name, as two of ``te.var("n")``, get names of their own.

The host and generated code know the variables of a call by their names.

>>> from tilewright.ir.dtype import dtype
>>> from tilewright.lower.ir_builder import axes, loop, store
>>> (i,) = axes("i")
>>> A, B = (Buffer(name, (Var.make("n"),), dtype("float32")) for name in "AB")
>>> params, body = names_apart((A, B), loop(i, B.shape[0], store(B[i], 0.0)))
>>> params
(A[float32 n; global], B[float32 n_1; global])
>>> print(body)
for i in range(n_1):
    B[i] = T.float32(0)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Var
from tilewright.ir.stmt import Stmt
from tilewright.ir.visit import allocated, free_vars
from tilewright.lower.substitution import put, renamed

#: Of a kernel.
Params: TypeAlias = tuple[Buffer | Var, ...]


def variables_of(params: Iterable[Any]) -> tuple[Var, ...]:
    """Scalar parameters, and variables of the shapes of buffers, in the order in which they
    appear."""
    found: dict[Var, None] = {}
    for p in params:
        # Strides of a dense array are products of its extents.
        more = p.layout.strides if isinstance(p, Buffer) and p.layout is not None else ()
        for e in (p,) if isinstance(p, Var) else (*p.shape, *more):
            found.update(dict.fromkeys(free_vars(e)))
    return tuple(found)


def names_apart(params: Params, body: Stmt) -> tuple[Params, Stmt]:
    """Parameters and a body with other names for variables of a call that have one that is
    taken."""
    found = variables_of(params)
    taken = {v.name for v in found} | {p.name for p in params}
    seen = set[str]()
    mapping: dict[Var, Var] = {}
    for v in found:
        name, count = v.name, 0
        if name in seen:
            while name in taken:
                count += 1
                name = f"{v.name}_{count}"
            mapping[v] = Var.make(name, v.dtype, v.most, v.least, v.exact)
        seen.add(name)
        taken.add(name)
    if not mapping:
        return params, body
    shaped = [p for p in (*params, *allocated(body)) if isinstance(p, Buffer)]
    buffers = {
        b: renamed(b, mapping) for b in shaped if not mapping.keys().isdisjoint(variables_of([b]))
    }
    other = tuple(buffers.get(p, p) if isinstance(p, Buffer) else mapping.get(p, p) for p in params)
    return other, put(body, mapping, buffers)
