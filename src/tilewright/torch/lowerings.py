"""How images of the operators lie in what Inductor, the compiler behind ``torch.compile``, writes.

It calls them as eager code does. An image in 16 bits that it casts from another lies as that one
does; in a PyTorch that has other insides, it decides alone.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import torch

_log = logging.getLogger(__name__)
#: Where Inductor has its list: the module is there once something is compiled.
_LIST = "torch._inductor.lowering"
_names: list[str] = []
_taught: set[str] = set()


def register_fake(library: torch.library.Library, name: str, fake: Callable[..., Any]) -> None:
    """:func:`torch.library.register_fake`, of the operator ``name`` of a library."""
    _names.append(name)

    def taught(*operands: Any) -> Any:
        teach()  # whoever compiles asks for this first
        return fake(*operands)

    torch.library.register_fake(f"{library.ns}::{name}", taught, lib=library)


def teach() -> None:
    """Tell Inductor of the operators, where it is there: to load it takes seconds."""
    if len(_taught) == len(_names) or _LIST not in sys.modules:
        return
    for name in _names:
        if name not in _taught:
            _taught.add(name)
            try:
                _teach(getattr(torch.ops.tilewright, name).default)
            except Exception as error:  # whatever its insides are in another version
                _log.debug("Inductor decides how images of %s lie: %s", name, error)


def _teach(overload: Any) -> None:
    from torch._inductor import lowering

    otherwise = lowering.fallback_handler(overload, add_to_fallback_set=False)

    def lowered(*arguments: Any, **named: Any) -> Any:
        try:
            for image in arguments[:2]:
                _lay_as_what_it_reads(image)
        except Exception as error:
            _log.debug("Inductor decides how an image of %s lies: %s", overload, error)
        return otherwise(*arguments, **named)

    # As it does for what it does not know.
    lowering.add_needs_realized_inputs(overload)
    lowering.lowerings[overload] = lowered


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
