"""Whether a call asks PyTorch's dispatcher for anything but to call the kernel.

The dispatcher costs a call some ten microseconds when the operator is Python's. What it is for
(tracing, modes, subclasses, transformations, profiles) is looked for here. This is the one file
that names private parts of PyTorch; in a PyTorch that lacks one of them all calls go by the
dispatcher.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.autograd import forward_ad
from torch.nn.modules import module as _every

_PLAIN = (torch.Tensor, torch.nn.Parameter)

try:
    from torch._C import _functorch

    _modes = torch._C._len_torch_dispatch_stack
    _functions = torch._C._len_torch_function_stack
    _profiled = torch.autograd._profiler_enabled
    _tracing = torch._C._get_tracing_state
    _transforms = _functorch.peek_interpreter_stack
    _is_batched = _functorch.is_legacy_batchedtensor
    #: A tensor, or what it wraps where a transformation of torch.func that has ended left it.
    alive: Any = _functorch.unwrap_if_dead
    _ = forward_ad._current_level
    hooks, pre_hooks = _every._global_forward_hooks, _every._global_forward_pre_hooks
    _KNOWN = True
except (ImportError, AttributeError):  # of another version
    _KNOWN = False
    hooks, pre_hooks = {0: None}, {}

    def alive(tensor: Any) -> Any:
        return tensor


def needs_no_dispatch(*tensors: Any) -> bool:
    """Whether the dispatcher would do no more than call the kernel; None among tensors is none."""
    return needs_no_dispatch_but_watched(*tensors) and not is_watched()


def needs_no_dispatch_but_watched(*tensors: Any) -> bool:
    """Whether the dispatcher would do no more than call the kernel, and tell a profiler of it, or a
    mode that watches functions."""
    if not _KNOWN or _modes() or _tracing() is not None or is_transformed():
        return False
    for t in tensors:
        if t is None:
            continue
        # What autograd batches gradients by (is_grads_batched) has no memory, and a class like
        # others; the same holds of what a transformation left behind.
        if type(t) not in _PLAIN or t.is_neg() or t._is_zerotensor():
            return False
        if _is_batched(t) or alive(t) is not t:
            return False
    return True


def is_watched() -> bool:
    """Whether a profiler, or a mode that sees functions, watches calls."""
    return not _KNOWN or bool(_functions() or _profiled())


def is_overridden() -> bool:
    """Whether a mode that sees functions is active."""
    return not _KNOWN or bool(_functions())


def named(name: str, run: Callable[[], Any]) -> Any:
    """The result of ``run``, which a profiler sees by a name, as it sees operators."""
    if not is_watched():
        return run()
    with torch.profiler.record_function(name):
        return run()


def is_transformed() -> bool:
    """Whether torch.func or forward-mode derivatives are at work.

    While a function is compiled that asks for them, they are: what is answered then stays so in
    its graph, which the compiler takes for no other state of these.
    """
    return _KNOWN and (_transforms() is not None or forward_ad._current_level >= 0)


# What torch.compiler.assume_constant_result does, which takes a second to load the compiler.
vars(is_transformed)["_dynamo_marked_constant"] = True


def past_autocast(device: str) -> Any:
    """A region in which operators are not cast again, while they are cast on a type of device."""
    key = getattr(getattr(torch._C, "DispatchKey", None), f"Autocast{device}", None)
    if key is None:
        return contextlib.nullcontext()
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key))


def as_leaf(module: Any, *arguments: Any) -> Any:
    """A call of ``module`` in the graph of a ``torch.fx`` tracer, of which the first argument is.

    Tracers take modules of ``torch.nn`` as one call, as the classes of ours are to be taken.
    """
    tracer: Any = arguments[0].tracer
    return tracer.create_proxy("call_module", tracer.path_of_module(module), arguments, {})


def as_call(function: Any, *arguments: Any) -> Any:
    """A call of ``function`` in the graph of a ``torch.fx`` tracer, where an argument is of one, or
    None."""
    for argument in arguments:
        if isinstance(argument, fx.Proxy):
            return argument.tracer.create_proxy("call_function", function, arguments, {})
    return None


def is_traced() -> bool:
    """Whether ``torch.jit.trace`` writes down what is called."""
    return not torch.compiler.is_compiling() and _KNOWN and _tracing() is not None


def shape_of(tensor: Any) -> tuple[int, ...]:
    """The extents as numbers, which in a program that is traced are part of it."""
    if not is_traced():
        return tuple(tensor.shape)
    state = _tracing()
    torch._C._set_tracing_state(None)
    try:
        return tuple(tensor.shape)
    finally:
        torch._C._set_tracing_state(state)


def exports_onnx() -> bool:
    """Whether a model is written as ONNX, which has no operators of ours."""
    onnx = sys.modules.get("torch.onnx")  # who does so has loaded it
    return onnx is not None and bool(onnx.is_in_onnx_export())


vars(exports_onnx)["_dynamo_marked_constant"] = True
