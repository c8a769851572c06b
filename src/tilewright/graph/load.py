"""Reading what was saved: models, and kernels."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from tilewright.graph.errors import ModelError
from tilewright.target import Target


@runtime_checkable
class SupportsSerializing(Protocol):
    """ONNX's ``ModelProto``, which this module does without."""

    def SerializeToString(self) -> bytes: ...


def load(
    path: str | Path | bytes | SupportsSerializing,
    target: str | Target = "llvm",
    *,
    dtype: str | None = None,
    capture: bool = True,
    calibration: Iterable[Any] | None = None,
    budget: float | None = None,
    percentile: float = 100.0,
    precision: str | None = None,
) -> Any:
    """A :class:`~tilewright.graph.Model` of an ONNX file, or the :class:`tilewright.Kernel` that
    :meth:`Kernel.save` wrote.

    Parameters
    ----------
    path : the file, or the contents of an ONNX file, as bytes or as a ``ModelProto``.
    target : what a model runs on; a kernel is for what it was compiled for.
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

    Raises :class:`~tilewright.graph.ModelError` for a model that cannot be run, naming all of its
    operators that are not supported; for kernels see :func:`tilewright.runtime.load`.
    """
    if isinstance(path, SupportsSerializing):
        path = path.SerializeToString()
    if not isinstance(path, (str, Path, bytes)):
        raise ModelError(
            f"load takes the path of a file, or an ONNX model, got a {type(path).__name__}: models "
            'of PyTorch are compiled by torch.compile(model, backend="tilewright")'
        )
    if not isinstance(path, bytes) and _is_kernel(Path(path)):
        from tilewright.runtime import load as load_kernel

        return load_kernel(path)
    from tilewright.graph.model import Model
    from tilewright.graph.onnx.read import OnnxModel

    if dtype != "int8":
        if calibration is not None or budget is not None or percentile != 100:
            raise ModelError('calibration, budget and percentile are for dtype="int8"')
        return Model(OnnxModel(path), target, dtype, capture, precision=precision)
    if calibration is None:
        raise ModelError('dtype="int8" needs samples: calibration=[x, ...], as run takes them')
    from tilewright.graph.calibrate import calibrated

    model = Model(OnnxModel(path), target, None, capture, precision=precision)
    return model.quantized(calibrated(model, calibration, budget, percentile))


def _is_kernel(path: Path) -> bool:
    """Whether a file is no model by its name, or is what kernels are saved as.

    Raises :class:`ModelError` for one that can be neither."""
    if path.suffix.lower() in (".onnx", ".ort"):
        return zipfile.is_zipfile(path)
    if path.exists() and not zipfile.is_zipfile(path):
        raise ModelError(
            f"{path} is not a saved kernel, or is damaged; and no model, whose name ends in .onnx"
        )
    return True
