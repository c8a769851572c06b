"""Whether a call asks the dispatcher for anything but to call the kernel.

The dispatcher costs a call some ten microseconds when the operator is Python's. What it is for
(tracing, modes, subclasses, transformations, profiles) is looked for here.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import fx
from torch._C import _functorch
from torch.autograd import forward_ad

_PLAIN = (torch.Tensor, torch.nn.Parameter)
modes = torch._C._len_torch_dispatch_stack
functions = torch._C._len_torch_function_stack
profiled = torch.autograd._profiler_enabled
_tracing = torch._C._get_tracing_state
_transforms = _functorch.peek_interpreter_stack
_is_batched = _functorch.is_legacy_batchedtensor

#: A tensor, or what it wraps where a transformation of torch.func that has ended left it behind.
alive = _functorch.unwrap_if_dead


def needs_no_dispatch(input: Any, weight: Any, bias: Any) -> bool:
    """Whether the dispatcher would do no more than call the kernel."""
    return (
        is_memory(input)
        and is_memory(weight)
        and (bias is None or is_memory(bias))
        and not (modes() or functions() or profiled())
        and _tracing() is None
        and _transforms() is None
        and forward_ad._current_level < 0
    )


def needs_no_dispatch_but_watched(*tensors: Any) -> bool:
    """Whether the dispatcher would do no more than call the kernel, and tell a profiler of it, or a
    mode that watches functions."""
    return all(map(is_memory, tensors)) and not (modes() or is_transformed()) and _tracing() is None


def is_memory(tensor: Any) -> bool:
    """Whether a tensor is what its memory says."""
    # What autograd batches gradients by (is_grads_batched) has no memory, and a class like others.
    return type(tensor) in _PLAIN and not (
        tensor.is_neg() or tensor._is_zerotensor() or _is_batched(tensor)
    )


def is_transformed() -> bool:
    """Whether torch.func or forward-mode derivatives are at work.

    While a function is compiled that asks for them, they are: what is answered then stays so in
    its graph, which the compiler takes for no other state of these.
    """
    return _transforms() is not None or forward_ad._current_level >= 0


# What torch.compiler.assume_constant_result does, which takes a second to load the compiler.
vars(is_transformed)["_dynamo_marked_constant"] = True


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
    return not torch.compiler.is_compiling() and _tracing() is not None


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
