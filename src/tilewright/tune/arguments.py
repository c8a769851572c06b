"""The arguments of a template as JSON, and back.

Numbers, strings, None and lists are themselves; a placeholder is ``["TENSOR", shape, dtype]`` as
in AutoTVM; what has a ``to_json`` of its own (a problem) is ``["OBJECT", class, JSON]``.
"""

from __future__ import annotations

import importlib
import json
from typing import Any

from tilewright.ir.expr import IntImm
from tilewright.te.tensor import Tensor
from tilewright.tune.entity import TuningError
from tilewright.tune.untrusted import parse

#: Classes that may stand in records, by their names there: nothing else is ever loaded.
_CLASSES = {"Problem": "tilewright.topi.problem"}


def serialize(value: Any) -> Any:
    """``value`` of nothing but JSON's types, with tuples for lists, so that it can be hashed.

    Raises :class:`TuningError` for values of other types.
    """
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return tuple(serialize(v) for v in value)
    if isinstance(value, IntImm):
        return value.value
    if isinstance(value, Tensor):
        return ("TENSOR", tuple(serialize(e) for e in value.shape), str(value.dtype))
    name = next((c.__name__ for c in type(value).__mro__ if c.__name__ in _CLASSES), None)
    if name is not None:
        return ("OBJECT", name, json.dumps(_plain(value), sort_keys=True))
    item = getattr(value, "item", None)  # NumPy's numbers
    if callable(item):
        return serialize(item())
    raise TuningError(
        f"a template takes numbers, strings, lists and placeholders, not {value!r}: only these "
        "can be recorded"
    )


def _plain(value: Any) -> Any:
    found = value.to_json()
    return json.loads(found) if isinstance(found, str) else found


def deserialize(value: Any) -> Any:
    """The arguments that :func:`serialize` made; lists become tuples."""
    if not isinstance(value, (list, tuple)):
        return value
    if len(value) == 3 and value[0] == "TENSOR":
        from tilewright.te import placeholder

        return placeholder(tuple(value[1]), value[2], name="placeholder")
    if len(value) == 3 and value[0] == "OBJECT":
        home = _CLASSES.get(str(value[1]))
        if home is None:
            raise TuningError(f"arguments of class {value[1]!r} are not known here")
        parse(value[2])
        return getattr(importlib.import_module(home), value[1]).from_json(value[2])
    return tuple(deserialize(v) for v in value)


def frozen(value: Any) -> Any:
    """JSON's lists as tuples: what :func:`serialize` gave before it was written."""
    return tuple(frozen(v) for v in value) if isinstance(value, (list, tuple)) else value


def problem_key(name: str, args: Any) -> str:
    """What names a workload in records: the key of its problem, else the name and arguments."""
    if len(args) == 1 and hasattr(args[0], "key"):
        return str(args[0].key)
    return json.dumps([name, *serialize(args)], separators=(",", ":"))
