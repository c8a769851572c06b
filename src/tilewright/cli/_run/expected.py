"""What the outputs of a run are compared with."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tilewright.cli._run.figures import Difference, difference
from tilewright.cli._run.inputs import arrays
from tilewright.graph.onnx.read import OnnxModel
from tilewright.graph.signature import Parameter
from tilewright.ir.errors import ArgumentError, TargetError

if TYPE_CHECKING:
    from tilewright.graph.model import Model


def differences_of(
    args: argparse.Namespace, model: Model, inputs: dict[str, Any], outputs: dict[str, Any]
) -> list[Difference]:
    """Each output that something is expected of beside that: what was given, or ONNX Runtime's."""
    if args.reference:
        wanted = _by_onnxruntime(args.model, model, inputs)
    elif args.expect:
        known = [Parameter(name, str(x.dtype), x.shape) for name, x in outputs.items()]
        given = arrays(args.expect, known, 0, "--expect")
        named = ";".join(args.expect)
        several = named.endswith(".npz") or len(outputs) == 1
        wanted = given if several else {n: x for n, x in given.items() if f"{n}:" in named}
    else:
        return []
    return [difference(n, outputs[n], w, args.rtol, args.atol) for n, w in wanted.items()]


def check_reference() -> None:
    """Raises :class:`TargetError` where what gives the reference is not installed."""
    if find_spec("onnxruntime") is None:
        raise TargetError("--reference onnxruntime: pip install onnxruntime")


def _by_onnxruntime(path: str, model: Model, inputs: dict[str, Any]) -> dict[str, Any]:
    check_reference()
    import onnxruntime

    source = model.source
    given: str | bytes = path
    if isinstance(source, OnnxModel) and not path.lower().endswith(".onnx"):  # a saved model
        given = source.to_bytes()
    outputs = list(model.outputs)
    try:
        session = onnxruntime.InferenceSession(given, providers=["CPUExecutionProvider"])
        found = session.run(outputs, inputs)
    except Exception as error:  # it has an error class for each of its states
        raise ArgumentError(f"--reference onnxruntime: it refuses that: {error}") from None
    return dict(zip(outputs, found, strict=True))
