"""Hash-consed nodes: two equal expressions are one object.

Equality of structure is then identity, memo tables are keyed by object, and a rewrite that
changes nothing returns what it was given.
"""

from __future__ import annotations

import os
import threading
import typing
from collections.abc import Callable
from typing import Any, ClassVar
from weakref import ref


class _Entry(ref[Any]):
    __slots__ = ("key",)
    key: tuple[Any, ...]


_table: dict[tuple[Any, ...], _Entry] = {}
#: Held where an entry is forgotten, so that it is not one that another thread has put in its place;
#: Python may begin that anywhere, within it, too.
_forgetting = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_forgetting.acquire,
        after_in_parent=_forgetting.release,
        after_in_child=_forgetting.release,
    )


def _forget(entry: _Entry) -> None:
    with _forgetting:
        if _table.get(entry.key) is entry:
            del _table[entry.key]


@typing.dataclass_transform(frozen_default=True, eq_default=False)
class InternedMeta(type):
    """The class of hash-consed node classes: calling one returns the node if it exists."""

    #: How fields are set, in order, and whether they tell a node from others as they are.
    _setters: tuple[Callable[[Any, Any], None], ...]
    _plain: bool
    #: What tells a node of a class that is not plain from others.
    key: Callable[..., tuple[Any, ...]]

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> None:
        super().__init__(name, bases, namespace)
        fields = namespace.get("__match_args__", getattr(cls, "__match_args__", ()))
        cls._setters = tuple(getattr(cls, field).__set__ for field in fields)
        cls._plain = not hasattr(cls, "key")

    def __call__(cls, *args: Any) -> Any:
        key = (cls, *args) if cls._plain else (cls, *cls.key(*args))
        entry = _table.get(key)
        if entry is not None:
            node = entry()
            if node is not None:
                return node
        node = object.__new__(cls)  # type: ignore[arg-type]
        for put, value in zip(cls._setters, args, strict=True):
            put(node, value)
        node._made()
        entry = _Entry(node, _forget)
        entry.key = key
        while (before := _table.setdefault(key, entry)) is not entry:  # of another thread
            other = before()
            if other is not None:
                return other
            _forget(before)
        return node


class Interned(metaclass=InternedMeta):
    """A node that is its structure; subclasses list their fields in ``__match_args__``.

    One whose fields do not tell it from others by comparing equal has a static method ``key`` of
    the fields that does.
    """

    __slots__ = ("__weakref__",)
    __match_args__: ClassVar[tuple[str, ...]] = ()

    def _made(self) -> None:
        """Derive attributes once, when the node is new."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, name) for name in self.__match_args__)

    __hash__ = object.__hash__
