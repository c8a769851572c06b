"""Templates: functions that make a schedule from arguments and a configuration."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast, overload

from tilewright.target.target import current_target
from tilewright.tune.arguments import serialize
from tilewright.tune.dispatch import ApplyConfig, query
from tilewright.tune.entity import TuningError

F = TypeVar("F", bound=Callable[..., Any])

#: Templates of the package, loaded when a task first asks for them.
_BUILT_IN = {
    "article_003/depthwise_conv2d": "tilewright.tune.article_003",
    "topi/depthwise": "tilewright.tune.library",
}


@dataclass(frozen=True)
class Template:
    """A registered function.

    ``module`` and ``path`` are where a process that measures finds it; ``reference``, where
    given, computes the outputs from the inputs in float64.
    """

    name: str
    func: Callable[..., Any]
    reference: Callable[..., Any] | None = None

    @property
    def module(self) -> str:
        return self.func.__module__


_templates: dict[str, Template] = {}


@overload
def template(
    task_name: str, func: None = None, *, reference: Callable[..., Any] | None = None
) -> Callable[[F], F]: ...


@overload
def template(task_name: F) -> F: ...


@overload
def template(task_name: str, func: F, *, reference: Callable[..., Any] | None = None) -> F: ...


def template(
    task_name: Any, func: Any = None, *, reference: Callable[..., Any] | None = None
) -> Any:
    """Register a function that makes a schedule: ``@template("conv2d")``, or ``@template``, which
    takes the name of the function as AutoTVM did in 2019.

    The function takes numbers, strings, lists and placeholders, calls :func:`get_config` and the
    ``define_`` functions of what it returns, and returns ``(schedule, [tensors])``. Called
    directly, it uses the configuration of the innermost
    :class:`~tilewright.tune.dispatch.ApplyHistoryBest` that knows these arguments.

    ``reference``, called with the inputs as NumPy arrays, returns the outputs in float64;
    without it, candidates are compared with the unscheduled program on the CPU.

    Source: AutoTVM, ``autotvm.template``.
    """

    if callable(task_name):
        return template(task_name.__name__, task_name)

    def register(func: F) -> F:
        known = _templates.get(task_name)
        if known is not None and known.func.__qualname__ != func.__qualname__:
            raise TuningError(
                f"template {task_name!r} is registered twice: {known.func.__qualname__} and "
                f"{func.__qualname__}"
            )
        _templates[task_name] = Template(task_name, func, reference)

        @functools.wraps(func)
        def called(*args: Any) -> Any:
            workload = (task_name, *serialize(args))
            with ApplyConfig(query(current_target(), workload)):
                return func(*args)

        called.task_name = task_name  # type: ignore[attr-defined]
        return cast(F, called)  # which has the signature of func

    return register if func is None else register(func)


def find_template(name: str) -> Template:
    """The template registered under ``name``; raises :class:`TuningError` where there is none."""
    if name not in _templates and name in _BUILT_IN:
        import importlib

        importlib.import_module(_BUILT_IN[name])
    if name not in _templates:
        known = ", ".join(sorted({*_templates, *_BUILT_IN}))
        raise TuningError(f"there is no template {name!r}: there are {known}")
    return _templates[name]
