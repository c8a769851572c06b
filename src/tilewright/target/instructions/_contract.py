"""What a product of matrices does in target "sim"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def contract(view: Any) -> None:
    """``C += A * B``, summed over the axes that C lacks.

    ``view`` is an :class:`~tilewright.runtime.sim.instruction.InstructionView` of an instruction
    with three operands, of which C is the first.
    """
    _add_products(view, lambda x: x)


def contract_tf32(view: Any) -> None:
    """The same of float32, without the low 13 bits of the elements of A and B."""
    import numpy as np

    _add_products(view, lambda x: (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32))


def _add_products(view: Any, read: Callable[[Any], Any]) -> None:
    import numpy as np  # for "sim" alone: what generates code goes without

    total, a, b = (view.read_block(k) for k in range(3))
    declared = view.instruction
    letters = {axis.name: chr(ord("a") + k) for k, axis in enumerate(declared.axes)}
    c, x, y = ("z" + "".join(letters[name] for name in o.axes) for o in declared.operands)
    kind = total.dtype
    wide = np.float64 if kind.kind == "f" else np.int64
    a, b = (read(operand).astype(wide) for operand in (a, b))
    made = np.einsum(f"{x},{y}->{c}", a, b, optimize=True)
    view.write_block(0, (total + made).astype(kind))
