"""Models as files: the ONNX model, what it was loaded with, and the kernels that were compiled.

A file is what kernels are saved as (:mod:`tilewright.runtime.save`): a zip of JSON, an ONNX model
and compiled code. Loading one runs the machine code in it when the model is called.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright import __version__
from tilewright.graph.errors import ModelError
from tilewright.graph.load import ONNX, open_ahead
from tilewright.ir.errors import TargetError
from tilewright.runtime.build import backend, to_files
from tilewright.runtime.compile import resolve
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.save import kernel_of, made_for, read_archive, reading, write_archive
from tilewright.runtime.serialize import NotSerializable
from tilewright.target import Target
from tilewright.tune.machine import with_own_architecture

if TYPE_CHECKING:
    from tilewright.graph.model import Model
    from tilewright.graph.passes.quantize_products import Quantization

#: A file whose parts have more bytes is none: a model of ONNX's has at most two GiB.
_MOST = 4 << 30


def save(model: Model, path: Path) -> None:
    """Write a model and its kernels; see :meth:`Model.save`."""
    check_name(path)
    write_archive(path, *parts_of(model, model.kernels()))


def parts_of(
    model: Model, kernels: Mapping[str, Kernel]
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """What is said about a model and these of its kernels, by name, and the parts of its file."""
    write = getattr(model.source, "to_bytes", None)
    if write is None:
        raise ModelError(f"the model {model.name} does not come from an ONNX file: it is not saved")
    named, files = _parts(kernels)
    about = {
        "name": model.name, "model": str(model.target), "dtype": model.dtype,
        "precision": model.precision, "capture": model.capture,
        "quantization": _written(model.quantization), "batches": model.first_batches,
        "kernels": named,
    }  # fmt: skip
    return about, {"model.onnx": write(), **files}


def write_kernels(kernels: Mapping[str, Kernel], path: Path) -> None:
    """Write kernels of a model, by name, for :func:`load_kernels`."""
    named, files = _parts(kernels)
    write_archive(path, {"kernels": named}, files)


def _parts(kernels: Mapping[str, Kernel]) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    named: list[dict[str, Any]] = []
    files: dict[str, bytes] = {}
    for name, kernel in kernels.items():
        try:
            parts = to_files(kernel)
        except NotSerializable:  # it is compiled again
            continue
        files |= {f"kernels/{len(named)}/{part}": data for part, data in parts.items()}
        named.append({"kernel": name, **made_for(kernel)})
    return named, files


def check_name(path: Path) -> None:
    """Raises :class:`ModelError` for a name under which a file is read as ONNX's."""
    if path.suffix.lower() in ONNX:
        raise ModelError(f"{path} would be taken for a model of ONNX's: give it another name")


def load(path: Path, target: str | Target | None) -> Model | None:
    """What :func:`save` wrote, or None where the file is a kernel. Kernels for other machines than
    this one, and of other versions, are left out: they are compiled.

    Raises :class:`ModelError` where the model was saved for another ``target``, and else as
    :func:`tilewright.runtime.load`.
    """
    with reading(path):
        meta, files = read_archive(path, _MOST)
        if "model" not in meta:
            return None
        return _model(path, meta, files, target)


def _model(
    path: Path, meta: Mapping[str, Any], files: Mapping[str, bytes], target: str | Target | None
) -> Model:
    own = Target.parse(meta["model"])
    if target is not None and Target.parse(target) != own:
        raise ModelError(f'{path} was saved for target="{own}", not for "{target}": leave it out')
    open_ahead(own)
    from tilewright.graph.model import Model
    from tilewright.graph.onnx.read import OnnxModel

    made = Model(
        OnnxModel(files["model.onnx"]), own, meta["dtype"] or None, bool(meta["capture"]),
        _quantization(meta["quantization"]), meta["precision"] or None,
    )  # fmt: skip
    found = _kernels(path, meta, files, own)
    made.restore(found, meta["batches"])
    return made


def load_kernels(model: Model, path: Path) -> None:
    """Give a model the kernels of a file that :func:`write_kernels` wrote; raises as :func:`load`
    does."""
    with reading(path):
        meta, files = read_archive(path, _MOST)
        model.restore(_kernels(path, meta, files, model.target), ())


def _kernels(
    path: Path, meta: Mapping[str, Any], files: Mapping[str, bytes], target: Target
) -> dict[str, Kernel]:
    """The kernels of a file by name, but for those that are for other machines."""
    machine = resolve(with_own_architecture(target))
    found: dict[str, Kernel] = {}
    # What a kernel's operands mean is its version's: of another one, they are compiled again.
    same = meta["tilewright"] == __version__
    for k, about in enumerate(meta["kernels"] if same else ()):
        place = f"kernels/{k}/"
        parts = {n.removeprefix(place): x for n, x in files.items() if n.startswith(place)}
        kernel = _kernel(about, parts, machine, path)
        if kernel is not None:
            found[about["kernel"]] = kernel
    return found


def _kernel(
    about: dict[str, Any], files: dict[str, bytes], machine: Target, path: Path
) -> Kernel | None:
    """A kernel, where it is for this machine."""
    loaded = backend(machine)
    try:
        # Where nothing tells whether code of another driver's runs here, it is to be the same; text
        # for a device that is known by its name is compiled by any driver.
        if not hasattr(loaded, "check_tag") and machine.kind == "opencl":
            if about["tag"] not in (loaded.TEXT, loaded.cache_tag(machine)):
                return None
        kernel = kernel_of(about, files, path)
    except TargetError:
        return None
    return kernel if kernel.target == machine else None


def _written(known: Quantization | None) -> dict[str, Any] | None:
    if known is None:
        return None
    error = None if math.isnan(known.error) else known.error
    return {"ranges": dict(known.ranges), "kept": dict(known.kept), "error": error}


def _quantization(written: Mapping[str, Any] | None) -> Quantization | None:
    if written is None:
        return None
    from tilewright.graph.passes.quantize_products import Quantization

    ranges = {str(name): float(size) for name, size in written["ranges"].items()}
    error = math.nan if written["error"] is None else float(written["error"])
    return Quantization(ranges, dict(written["kept"]), error)
