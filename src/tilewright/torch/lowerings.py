"""What Inductor, the compiler behind ``torch.compile``, makes of the operators.

By itself it calls an operator that it does not know as eager code does, by the dispatcher. What is
said to it here stands in the list of what it knows, as its own convolution does: a call of a
function, by the name of :mod:`tilewright.torch.graph_calls`, whose result lies as the operator says
that it does. In code that is not Python's, and in a PyTorch that has other insides, all is as it is
without.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.torch import graph_calls
from tilewright.torch.graph_calls import Operator, operators

_log = logging.getLogger(__name__)
#: Where Inductor has its list: the module is there once something is compiled.
_LIST = "torch._inductor.lowering"
_taught: set[str] = set()


def teach() -> None:
    """Tell Inductor of the operators, where it is there: to load it takes seconds."""
    if len(_taught) == len(operators) or _LIST not in sys.modules:
        return
    for name, operator in operators.items():
        if name not in _taught:
            _taught.add(name)
            try:
                _teach(operator)
            except Exception as error:  # whatever its insides are in another version
                _log.debug("Inductor calls %s by the dispatcher: %s", name, error)


def _teach(operator: Operator) -> None:
    from torch._inductor import ir, lowering

    overload = operator.overload
    otherwise = lowering.fallback_handler(overload, add_to_fallback_set=False)
    parts = ir.ExternKernelAlloc, ir.FallbackKernel.process_kernel
    layout_of: Callable[[Any], Any] = ir.FallbackKernel.tensor_to_layout

    def lowered(*arguments: Any, **named: Any) -> Any:
        if named or not _is_python():
            return otherwise(*arguments, **named)
        try:
            return _lowered(operator, arguments, *parts, layout_of)
        except Exception as error:
            _log.debug("Inductor calls %s by the dispatcher: %s", operator.name, error)
            return otherwise(*arguments)

    # As it does for what it does not know.
    lowering.add_needs_realized_inputs(overload)
    lowering.lowerings[overload] = lowered


def _is_python() -> bool:
    """Whether the code that is written now is Python's."""
    from torch._inductor import config
    from torch._inductor.virtualized import V

    graph = V.graph
    return not (graph.cpp_wrapper or graph.aot_mode or getattr(config, "fx_wrapper", False))


def _lowered(
    operator: Operator, arguments: Sequence[Any], make: Any, process: Any, layout_of: Any
) -> Any:
    """A call with arguments, which are nodes of Inductor's, numbers and None."""
    from torch._inductor import ir
    from torch._inductor.virtualized import V

    given = tuple(x is not None for x in arguments[: operator.tensors])
    constants = arguments[operator.tensors :]
    with V.graph.fake_mode:
        made, tensors, _, _, unbacked = process(operator.overload, *arguments)
    if unbacked or len(tensors) != sum(given):
        raise ValueError("sizes that depend on data")
    layouts = [_described(x.get_layout()) for x in tensors]
    known = None if None in layouts else _literal(constants)
    if known is None or _described(layout_of(made)) is None:
        what, more = graph_calls.text(operator.name, given), constants
    else:
        what, more = graph_calls.text(operator.name, given, known, tuple(layouts)), ()
    name = f"torch.ops.tilewright.graph_calls[{what!r}]"
    call = make(
        layout_of(made), tensors, more, python_kernel_name=name, op_overload=operator.overload
    )
    return ir.TensorBox.create(call)


def _described(layout: Any) -> tuple[Any, ...] | None:
    """Type, device, shape and strides; None where an extent may vary."""
    numbers = _literal((layout.size, layout.stride))
    if numbers is None:
        return None
    return (str(layout.dtype), str(layout.device), *numbers)


def _literal(value: Any) -> Any:
    """A number, a text, or what is made of them by tuples; None for what is not constant."""
    if isinstance(value, (tuple, list)):
        parts = tuple(_literal(x) for x in value)
        return None if None in parts else parts
    if getattr(value, "is_Integer", False):  # of sympy
        return int(value)
    return value if isinstance(value, (bool, int, float, str)) else None
