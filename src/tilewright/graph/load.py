"""Reading what was saved: models, and kernels."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from tilewright.graph.errors import ModelError
from tilewright.runtime.compile import uncollected
from tilewright.target import Target


@runtime_checkable
class SupportsSerializing(Protocol):
    """ONNX's ``ModelProto``, which this module does without."""

    def SerializeToString(self) -> bytes: ...


#: Names of ONNX models, which are data and never run code of theirs.
ONNX = (".onnx", ".ort")


def load(
    path: str | Path | bytes | SupportsSerializing,
    target: str | Target | None = None,
    *,
    dtype: str | None = None,
    capture: bool = True,
    calibration: Iterable[Any] | None = None,
    budget: float | None = None,
    percentile: float = 100.0,
    precision: str | None = None,
) -> Any:
    """A :class:`~tilewright.graph.Model` of an ONNX file, or what :meth:`Model.save` or
    :meth:`Kernel.save` wrote.

    Parameters
    ----------
    path : the file, or the contents of an ONNX file, as bytes or as a ``ModelProto``. Only a file
        of another name than ``.onnx`` may be one that was saved: it holds compiled code, which runs
        when it is called.
    target : what a model runs on, by default "llvm"; what was saved is for what it was compiled
        for, and has all other options, too.
    dtype : "float16" or "bfloat16" lets products of float32 be computed in that type, with sums in
        float32, and what they give be kept in it; inputs and outputs stay as they are.
        "int8" lets them multiply integers of 8 bits, by ranges measured on ``calibration``.
    calibration : samples, each as :meth:`Model.run` takes it, or an array for a model of one input.
    budget : the relative error of the outputs on the samples up to which int8 goes: products whose
        results change most stay in float; ``model.quantization`` says which, and prints.
    percentile : of the sizes of a value on a sample, how many its range for int8 holds: 99.99 clips
        few outliers, and has finer steps for all others.
    precision : "winograd" lets 3x3 convolutions in float32 be computed in fewer products, on a CPU,
        at some two times the error (docs/operators.md).
    capture : on a GPU, record the launches of a model in a CUDA graph at the second call.

    For "cuda", the GPU is opened while the model is read: CUDA does not let processes that are
    forked afterwards use it, so start others by ``spawn``.

    Raises :class:`~tilewright.graph.ModelError` for a model that cannot be run, naming all of its
    operators that are not supported, and for options that a saved model has already; for files that
    are damaged or from another version see :func:`tilewright.runtime.load`. Kernels of a saved
    model that were compiled for another machine are compiled again.
    """
    if isinstance(path, SupportsSerializing):
        path = path.SerializeToString()
    if not isinstance(path, (str, Path, bytes)):
        raise ModelError(
            f"load takes the path of a file, or an ONNX model, got a {type(path).__name__}: models "
            'of PyTorch are compiled by torch.compile(model, backend="tilewright")'
        )
    if not isinstance(path, bytes) and _is_saved(Path(path)):
        given = dtype, calibration, budget, precision
        if any(x is not None for x in given) or percentile != 100 or not capture:
            raise ModelError(f"{path} was saved with its options: give them when it is made")
        with uncollected():
            return _saved(Path(path), target)
    if dtype != "int8" and (calibration is not None or budget is not None or percentile != 100):
        raise ModelError('calibration, budget and percentile are for dtype="int8"')
    if dtype == "int8" and calibration is None:
        raise ModelError('dtype="int8" needs samples: calibration=[x, ...], as run takes them')
    own = Target.parse("llvm" if target is None else target)
    open_ahead(own)
    with uncollected():
        from tilewright.graph.model import Model
        from tilewright.graph.onnx.read import OnnxModel

        kind = None if dtype == "int8" else dtype
        model = Model(OnnxModel(path), own, kind, capture, precision=precision)
    if calibration is None:
        return model
    from tilewright.graph.calibrate import calibrated

    return model.quantized(calibrated(model, calibration, budget, percentile))


def open_ahead(target: Target) -> None:
    """Begin to open the GPU that a target is for; one that names an architecture may be for no GPU
    of this machine."""
    if target.kind == "cuda" and not target.arch:
        from tilewright.runtime import cuda_driver

        cuda_driver.open_ahead()


def _saved(path: Path, target: str | Target | None) -> Any:
    from tilewright.graph.saved import load as load_model
    from tilewright.runtime import load as load_kernel

    model = load_model(path, target)
    return load_kernel(path) if model is None else model


def _is_saved(path: Path) -> bool:
    """Whether a file may be one that was saved, by its name and its beginning.

    Raises :class:`ModelError` for one that can be neither that nor a model."""
    if path.suffix.lower() in ONNX:
        return False
    if path.is_dir():
        raise ModelError(f"{path} is a folder: name the file of a model in it")
    if path.exists() and not zipfile.is_zipfile(path):
        raise ModelError(
            f"{path} is not a saved kernel or model, or is damaged; and no ONNX model, whose name "
            "ends in .onnx"
        )
    return True
