"""What a model is called with."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tilewright.graph.errors import ModelError
from tilewright.graph.graph import Graph
from tilewright.graph.value import Value, text_of
from tilewright.ir.dtype import dtype as to_dtype
from tilewright.ir.errors import ArgumentError
from tilewright.runtime.array import resolved, view
from tilewright.runtime.array_view import ArrayView, dense_strides
from tilewright.runtime.narrow_floats import storage_type
from tilewright.topi.problem import TensorType


@dataclass(frozen=True)
class Parameter:
    """An input of a model.

    Attributes
    ----------
    dtype : the type of its elements; ``also`` are names of NumPy's for types of fewer bits, whose
        elements it takes too.
    shape : its extents; names where any will do, the same where the name is ("?" is no name), and
        None where nothing is said.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None
    also: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.name}: {self.dtype}"
        return f"{self.name}: {self.dtype}[{'x'.join(map(str, self.shape))}]"


class Source(Protocol):
    """Where a model comes from: what it is called with, and its graph for shapes that are known."""

    @property
    def name(self) -> str: ...

    @property
    def inputs(self) -> Sequence[Parameter]: ...

    @property
    def outputs(self) -> Sequence[str]: ...

    def graph(self, inputs: Iterable[Value]) -> Graph:
        """The graph of these inputs, in order; constants stand for those whose data is needed.
        Raises :class:`NeedsData` where the data of another one is."""


#: An argument: an array of the host, or a view of a GPU's memory.
Argument = Any


def arrays(
    parameters: Sequence[Parameter], given: Mapping[str, Any], device: str = "cpu"
) -> dict[str, Argument]:
    """The arguments of a call as dense arrays of the host, or views of those of ``device``; raises
    :class:`ModelError` for one that is missing, unknown, of another type, or of a shape that does
    not fit the others."""
    if not isinstance(given, Mapping):
        takes = ", ".join(f'"{p.name}": ...' for p in parameters)
        raise ModelError(
            f"the inputs are given as {type(given).__name__}: give a dictionary of them by name, "
            f"{{{takes}}}; a call of the model, model(x), takes them in order"
        )
    names = [p.name for p in parameters]
    if others := [type(n).__name__ for n in given if not isinstance(n, str)]:
        raise ModelError(f"inputs are given by their names, not by a {others[0]}: {names}")
    strange = sorted(set(given) - set(names))
    missing = [n for n in names if n not in given]
    if strange or missing:
        what = f"there is no input {', '.join(strange)}" if strange else "some are missing"
        raise ModelError(f"{what}: the model takes {'; '.join(map(str, parameters))}")
    found, named = {}, dict[str, int]()
    for p in parameters:
        array: Argument = on(device, p.name, given[p.name])
        if array is None:
            array, kind = of_host(p.name, given[p.name]), storage_type(to_dtype(p.dtype))
            right = array.dtype == kind
            if not right and str(array.dtype) in p.also:
                array, right = array.astype(kind), True
        else:
            right = str(array.dtype) == p.dtype
        if not right:
            raise ModelError(f"{p.name} is {array.dtype}, and is to be {p.dtype}: convert it first")
        _check_shape(p, array.shape, named)
        found[p.name] = array
    return found


def places(
    types: Mapping[str, TensorType], given: Mapping[str, Any], device: str = "cpu"
) -> dict[str, Argument]:
    """Where outputs of these types go: arrays of the host, or views of those of ``device``. Raises
    :class:`ModelError` for one that is unknown, of another type or shape, or that nobody can write
    to as one block."""
    if not isinstance(given, Mapping):
        gives = ", ".join(f'"{name}": ...' for name in types)
        raise ModelError(
            f"the outputs are given as {type(given).__name__}: give a dictionary of arrays by "
            f"name, {{{gives}}}"
        )
    found: dict[str, Argument] = {}
    for name, array in given.items():
        if name not in types:
            raise ModelError(f"there is no output {name}: the model gives {', '.join(types)}")
        shape, kind = types[name]
        there = on(device, name, array)
        if there is not None:
            fits = (there.shape, str(there.dtype)) == (shape, kind) and not there.readonly
            found[name] = there
        else:
            memory = of_host(name, array) if is_array(array) else np.empty(0)
            fits = (
                memory.shape == shape
                and memory.dtype == storage_type(to_dtype(kind))
                and memory.flags.writeable
                and shares(name, memory, array)
            )
            found[name] = memory
        if not fits:
            raise ModelError(
                f"{name} is {text_of(types[name])}: give a dense array of that type and shape that "
                f"can be written to, got {_described(array)}"
            )
    return found


