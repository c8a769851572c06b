"""Names that TVM had until 2020, and functions that choose by the target."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.dtype import SCALARS
from tilewright.ir.dtype import dtype as to_dtype
from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import Expr
from tilewright.target import current_target
from tilewright.tvm import functions, rules

#: ``tvm.float32`` and its kin, which are texts.
TYPES = {name: name for name in SCALARS}


def generic_func(fdefault: Callable[..., Any]) -> Any:
    """A function of which ``.register(keys)`` adds those for targets of a kind ("cuda") or of a
    group ("gpu", "cpu"): that of the target of the enclosing ``with`` is called.

    Raises :class:`LanguageError` for a key that has one, without ``override``.
    """
    found: dict[str, Callable[..., Any]] = {}

    @functools.wraps(fdefault)
    def dispatch(*args: Any, **more: Any) -> Any:
        target = current_target()
        keys: Sequence[str] = () if target is None else target.keys
        chosen = next((found[key] for key in keys if key in found), fdefault)
        return chosen(*args, **more)

    def register(key: Any, func: Any = None, override: bool = False) -> Any:
        def add(function: Callable[..., Any]) -> Callable[..., Any]:
            for name in [key] if isinstance(key, str) else key:
                if name in found and not override:
                    raise LanguageError(
                        f"{fdefault.__name__} has a function for {name!r}: give override=True"
                    )
                found[name] = function
            return function

        return add if func is None else add(func)

    dispatch.register = register  # type: ignore[attr-defined]
    dispatch.dispatch_dict = found  # type: ignore[attr-defined]
    return dispatch


def override_native_generic_func(func_name: str) -> Callable[[Callable[..., Any]], Any]:
    """:func:`generic_func`, which TVM has the name for."""
    return generic_func


def call_pure_intrin(dtype: str, func_name: str, *args: Any) -> Expr:
    """An operation by its name; one that ``te`` has not is known from then on, for
    :func:`register_intrin_rule` to say what it is on a target."""
    try:
        return functions.call_intrin(dtype, func_name, *args)
    except LanguageError:
        rules.register_op_attr(func_name, "", 1)
        return functions.call_intrin(dtype, func_name, *args)


def register_intrin_rule(
    target: str, name: str, f: Callable[[Any], Any] | None = None, override: bool = False
) -> Any:
    """What ``f`` makes of calls of an operation on a kind of target: of two rules the later one."""
    return rules.register_intrin_lowering(name, target, f=f)


def const_of(dtype: Any, value: Any) -> Expr:
    """``UIntImm`` and its kin: a constant."""
    return functions.const(value, str(to_dtype(dtype)))
