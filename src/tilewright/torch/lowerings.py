"""What Inductor, the compiler behind ``torch.compile``, makes of the operators.

By itself it calls an operator that it does not know as eager code does, by the dispatcher. What is
said to it here stands in the list of what it knows, as its own convolution does: a call of a
function, by the name of :mod:`tilewright.torch.graph_calls`, whose result lies as the operator says
that it does. In code that is not Python's, and in a PyTorch that has other insides, all is as it is
without.
"""

from __future__ import annotations

import logging
import math
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
        try:
            if not named and _is_python():
                return _lowered(operator, arguments, *parts, layout_of)
        except Exception as error:
            _log.debug("Inductor calls %s by the dispatcher: %s", operator.name, error)
        return otherwise(*arguments, **named)

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
    for image in arguments[:2]:
        _lay_as_what_it_reads(image)
    with V.graph.fake_mode:
        made, tensors, unbacked = _parts(process(operator.overload, *arguments))
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


def _parts(processed: Any) -> tuple[Any, Any, Any]:
    """What an operator makes of tensors without contents, the nodes that are tensors, and its
    symbols of sizes that depend on data."""
    if isinstance(processed, tuple):  # as it was before PyTorch had a class for it
        made, tensors, _, _, unbacked = processed
        return made, tensors, unbacked
    return processed.example_output, processed.tensor_args, processed.unbacked_bindings


def _lay_as_what_it_reads(image: Any) -> None:
    """Let an image that Inductor computes, and has no layout for yet, lie as what it is made of.

    Inductor has it so by itself, but takes what has no layout yet either to be NCHW. That is so of
    an image in 16 bits where the one that it is cast from is wanted behind, too.
    """
    from torch._inductor import ir

    if not isinstance(image, ir.TensorBox) or not isinstance(image.data, ir.StorageBox):
        return
    image.realize()
    buffer = image.data.data
    if _is_open(buffer):
        order = _fill_order(buffer)
        if order:
            buffer.freeze_layout_with_fill_order(order)


def _fill_order(buffer: Any, steps: int = 4) -> Any:
    """The dimensions of what is computed, the innermost first; None where it does not matter."""
    from torch._inductor.virtualized import V

    size = list(buffer.get_size())
    read = [V.graph.try_get_buffer(name) for name in buffer.get_read_names()]
    same = [b for b in read if b is not None and list(b.get_size()) == size]
    if same and steps and all(map(_is_open, same)):
        return _fill_order(same[0], steps - 1)
    return buffer.get_fill_order()


def _is_open(buffer: Any) -> bool:
    """Whether something is computed by loops and has no layout yet."""
    from torch._inductor import ir

    return isinstance(buffer, ir.ComputedBuffer) and isinstance(buffer.layout, ir.FlexibleLayout)


def _described(layout: Any) -> tuple[Any, ...] | None:
    """Type, device, shape and strides; None where an extent may vary."""
    numbers = _literal((layout.size, layout.stride))
    if numbers is None:
        return None
    return (str(layout.dtype), str(layout.device), *numbers)


def _literal(value: Any) -> Any:
    """A number, a text, or what is made of them by tuples; None for what is not constant, and for
    numbers that Python has no literals for."""
    if isinstance(value, (tuple, list)):
        parts = tuple(_literal(x) for x in value)
        return None if None in parts else parts
    if getattr(value, "is_Integer", False):  # of sympy
        return int(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (bool, int, float, str)) else None
