"""From calls of ATen operators to values of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.graph.errors import ModelError
from tilewright.graph.fx import (
    attention,
    elementwise,
    normalization,
    products,
    reduction,
    shapes,
    windows,
)
from tilewright.graph.fx.operation import Converter, Operation
from tilewright.graph.value import Value
from tilewright.ir.errors import TilewrightError

#: How each operator is converted, by ATen's name without the overload.
CONVERTERS: dict[str, Converter] = {
    **elementwise.CONVERTERS, **reduction.CONVERTERS, **shapes.CONVERTERS,
    **windows.CONVERTERS, **products.CONVERTERS, **normalization.CONVERTERS,
    **attention.CONVERTERS,
}  # fmt: skip


def converter(target: Any) -> Converter | None:
    """Of what a node of ``torch.fx`` calls; None where it is not supported."""
    if getattr(target, "namespace", "") not in ("aten", "prims"):
        return None
    name: str = target._schema.name
    return CONVERTERS.get(name.partition("::")[2])


def convert(node: Any, known: Mapping[Any, Any]) -> tuple[Value | None, ...]:
    """What a node makes of operands that are known: values of tensors, and integers. Raises
    :class:`ModelError` for what is not supported."""
    found = converter(node.target)
    if found is None:
        raise ModelError(f"{node.target} is not supported")
    arguments, strides, made = _arguments(node, known), _strides(node), _first(node)
    n = Operation(
        str(node.target), str(node.name), arguments, text_of_type(made.dtype), strides,
        made.device.type,
    )  # fmt: skip
    try:
        made = found(n)
    except TilewrightError:
        raise
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, AssertionError) as error:
        raise n.error(f"{type(error).__name__}: {error}") from error
    return made if isinstance(made, tuple) else (made,)


def _strides(node: Any) -> tuple[int, ...] | None:
    value: Any = getattr(node.args[0], "meta", {}).get("val") if node.args else None
    if not hasattr(value, "stride"):
        return None
    found = tuple(value.stride())
    return found if all(isinstance(s, int) for s in found) else None


def _first(node: Any) -> Any:
    """What a node makes, or the first tensor of several."""
    value = node.meta["val"]
    while isinstance(value, (list, tuple)):
        value = next(x for x in value if x is not None)
    return value


def text_of_type(dtype: Any) -> str:
    """The name of a type of PyTorch's."""
    return str(dtype).removeprefix("torch.")


def _arguments(node: Any, known: Mapping[Any, Any]) -> dict[str, Any]:
    """By name, with defaults."""
    found: dict[str, Any] = {}
    given = list(node.args)
    for k, a in enumerate(node.target._schema.arguments):
        if a.name in node.kwargs:
            value = node.kwargs[a.name]
        else:
            value = given[k] if k < len(given) else a.default_value
        found[a.name] = _plain(value, known)
    return found


def _plain(x: Any, known: Mapping[Any, Any]) -> Any:
    if x is None or isinstance(x, (bool, int, float, str, Value)):
        return x
    if isinstance(x, (list, tuple)):
        return [_plain(e, known) for e in x]
    if hasattr(x, "op") and hasattr(x, "target"):  # a node
        if x not in known:
            raise ModelError(f"{x} is neither a tensor nor a number")
        return known[x]
    return text_of_type(x)
