"""Tensors whose data lies in files beside a model: read from its folder, and no more of it.

Nothing is taken on trust: a path may lead out of the folder by dots or by a link, name a pipe that
never ends, or a file of another size than the tensor's.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tilewright.graph.errors import ModelError
from tilewright.graph.onnx.narrow import NARROW
from tilewright.graph.onnx.types import dtype_of
from tilewright.ir.dtype import dtype


def load_external(proto: Any, folder: Path | None) -> None:
    """Put the data of tensors that lie in other files into the model.

    Raises :class:`ModelError` for files that are not regular ones in ``folder``, which is None for
    a model that is no file, and for parts of files that are not as large as the tensor.
    """
    for tensor in _tensors(proto.graph):
        if tensor.data_location != tensor.EXTERNAL:
            continue
        entries = {e.key: e.value for e in tensor.external_data}
        location = entries.get("location", "")
        if folder is None:
            raise ModelError(f"{tensor.name} lies in {location!r}: load the model from its file")
        path = _inside(tensor.name, folder, location)
        try:
            data = _read(tensor, path, entries)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ModelError(f"{tensor.name} cannot be read from {location!r}: {why}") from None
        tensor.raw_data, tensor.data_location = data, tensor.DEFAULT
        del tensor.external_data[:]


def _tensors(graph: Any) -> Iterator[Any]:
    """The tensors of a graph, and of graphs inside of it."""
    yield from graph.initializer
    for node in graph.node:
        for a in node.attribute:
            yield from (a.t, *a.tensors)
            for inner in (a.g, *a.graphs):
                yield from _tensors(inner)


def _inside(name: str, folder: Path, location: str) -> Path:
    """Where a path leads, links followed."""
    try:
        path = Path(os.path.realpath(folder / location))
    except (OSError, ValueError) as error:  # too long, a NUL in it
        raise ModelError(f"{name} lies in {location[:80]!r}, which is no path: {error}") from None
    if not path.is_relative_to(folder):
        raise ModelError(f"{name} lies outside of the model's folder: {location!r}")
    return path


def _read(tensor: Any, path: Path, entries: dict[str, str]) -> bytes:
    """The bytes of a tensor; raises :class:`ValueError` where the file does not have them."""
    held = dtype(dtype_of(tensor.data_type, tensor.name))
    bits = NARROW[tensor.data_type].bits if tensor.data_type in NARROW else 8 * held.bytes
    if min(tensor.dims, default=0) < 0:
        raise ValueError(f"its shape is {tuple(tensor.dims)}")
    wanted = -(-math.prod(tensor.dims) * bits // 8)
    offset, length = (int(entries.get(k) or 0) for k in ("offset", "length"))
    if entries.get("length") and length != wanted:
        raise ValueError(f"{length} bytes for {tuple(tensor.dims)} elements of {bits} bits")
    if not path.is_file():  # a pipe, whose other end nobody may have, or a device
        raise ValueError("there is no such file")
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not 0 <= offset <= size - wanted:
            raise ValueError(f"the file has {size} bytes, not {wanted} from {offset} on")
        file.seek(offset)
        return file.read(wanted)