def check_apart(inputs: Mapping[str, ArrayView], outputs: Mapping[str, ArrayView]) -> None:
    """Raises :class:`ModelError` for an output that lies on the memory of an input, or of another
    output: kernels write some before they have read all."""
    for name, into in outputs.items():
        low, high = into.span
        for other, there in (*inputs.items(), *outputs.items()):
            first, end = there.span
            shared = max(low, first) < min(high, end)  # never of one without elements
            if there is not into and there.device == into.device and shared:
                raise ModelError(
                    f"output {name} lies on the memory of {other}: give it an array of its own"
                )


def is_array(given: Any) -> bool:
    """Whether something is memory already, and no list or number."""
    known = ("__array_interface__", "__tilewright_view__", "data_ptr", "__dlpack__")
    return any(hasattr(given, name) for name in known)


def of_host(name: str, given: Any) -> np.ndarray[Any, Any]:
    """An argument as a dense array of the host: its own memory where that is dense, else a copy.

    Raises :class:`ModelError` for what no array can be made of.
    """
    if isinstance(given, np.ndarray) and given.flags.c_contiguous:
        return given
    try:
        if str(getattr(given, "dtype", "")) == "torch.bfloat16":  # NumPy has no such type
            bits = given.detach().contiguous().view(sys.modules["torch"].int16).numpy()
            return np.asarray(bits).view(storage_type(to_dtype("bfloat16")))
        return np.asarray(resolved(given), order="C")
    except (TypeError, ValueError, RuntimeError) as error:
        kind = type(given).__name__
        raise ModelError(f"{name}: no array can be made of this {kind}: {error}") from None


def shares(name: str, array: np.ndarray[Any, Any], given: Any) -> bool:
    """Whether what :func:`of_host` made is the memory of ``given``, and no copy."""
    return array is given or array.size == 0 or (
        is_array(given) and np.may_share_memory(array, of_host(name, given))
    )  # fmt: skip


def _described(given: Any) -> str:
    if not is_array(given):
        return f"a {type(given).__name__}"
    kind, shape = getattr(given, "dtype", "?"), tuple(getattr(given, "shape", ()))
    flags = getattr(given, "flags", None)
    lies = "" if getattr(flags, "c_contiguous", True) else " that is not dense"
    lies += "" if getattr(flags, "writeable", True) else " that is read-only"
    return f"{str(kind).removeprefix('torch.')}[{'x'.join(map(str, shape))}]{lies}"


def on(device: str, name: str, given: Any) -> ArrayView | None:
    """An argument as a view of a GPU's memory; None where it is an array of the host.

    Raises :class:`ModelError` where it lies on another device than the model, or is not dense.
    """
    known = ("__tilewright_view__", "data_ptr", "__cuda_array_interface__", "__dlpack__")
    if isinstance(given, np.ndarray) or not any(hasattr(given, name) for name in known):
        return None
    try:
        found = view(given)
    except ArgumentError as error:
        raise ModelError(f"{name}: {error}") from None
    if found.device == "cpu":
        return None
    if found.device != device or device == "cpu":
        raise ModelError(f"{name} is on {found.device}, and the model on {device}: move one")
    if found.strides != dense_strides(found.shape) and 0 not in found.shape:
        raise ModelError(f"{name} is not dense in memory: copy it first")
    return found


def _check_shape(p: Parameter, shape: tuple[int, ...], named: dict[str, int]) -> None:
    if p.shape is None:
        return
    if len(shape) != len(p.shape):
        one = len(shape) + 1 == len(p.shape)
        hint = f": one of a batch is {p.name}[None]" if one else ""
        raise ModelError(
            f"{p.name} has the shape {shape}, of {len(shape)} dimensions, and the model takes {p}, "
            f"of {len(p.shape)}{hint}"
        )
    fits = True
    for wanted, extent in zip(p.shape, shape, strict=True):
        if isinstance(wanted, str) and wanted != "?":
            fits &= named.setdefault(wanted, extent) == extent
        elif isinstance(wanted, int):
            fits &= wanted == extent
    if not fits:
        known = ", ".join(f"{k} = {v}" for k, v in named.items())
        where = f", where {known}" if known else ""
        raise ModelError(f"{p.name} has the shape {shape}, and the model takes {p}{where}")
