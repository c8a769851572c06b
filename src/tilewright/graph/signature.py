"""What a model is called with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.graph.errors import ModelError
from tilewright.ir.dtype import dtype as to_dtype
from tilewright.runtime.ndarray import storage_type


@dataclass(frozen=True)
class Parameter:
    """An input of a model.

    Attributes
    ----------
    shape : its extents; names where any will do, the same where the name is ("?" is no name), and
        None where nothing is said.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.name}: {self.dtype}"
        return f"{self.name}: {self.dtype}[{'x'.join(map(str, self.shape))}]"


def arrays(
    parameters: Sequence[Parameter], given: Mapping[str, Any]
) -> dict[str, np.ndarray[Any, Any]]:
    """The arguments of a call as dense arrays; raises :class:`ModelError` for one that is missing,
    unknown, of another type, or of a shape that does not fit the others."""
    names = [p.name for p in parameters]
    strange = sorted(set(given) - set(names))
    missing = [n for n in names if n not in given]
    if strange or missing:
        what = f"there is no input {', '.join(strange)}" if strange else "some are missing"
        raise ModelError(f"{what}: the model takes {'; '.join(map(str, parameters))}")
    found, named = {}, dict[str, int]()
    for p in parameters:
        array = np.asarray(given[p.name])
        if array.dtype != storage_type(to_dtype(p.dtype)):
            raise ModelError(f"{p.name} is {array.dtype}, and is to be {p.dtype}")
        _check_shape(p, array.shape, named)
        found[p.name] = np.asarray(array, order="C")
    return found


def _check_shape(p: Parameter, shape: tuple[int, ...], named: dict[str, int]) -> None:
    if p.shape is None:
        return
    fits = len(shape) == len(p.shape)
    for wanted, extent in zip(p.shape, shape, strict=False):
        if isinstance(wanted, str) and wanted != "?":
            fits &= named.setdefault(wanted, extent) == extent
        elif isinstance(wanted, int):
            fits &= wanted == extent
    if not fits:
        known = ", ".join(f"{k} = {v}" for k, v in named.items())
        raise ModelError(
            f"{p.name} has the shape {shape}, and is {p}{f', where {known}' * bool(known)}"
        )
