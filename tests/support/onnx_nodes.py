"""ONNX's own cases of operators, and how many of them run.

python -m tests.support.onnx_nodes              # those of networks of convolutions, of one node
python -m tests.support.onnx_nodes --all        # of all operators, also those made of others
python -m tests.support.onnx_nodes --renew      # writes the list of those that pass; it only grows
"""

from __future__ import annotations

import argparse
import collections
import functools
import warnings
from pathlib import Path
from typing import Any

import numpy as np

#: Of the cases of one node, those of operators that networks of convolutions are made of.
OPERATORS = frozenset(
    """
    Abs Add ArgMax ArgMin AveragePool BatchNormalization Ceil Celu Clip Concat Constant
    ConstantOfShape Conv ConvInteger ConvTranspose DepthToSpace DequantizeLinear Div Dropout Elu Erf
    Exp Expand Flatten Floor Gather Gelu Gemm GlobalAveragePool GlobalMaxPool GroupNormalization
    HardSigmoid HardSwish Identity InstanceNormalization LRN LayerNormalization LeakyRelu Log
    LogSoftmax LpPool MatMul MatMulInteger Max MaxPool Mean Min Mish Mul Neg PRelu Pad Pow
    QLinearConv QLinearMatMul QuantizeLinear Reciprocal ReduceL1 ReduceL2 ReduceLogSum
    ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape
    Resize Selu Shape Sigmoid Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt Squeeze Sub
    Sum Tanh ThresholdedRelu Tile TopK Transpose Unsqueeze Upsample Where
    """.split()
)
LIST = Path(__file__).parents[1] / "correctness" / "onnx_nodes.txt"


@functools.cache
def cases() -> dict[str, Any]:
    """Every case, by name; making them takes some seconds."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind="node")
    return {c.name: c for c in found if c.model is not None}


def operator_of(case: Any) -> str:
    """ONNX's name of the operator; of what it is made of, where that is several, "of several"."""
    nodes = case.model.graph.node
    return str(nodes[0].op_type) if len(nodes) == 1 else "of several"


def passing() -> list[str]:
    """The names on the list."""
    return LIST.read_text().split()


def check(case: Any, target: str = "llvm") -> None:
    """Raises where the results are not those of the case, to its own tolerance."""
    import tilewright

    model = tilewright.load(case.model.SerializeToString(), target=target)
    for inputs, outputs in case.data_sets:
        given = {p.name: _array(x) for p, x in zip(model.inputs, inputs, strict=True)}
        for got, wanted in zip(model.run(given).values(), map(_array, outputs), strict=True):
            _compare(case, got, wanted)


def check_folding(case: Any) -> bool:
    """Whether the outputs are known where the inputs are; raises where they are not those of the
    case."""
    from tilewright.graph import Constant
    from tilewright.graph.onnx.read import OnnxModel

    model = OnnxModel(case.model.SerializeToString())
    inputs, outputs = case.data_sets[0]
    given = [Constant(_array(x), p.name) for p, x in zip(model.inputs, inputs, strict=True)]
    found = list(model.graph(given).outputs.values())
    for value, wanted in zip(found, map(_array, outputs), strict=True):
        if isinstance(value, Constant):
            _compare(case, value.array, wanted)
    return all(isinstance(value, Constant) for value in found)


def _compare(case: Any, got: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> None:
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    if wanted.dtype.kind in "iub":
        np.testing.assert_array_equal(got, wanted)
    else:
        wide = (got.astype(np.float64), wanted.astype(np.float64))
        np.testing.assert_allclose(*wide, rtol=case.rtol, atol=max(case.atol, 1e-6))


def _array(x: Any) -> np.ndarray[Any, Any]:
    from onnx import TensorProto, numpy_helper

    from tilewright.graph.onnx.narrow import carried

    if not isinstance(x, TensorProto):
        return np.asarray(x)
    return carried(numpy_helper.to_array(x), x.data_type)


def main() -> None:
    """Run the cases, and say what does not pass."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--all", action="store_true", help="of all operators")
    parser.add_argument("--renew", action="store_true", help="write the list")
    args = parser.parse_args()
    chosen = {n: c for n, c in cases().items() if args.all or operator_of(c) in OPERATORS}
    passed, failed = [], collections.defaultdict[str, list[str]](list)
    for name, case in chosen.items():
        try:
            check(case)
            passed.append(name)
        except Exception as error:
            why = str(error).strip().partition("\n")[0]
            failed[operator_of(case)].append(f"{name}: {type(error).__name__}: {why[:160]}")
    for kind, reasons in sorted(failed.items()):
        print(kind, *reasons, sep="\n  ")
    if args.renew:
        LIST.write_text(
            "\n".join(sorted({*passing(), *passed} if LIST.exists() else passed)) + "\n"
        )
    single = {n for n, c in chosen.items() if len(c.model.graph.node) == 1}
    print(f"{len(passed)} of {len(chosen)} cases pass; of one node "
          f"{len(single & set(passed))} of {len(single)}")  # fmt: skip


if __name__ == "__main__":
    main()
