"""Any operator of the library, or of a user's, as a function of tensors with gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from operator import index
from typing import Any, NamedTuple

import torch

from tilewright.ir.errors import ProblemError
from tilewright.runtime.progress import one_more
from tilewright.select import SelectError, reason
from tilewright.select.ahead import NotOurs, build_chosen
from tilewright.topi.epilogue import Step
from tilewright.topi.operators.conv_torch import apply
from tilewright.topi.problem import Problem
from tilewright.torch import kernels
from tilewright.torch.calls import target_of
from tilewright.torch.eager_fast_path import is_transformed

_library = torch.library.Library("tilewright", "FRAGMENT")
_library.define("compute(Tensor[] tensors, str problem) -> Tensor")
#: Kernels that are kept.
_MOST = 1024


def compute(operator: type[Problem], *tensors: torch.Tensor, **values: Any) -> torch.Tensor:
    """The result of an operator.

    Parameters
    ----------
    operator : a class of problems, as :class:`tilewright.topi.Gemm` or one of the caller's.
    tensors : its inputs in calling order, then those of ``epilogue``; on one device, and of one
        type, or of those that :meth:`~tilewright.topi.problem.Problem.inputs` has for the type of
        the first. Those that are not dense are copied first.
    values : the fields of the problem that the shapes leave open. With ``pass_="dgrad"`` and
        ``output_padding`` a convolution is the transposed one.

    Each tensor may need a gradient of which the operator has a pass; where it needs one, an
    epilogue is computed by PyTorch. Works under ``torch.compile``. Under
    ``torch.func`` and forward-mode derivatives PyTorch's own operators compute it, where the
    operator names them; autocast changes nothing. Raises :class:`ProblemError` where there is no
    such problem, :class:`SelectError` where it has no kernel on that device, and
    :class:`NotImplementedError` for what has no derivative.

    >>> import torch
    >>> from tilewright.topi import Gemm
    >>> compute(Gemm, torch.ones(2, 3), torch.ones(3, 2)).tolist()
    [[3.0, 3.0], [3.0, 3.0]]
    """
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            raise ProblemError(f"compute takes tensors of PyTorch, got a {type(tensor).__name__}")
    given = tuple((tuple(map(index, t.shape)), t.dtype, t.device) for t in tensors)
    call = _call(operator, given, tuple(values.items()))
    if is_transformed():
        return _transformed(call.whole, tensors)
    apart = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    steps = call.steps if apart else ()
    count = call.own if steps else len(tensors)
    found = torch.ops.tilewright.compute(list(tensors[:count]), call.plain if steps else call.whole)
    for step, extra in steps:
        found = apply(torch, step, found, list(tensors[count : count + extra]), call.last)
        count += extra
    made: torch.Tensor = found
    return made


def _transformed(text: str, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """What PyTorch's own operators compute, of which its transformations know derivatives."""
    p = _problem(text)
    function = p.torch_function(torch)
    if function is None:
        raise NotImplementedError(
            f"{p.operator} has no rules for torch.func and forward-mode derivatives: say it in "
            "PyTorch's operators as its torch_function, or call it outside of them"
        )
    return _by_pytorch(p, function, tensors)


def _by_pytorch(
    p: Problem, function: Callable[..., Any], tensors: Sequence[torch.Tensor]
) -> torch.Tensor:
    """What a ``function`` that is a problem's in PyTorch's operators makes of its tensors."""
    orders = [p.permutation(name) for name in p.inputs()]
    found: torch.Tensor = function(
        *(t if o is None else t.permute(_inverse(o)) for t, o in zip(tensors, orders, strict=True))
    )
    order = p.permutation("result")
    return found if order is None else found.permute(order)


