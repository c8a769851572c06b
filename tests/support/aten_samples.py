"""PyTorch's own samples of its operators as values of a graph, folded from constants.

    python -m tests.support.aten_samples [NAME...]

prints how many samples of how many operators become what PyTorch computes, how many operators have
samples that stay with PyTorch, and each sample that differs. A sample whose products are not folded
is not compared.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree
from tests.support.torch_samples import op_db
from torch.fx.experimental.proxy_tensor import make_fx

from tilewright.graph import Constant
from tilewright.torch.backend import decompositions
from tilewright.torch.partition import obstacle
from tilewright.torch.region import array_of, interpret, tensor_of

TYPES = (torch.float32, torch.int64, torch.bool)
#: Samples of an operator and a type, and elements of their tensors, at most.
_SAMPLES, _ELEMENTS = 12, 3000


def samples(names: list[str]) -> Iterator[tuple[str, Any, list[torch.Tensor]]]:
    """The name of an operator, a function of tensors and these, of few elements each."""
    for info in op_db():
        for dtype in TYPES:
            if (names and info.name not in names) or dtype not in info.dtypes:
                continue
            try:
                drawn = list(info.sample_inputs("cpu", dtype))[:_SAMPLES]
            except Exception:  # it needs what is not installed
                continue
            for sample in drawn:
                flat, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
                tensors = [x for x in flat if isinstance(x, torch.Tensor)]

                def call(*given: Any, op: Any = info.op, flat: Any = flat, spec: Any = spec) -> Any:
                    rest = iter(given)
                    whole = [next(rest) if isinstance(x, torch.Tensor) else x for x in flat]
                    x, args, more = pytree.tree_unflatten(whole, spec)
                    return op(x, *args, **more)

                if all(0 < t.numel() <= _ELEMENTS for t in tensors):
                    yield info.name, call, tensors


def outcome(call: Any, tensors: list[torch.Tensor], table: Any) -> str | None:
    """Why a sample stays with PyTorch or is not compared; nothing where it is equal. Raises
    :class:`AssertionError` where it differs."""
    try:
        wanted, _ = pytree.tree_flatten(call(*(t.clone() for t in tensors)))
        module = make_fx(call, table, tracing_mode="fake")(*tensors)
    except Exception:
        return "it is not traced"
    calls = [
        n for n in module.graph.nodes if n.op == "call_function" and "_schema" in dir(n.target)
    ]
    if not calls or module.graph.find_nodes(op="get_attr"):
        return "it is not traced"
    if not all(isinstance(y, torch.Tensor) and y.numel() for y in wanted):
        return "it makes no tensor"
    for node in calls:
        if why := obstacle(node):
            return why
    inputs = module.graph.find_nodes(op="placeholder")
    known = {n: Constant(array_of(t)) for n, t in zip(inputs, tensors, strict=True)}
    found, _ = pytree.tree_flatten(interpret(module, known))
    for node, y in zip(found, wanted, strict=True):
        if not isinstance(known[node], Constant):
            return "it is not folded"
        made = tensor_of(known[node].array, y.device)
        assert made.dtype == y.dtype, f"{made.dtype}, not {y.dtype}"
        torch.testing.assert_close(made, y, rtol=1e-4, atol=1e-5, equal_nan=True)
    return None


def main() -> None:
    warnings.filterwarnings("ignore")
    equal, left, differs, table = [], set(), 0, decompositions()
    for name, call, tensors in samples(sys.argv[1:]):
        try:
            why = outcome(call, tensors, table)
        except AssertionError as error:
            differs += 1
            print(f"{name} of {[tuple(t.shape) for t in tensors]}: {error}")
            continue
        if why is None:
            equal.append(name)
        elif why.startswith("aten") or "supported" in why:
            left.add(name)
    print(
        f"{len(equal)} samples of {len(set(equal))} operators are equal, {differs} are not; "
        f"{len(left)} operators have samples that stay with PyTorch"
    )


if __name__ == "__main__":
    main()
