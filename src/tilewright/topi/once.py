"""Properties that are computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class once(Generic[T]):
    """A property that an instance computes once, and then has as an attribute.

    ``functools.cached_property`` takes a lock and looks twice (Python 3.11), which is most of what
    is spent on properties of cuts, of which a choice among tiles makes hundreds.

    >>> class Square:
    ...     @once
    ...     def area(self) -> int:
    ...         print("computed")
    ...         return 9
    >>> square = Square()
    >>> square.area + square.area
    computed
    18
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> once[T]: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...
    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> once[T] | T:
        if instance is None:
            return self
        value = instance.__dict__[self.name] = self.compute(instance)
        return value