def _inverse(order: Sequence[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


class _Call(NamedTuple):
    """What calls with tensors of the same shapes and types have in common.

    Attributes
    ----------
    whole, plain : the problem in JSON, with its epilogue and without.
    own : the number of tensors that are not its epilogue's.
    steps : of the epilogue, each with the number of its tensors.
    last : whether channels are the last dimension.
    """

    whole: str
    plain: str
    own: int
    steps: tuple[tuple[Step, int], ...]
    last: bool


def _call(operator: type[Problem], given: tuple[Any, ...], values: tuple[Any, ...]) -> _Call:
    try:
        return _known_call(operator, given, values)
    except TypeError:  # lists among the values, which have no hash
        return _make_call(operator, given, values)


def _make_call(operator: type[Problem], given: tuple[Any, ...], values: tuple[Any, ...]) -> _Call:
    if not (isinstance(operator, type) and issubclass(operator, Problem) and operator.NAMES):
        raise ProblemError(f"compute takes an operator, as topi.Gemm, got {operator!r}")
    if not given:
        raise ProblemError(f"{operator.NAMES[0]}: which tensors?")
    dtype = str(given[0][1]).removeprefix("torch.")
    try:
        p = operator.of_shapes(
            *(shape for shape, _, _ in given), **{"dtype": dtype, **dict(values)}
        )
    except TypeError as error:
        raise ProblemError(f"{operator.NAMES[0]}: {error}") from error
    inputs = p.inputs()
    if len(inputs) != len(given):
        raise ProblemError(f"{p.operator} takes {', '.join(inputs)}, got {len(given)} tensors")
    device = given[0][2]
    for (name, kind), (shape, found, place) in zip(inputs.items(), given, strict=True):
        if (shape, str(found).removeprefix("torch.")) != kind or place != device:
            raise ProblemError(
                f"{p.operator}: {name} is {kind.shape}, {kind.dtype}, on {device}; "
                f"got {shape}, {str(found).removeprefix('torch.')}, on {place}"
            )
    plain = p.replace(epilogue=())
    last = p.channels_last is not False
    apart = () if p.is_8bit else p.epilogue
    steps = tuple((step, len(step.tensors)) for step in apart)
    return _Call(p.to_json(), plain.to_json(), len(plain.inputs()), steps, last)


_known_call: Callable[..., _Call] = functools.lru_cache(_MOST)(_make_call)
# What torch.compiler.assume_constant_result does, which takes a second to load the compiler.
vars(_call)["_dynamo_marked_constant"] = True


@functools.lru_cache(_MOST)
def _problem(text: str) -> Problem:
    return Problem.from_json(text)


@functools.lru_cache(_MOST)
def _launch(text: str, device: torch.device, policy: str) -> kernels.Launch | None:
    """None where PyTorch's own kernel was measured to be the fastest."""
    p, target = _problem(text), target_of(device)
    try:
        with one_more():
            found = build_chosen(p, target, policy)
    except NotOurs:
        return None
    if found is None:
        raise SelectError(reason(p, target))
    ordinal = device.index if device.type == "cuda" else None
    return kernels.launch_of(found[0], p.flops, (), ordinal)


def _run(tensors: list[torch.Tensor], problem: str) -> torch.Tensor:
    p, device = _problem(problem), tensors[0].device
    with kernels.alone():
        launch = _launch(problem, device, kernels.policy(target_of(device)))
    if launch is None:
        function = p.torch_function(torch)
        assert function is not None  # else it would not have been measured
        return _by_pytorch(p, function, tensors).contiguous()
    dense = [t.contiguous() for t in tensors]
    out = dense[0].new_empty(p.result.shape, dtype=getattr(torch, p.result.dtype))
    if out.numel():
        launch(tuple(t.data_ptr() for t in (*dense, out)))
    return out


def _fake(tensors: list[torch.Tensor], problem: str) -> torch.Tensor:
    result = _problem(problem).result
    return tensors[0].new_empty(result.shape, dtype=getattr(torch, result.dtype))


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    tensors, ctx.problem = inputs
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, dy: Any) -> Any:
    p = _problem(ctx.problem)
    # Of a forward pass, dy is the gradient of its result; another computes a tensor that it reads.
    passes = {name or "grad": pass_ for pass_, name in p.PASSES.items()}
    names = list(p.inputs())
    known = {p.PASSES[p.pass_] or "grad": dy, **dict(zip(names, ctx.saved_tensors, strict=True))}
    found: list[Any] = []
    for name, needed in zip(names, ctx.needs_input_grad[0], strict=True):
        if not needed:
            found.append(None)
            continue
        if name not in passes or not (p.pass_ == "forward" or p.LINEAR):
            raise NotImplementedError(f"{p.operator} {p.pass_} has no gradient by {name}")
        back = p.replace(pass_=passes[name])
        given = [known[n] for n in back.inputs()]
        found.append(torch.ops.tilewright.compute(given, back.to_json()))
    return found, None


for _device in ("CPU", "CUDA"):
    _library.impl("compute", _run, _device)
torch.library.register_fake("tilewright::compute", _fake, lib=_library)
torch.library.register_autograd("tilewright::compute", _backward, setup_context=_save, lib=_library)
