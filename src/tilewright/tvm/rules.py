"""What operations become on a target, by rules of a program's own: ``register_intrin_lowering``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from tilewright.ir.errors import LanguageError
from tilewright.ir.expr import Call, Expr
from tilewright.ir.func import Module
from tilewright.ir.visit import rewrite_exprs

#: Calls of operations that a program has registered are C functions of these names until a rule
#: makes something else of them.
_EXTERN = "extern:"

#: By target ("default" for all) and operation, the rule of the highest level, and that level.
_rules: dict[tuple[str, str], tuple[int, Callable[[Any], Any]]] = {}
_own: set[str] = set()
CallEffectKind = SimpleNamespace(
    ExprAnnotation=0, Pure=1, ReadState=2, UpdateState=3, SpecialCallArg=4, EmbedInfo=5,
    ControlJump=6,
)  # fmt: skip


def register_op_attr(op_name: str, attr_key: str, value: Any = None, level: int = 10) -> Any:
    """Make an operation known, such as "tir.mylog", for ``tir.call_intrin``. Operations have no
    effects here, whatever ``attr_key`` says. Without a value, it decorates."""
    _own.add(op_name.removeprefix("tir."))
    return value if value is not None else lambda function: function


def register_intrin_lowering(
    op_name: str, target: str, *, f: Callable[[Any], Any] | None = None, level: int = 10
) -> Any:
    """What ``f`` makes of calls of an operation, such as "tir.exp", on a kind of target, in kernels
    that :func:`tvm.build` compiles from now on; that of the highest level counts. What ``f``
    returns as it is given stays. Without ``f``, it decorates."""

    def register(rule: Callable[[Any], Any]) -> Callable[[Any], Any]:
        place = target, op_name.removeprefix("tir.")
        if place not in _rules or level >= _rules[place][0]:
            _rules[place] = level, rule
        return rule

    return register if f is None else register(f)


def own_call(dtype: Any, name: str, args: tuple[Expr, ...]) -> Expr | None:
    """A call of an operation that a program has registered; None of another one."""
    name = name.removeprefix("tir.")
    return Call(dtype, f"{_EXTERN}{name}", args) if name in _own else None


def any_rules(kind: str) -> bool:
    """Whether there are rules for a kind of target."""
    return any(target in (kind, "default") for target, _ in _rules)


def apply(module: Module, kind: str) -> Module:
    """The module with calls as the rules for a kind of target have them; raises
    :class:`LanguageError` where one gives no expression of the call's type."""

    def rule(e: Expr) -> Expr | None:
        if not isinstance(e, Call):
            return None
        name = e.name.removeprefix(_EXTERN)
        found = _rules.get((kind, name)) or _rules.get(("default", name))
        if found is None or (name != e.name and name not in _own):
            return None
        given = Call(e.dtype, name, e.args)
        made = found[1](given)
        if made is given or made is None:
            return None
        if not isinstance(made, Expr) or made.dtype != e.dtype:
            raise LanguageError(f"the rule for {name} on {kind} gives {made!r}, no {e.dtype}")
        return made

    funcs = tuple(replace(func, body=rewrite_exprs(func.body, rule)) for func in module.funcs)
    return replace(module, funcs=funcs)
