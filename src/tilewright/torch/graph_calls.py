"""What graphs of torch.compile call in place of the operators, past the dispatcher.

The dispatcher makes lists of integers of what it is given, and tensors of what it gets, before and
after it comes to a kernel of Python's, which looks everything up then: several times what a launch
takes. A compiler knows all but the addresses while it writes its code. :data:`calls` has, by what
it knows, functions of the tensors alone.

Compiled code is kept on disk, and names what it calls: a text means what it meant when it was
written, whatever texts are added.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable
from typing import Any

import torch

from tilewright.torch import kernels
from tilewright.torch.calls import Run, observers
from tilewright.torch.dispatcher_checks import modes, profiled
from tilewright.torch.guards import Guard, guard
from tilewright.torch.passes import Parts

#: Of an operator's arguments, :func:`~tilewright.torch.passes.parts` of what it does with them: all
#: that it takes is the result's memory and a launch on the addresses of all tensors, in their order
#: and the result's last. None where it takes more, or is PyTorch's.
Prepare = Callable[..., "Parts | None"]
#: Of sizes that vary, this many kinds of a call are kept in mind.
_MOST_KINDS = 16
_record = getattr(getattr(torch._C, "_profiler", None), "_RecordFunctionFast", None)
_address = torch.Tensor.data_ptr


class Operator:
    """An operator whose tensors stand before its other arguments.

    Attributes
    ----------
    name : without that of the library.
    tensors : how many of its arguments are tensors, or None.
    kernel : what it does, past the dispatcher.
    prepare : how it does it for arguments like the given ones.
    """

    def __init__(self, name: str, tensors: int, kernel: Run, prepare: Prepare) -> None:
        self.name, self.tensors = name, tensors
        self.kernel, self.prepare = kernel, prepare

    @property
    def overload(self) -> Any:
        """What the dispatcher knows it by."""
        return getattr(torch.ops.tilewright, self.name).default


#: By name, what graphs may call.
operators: dict[str, Operator] = {}


def text(name: str, given: tuple[bool, ...], constants: Any = None, layouts: Any = None) -> str:
    """What a call is of: the operator's name, which of its tensors are given, and, where all is
    known, its other arguments and (type, device, shape, strides) of each tensor."""
    return repr((name, given, constants, layouts))


class _Calls(dict[str, Run]):
    """By :func:`text`, functions of the tensors that are given, and of the other arguments where
    those are not in the text."""

    def __missing__(self, what: str) -> Run:
        name, given, constants, _ = literal_eval(what)
        operator = operators[name]
        call = self[what] = (
            _of_all(operator, given)
            if constants is None
            else _first(what, operator, given, constants)
        )
        return call

    def settle(self, what: str, first: Run, call: Run) -> None:
        """Let ``call`` be called from now on in place of ``first``, unless that is forgotten."""
        if self.get(what) is first:
            self[what] = call


calls = _Calls()
# Where compiled code finds them, which knows torch alone.
torch.ops.tilewright.graph_calls = calls
kernels.on_change.append(calls.clear)


def _of_all(operator: Operator, given: tuple[bool, ...]) -> Run:
    """Of tensors of any shape, then of all other arguments."""
    many = sum(given)
    #: Other arguments, whether tensors are like those before, and the launch then.
    kinds: list[tuple[tuple[Any, ...], Guard, Run]] = []

    def call(*arguments: Any) -> Any:
        tensors, constants = arguments[:many], arguments[many:]
        if observers or modes() or profiled():
            whole = (*_spread(given, tensors), *constants)
            if modes():
                return operator.overload(*whole)
            return _recorded(operator, operator.kernel, whole)
        for known, is_like, run in kinds:
            if known == constants and is_like(*tensors):
                return run(*tensors)
        run = _prepared(operator, given, tensors, constants)[0]
        is_same = guard(*tensors)
        if is_same is not None:
            if len(kinds) >= _MOST_KINDS:
                kinds.clear()
            kinds.insert(0, (constants, is_same, run))
        return run(*tensors)

    return call


def _prepared(
    operator: Operator, given: tuple[bool, ...], tensors: Any, constants: tuple[Any, ...]
) -> tuple[Run, Parts | None]:
    """A run of tensors like these, and what it is where it is a launch, or None."""
    found = operator.prepare(*_spread(given, tensors), *constants)
    if found is not None:
        return _alone(*found), found
    kernel = operator.kernel
    return lambda *tensors: kernel(*_spread(given, tensors), *constants), None


def _first(
    what: str, operator: Operator, given: tuple[bool, ...], constants: tuple[Any, ...]
) -> Run:
    """Of tensors that are all alike, whose launch is found out in the first call."""
    launched: Run | None = None

    def watched(*tensors: Any) -> Any:
        arguments = (*_spread(given, tensors), *constants)
        if modes():
            return operator.overload(*arguments)
        if observers or launched is None:
            return _recorded(operator, operator.kernel, arguments)
        return _recorded(operator, launched, tensors)

    def first(*tensors: Any) -> Any:
        nonlocal launched
        if observers or modes():
            return watched(*tensors)
        launched, found = _prepared(operator, given, tensors, constants)
        short = _unless_watched(launched, watched) if found is None else _short(*found, watched)
        calls.settle(what, first, short)
        return short(*tensors)

    return first


def _unless_watched(run: Run, watched: Run) -> Run:
    def call(*tensors: Any) -> Any:
        if observers or modes() or profiled():
            return watched(*tensors)
        return run(*tensors)

    return call


def _alone(empty: Callable[[], Any], launch: kernels.Launch) -> Run:
    def call(*tensors: Any) -> Any:
        made = empty()
        launch((*map(_address, tensors), made.data_ptr()))
        return made

    return call


def _short(empty: Callable[[], Any], launch: kernels.Launch, watched: Run) -> Run:
    """Both of these functions as one: each look-up counts, as this is all that a call costs the
    host beside the launch."""

    def call(*tensors: Any) -> Any:
        if observers or modes() or profiled():
            return watched(*tensors)
        made = empty()
        launch((*map(_address, tensors), made.data_ptr()))
        return made

    return call


def _spread(given: tuple[bool, ...], tensors: tuple[Any, ...]) -> list[Any]:
    """The tensors, and None for those that are not given."""
    following = iter(tensors)
    return [next(following) if here else None for here in given]


def _recorded(operator: Operator, run: Run, arguments: Any) -> Any:
    """A run that a profiler records, by the operator's name."""
    if _record is None:
        return run(*arguments)
    with _record(f"tilewright::{operator.name}"):
        return run(*arguments)
