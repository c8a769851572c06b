"""cuDNN's own convolution of 8-bit integers, through the package nvidia-cudnn-frontend.

Channels last: sums of int8 in int32, times a number a channel, plus a bias in float32, ReLU, and
rounded to int8, one graph that cuDNN fuses. The first plans of its heuristics are timed once, and
the fastest is taken, as PyTorch's search does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.cli._measure.turns import of_graph
from tilewright.topi import Conv


class Unavailable(Exception):
    """Why there is nothing to compare with."""


def _last(shape: tuple[int, ...]) -> list[int]:
    """The strides of (n, c, h, w) with channels last."""
    _, c, h, w = shape
    return [h * w * c, 1, w * c, c]


class CudnnBytes:
    """The fastest plan of a problem with channels last, of tensors in PyTorch's memory format."""

    def __init__(self, p: Conv, plans: int) -> None:
        try:
            import cudnn
        except (ImportError, OSError) as error:
            raise Unavailable(f"nvidia-cudnn-frontend: {error}") from None
        import torch

        self.torch, self.cudnn = torch, cudnn
        self.handle = cudnn.create_handle()
        kinds = cudnn.data_type
        graph = cudnn.pygraph(
            handle=self.handle, io_data_type=kinds.INT8, intermediate_data_type=kinds.FLOAT,
            compute_data_type=kinds.FLOAT,
        )  # fmt: skip
        image = (p.batch, p.channels, *p.image)
        taps = (p.out_channels, p.channels, *p.kernel)
        one = (1, p.out_channels, 1, 1)

        def tensor(name: str, shape: tuple[int, ...], kind: Any) -> Any:
            return graph.tensor(name=name, dim=list(shape), stride=_last(shape), data_type=kind)

        x, w = tensor("x", image, kinds.INT8), tensor("w", taps, kinds.INT8)
        scale, bias = tensor("scale", one, kinds.FLOAT), tensor("bias", one, kinds.FLOAT)
        y = graph.conv_fprop(
            image=x, weight=w, padding=list(p.padding[:2]), stride=list(p.stride),
            dilation=list(p.dilation), compute_data_type=kinds.INT32,
        )  # fmt: skip
        y.set_data_type(kinds.INT32)
        y = graph.mul(a=y, b=scale, compute_data_type=kinds.FLOAT)
        y = graph.add(a=y, b=bias, compute_data_type=kinds.FLOAT)
        y = graph.relu(input=y)
        y.set_output(True).set_data_type(kinds.INT8)
        try:
            graph.validate()
            graph.build_operation_graph()
            graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
            graph.check_support()
            self.count = min(plans, graph.get_execution_plan_count())
            for index in range(self.count):
                graph.build_plan_at_index(index)
        except Exception as error:  # of types that differ between versions
            raise Unavailable(f"cuDNN: {str(error).splitlines()[0][:120]}") from None
        self.graph, self.names = graph, (x, w, scale, bias, y)
        self.index, self.workspace = 0, None

    def call(self, *tensors: Any) -> None:
        """x, filter, scale, bias and result; on PyTorch's stream."""
        stream = self.torch.cuda.current_stream().cuda_stream
        self.cudnn.set_stream(handle=self.handle, stream=stream)
        given = dict(zip(self.names, tensors, strict=True))
        self.graph.execute_plan_at_index(given, self.workspace, self.index, self.handle)

    def search(self, call: Callable[[int], Any], sets: int) -> None:
        """Take the fastest plan of ``call``, which calls :meth:`call`."""
        size, best = self.torch.uint8, (math.inf, 0, None)
        for index in range(self.count):
            self.index = index
            try:
                need = self.graph.get_workspace_size_plan_at_index(index)
                self.workspace = self.torch.empty(max(need, 1), dtype=size, device="cuda")
                call(0)
                self.torch.cuda.synchronize()
                found = of_graph(call, sets)(1)
            except Exception:  # a plan that does not run, or cannot be captured
                continue
            best = min(best, (found, index, self.workspace), key=lambda x: x[0])
        if math.isinf(best[0]):
            raise Unavailable("cuDNN: none of its plans runs")
        _, self.index, self.workspace = best
