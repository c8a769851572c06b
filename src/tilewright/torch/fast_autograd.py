"""Operators whose kernel is called at once, where autograd has nothing to record.

What is registered in Python for autograd calls the dispatcher a second time, to come to the kernel;
compiled graphs pay that for every operator that is not theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tilewright.torch.cast_cache import autocast
from tilewright.torch.dispatcher_checks import needs_no_dispatch_but_watched
from tilewright.torch.lowerings import teach


def register_fake(library: torch.library.Library, name: str, fake: Callable[..., Any]) -> None:
    """:func:`torch.library.register_fake`, of the operator ``name`` of a library, for one whose
    other calls Inductor knows."""

    def taught(*operands: Any) -> Any:
        teach()  # whoever compiles asks for this first
        return fake(*operands)

    torch.library.register_fake(f"{library.ns}::{name}", taught, lib=library)


def register_autograd(
    library: torch.library.Library,
    name: str,
    run: Callable[..., Any],
    backward: Callable[..., Any],
    setup_context: Callable[..., None] | None = None,
) -> None:
    """:func:`torch.library.register_autograd` of the operator ``name`` of a library, whose kernels
    are all ``run``, which is then called at once where no gradient is asked for."""
    torch.library.register_autograd(
        f"{library.ns}::{name}", backward, setup_context=setup_context, lib=library
    )
    try:
        from torch._library.autograd import Info, make_autograd_impl

        operator = getattr(getattr(torch.ops, library.ns), name).default
        recorded = make_autograd_impl(operator, Info(backward, setup_context))
    except (ImportError, AttributeError, TypeError):  # of a PyTorch that does it in another way
        return

    def at_once(keyset: Any, *operands: Any) -> Any:
        tensors = [x for x in operands if isinstance(x, torch.Tensor)]
        asked = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
        if asked or not needs_no_dispatch_but_watched(*tensors):
            return recorded(keyset, *operands)
        return run(*operands)

    for key in ("AutogradCPU", "AutogradCUDA"):
        library.impl(name, at_once, key, with_keyset=True)


def register_autocast(library: torch.library.Library, name: str) -> None:
    """Let autocast cast image, weight and bias, the first three operands of the operator ``name``.

    Who calls it from Python has cast them; programs that were traced, scripted or exported have
    not, where autocast was off then.
    """
    operator = getattr(getattr(torch.ops, library.ns), name).default
    for device in ("CPU", "CUDA"):
        key = f"Autocast{device}"
        itself = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

        def cast_first(input: Any, weight: Any, bias: Any, *more: Any, itself: Any = itself) -> Any:
            operands = autocast(input, weight, bias)
            with torch._C._ExcludeDispatchKeyGuard(itself):
                return operator(*operands, *more)

        library.impl(name, cast_first, key)
