"""What the host and generated code agree on about a module's arguments."""

from __future__ import annotations

from tilewright.ir.errors import TilewrightError
from tilewright.ir.expr import Var
from tilewright.ir.func import Module
from tilewright.ir.visit import written_by
from tilewright.lower.build.names_apart import variables_of


def variables(module: Module) -> tuple[Var, ...]:
    """The scalars of a call, in order: scalar parameters and variables of shapes, as they appear.

    Raises :class:`TilewrightError` where two of them have one name.
    """
    found = variables_of(module.params)
    names = [v.name for v in found]
    if len(set(names)) < len(names):
        raise TilewrightError(f"module {module.name} has two symbolic extents of one name: {names}")
    return found


def outputs(module: Module) -> tuple[int, ...]:
    """Positions in ``module.params`` of the buffers that it writes.

    A buffer whose address is taken and that is not read otherwise counts as one.
    """
    written = written_by(*(func.body for func in module.funcs))
    return tuple(k for k, p in enumerate(module.params) if p in written)
