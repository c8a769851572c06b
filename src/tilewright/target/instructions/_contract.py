"""What a product of matrices does in target "sim"."""

from __future__ import annotations

from typing import Any

import numpy as np


def contract(view: Any) -> None:
    """``C += A * B``, summed over the axes that C lacks.

    ``view`` is an :class:`~tilewright.runtime.sim.instruction.InstructionView` of an instruction
    with three operands, of which C is the first.
    """
    total, a, b = (view.read_block(k) for k in range(3))
    declared = view.instruction
    letters = {axis.name: chr(ord("a") + k) for k, axis in enumerate(declared.axes)}
    c, x, y = ("z" + "".join(letters[name] for name in o.axes) for o in declared.operands)
    kind = total.dtype
    wide = np.float64 if kind.kind == "f" else np.int64
    made = np.einsum(f"{x},{y}->{c}", a.astype(wide), b.astype(wide), optimize=True)
    view.write_block(0, (total + made).astype(kind))
