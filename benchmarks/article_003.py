"""Article 003 on a GPU: naive, v1 to v4 against PyTorch, by CUDA-graph replays in one run.

python benchmarks/article_003.py [--out FOLDER]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import measure

import tilewright
from tilewright import tvm
from tilewright.tvm import te

B, C, H, W, K = 3, 4, 16, 32, 7


def declaration() -> tuple[Any, ...]:
    """The article's ``base_declaration``."""
    inp = te.placeholder((B, C, H, W), name="A")
    ker = te.placeholder((C, 1, K, K), name="W")
    ry, rx = te.reduce_axis((0, K), name="ry"), te.reduce_axis((0, K), name="rx")
    pad = (K - 1) // 2
    padded = te.compute(
        (B, C, H + 2 * pad, W + 2 * pad),
        lambda b, c, h, w: tvm.tir.if_then_else(
            tvm.tir.all(h >= pad, h < H + pad, w >= pad, w < W + pad),
            inp[b, c, h - pad, w - pad],
            tvm.tir.const(0.0, "float32"),
        ),
        name="padded",
    )
    out = te.compute(
        (B, C, H, W),
        lambda b, c, h, w: te.sum(padded[b, c, h + ry, w + rx] * ker[c, 0, ry, rx], axis=[ry, rx]),
        name="depthwise_conv",
    )
    s = te.create_schedule(out.op)
    s[padded].compute_inline()
    return s, inp, ker, out


def naive(stage: Any) -> None:
    b, _, _, _ = stage.op.axis
    stage.bind(b, te.thread_axis("blockIdx.x"))


def v1(stage: Any) -> None:
    b, c, _, _ = stage.op.axis
    stage.bind(b, te.thread_axis("blockIdx.x"))
    stage.bind(c, te.thread_axis("blockIdx.y"))


def v2(stage: Any) -> None:
    b, c, h, _ = stage.op.axis
    stage.bind(stage.fuse(b, c), te.thread_axis("blockIdx.x"))
    stage.bind(h, te.thread_axis("blockIdx.y"))


def v3(stage: Any) -> None:
    b, c, h, w = stage.op.axis
    bc = stage.fuse(b, c)
    h_outer, h_inner = stage.split(h, factor=16)
    _, w_inner = stage.split(w, factor=16)
    stage.bind(bc, te.thread_axis("blockIdx.x"))
    stage.bind(h_outer, te.thread_axis("blockIdx.y"))
    stage.bind(h_inner, te.thread_axis("threadIdx.y"))
    stage.bind(w_inner, te.thread_axis("threadIdx.x"))


def v4(stage: Any) -> None:
    b, c, h, w = stage.op.axis
    bc = stage.fuse(b, c)
    h_outer, h_inner = stage.split(h, factor=16)
    w_outer, w_inner = stage.split(w, factor=16)
    stage.reorder(bc, h_outer, w_outer, h_inner, w_inner)
    hw_outer = stage.fuse(h_outer, w_outer)
    stage.bind(bc, te.thread_axis("blockIdx.x"))
    stage.bind(hw_outer, te.thread_axis("blockIdx.y"))
    stage.bind(h_inner, te.thread_axis("threadIdx.y"))
    stage.bind(w_inner, te.thread_axis("threadIdx.x"))


VERSIONS: dict[str, Callable[[Any], None]] = {
    "naive": naive, "v1": v1, "v2": v2, "v3": v3, "v4": v4,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="benchmarks/results")
    options = parser.parse_args()
    import torch

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = False
    x = torch.randn(B, C, H, W, device="cuda")
    w = torch.randn(C, 1, K, K, device="cuda")
    exact = torch.nn.functional.conv2d(x.double(), w.double(), padding=K // 2, groups=C)
    candidates: dict[str, Callable[[int], Any]] = {}
    errors: dict[str, float] = {}
    for name, apply in VERSIONS.items():
        s, inp, ker, out = declaration()
        apply(s[out])
        kernel = tilewright.build(s, [inp, ker, out], target="cuda", name=name)
        y = torch.full_like(exact, float("nan"), dtype=torch.float32)
        kernel(x, w, y)
        errors[name] = float((y - exact).norm() / exact.norm())

        def call(_: int, kernel: Any = kernel, y: Any = y) -> None:
            kernel(x, w, y)

        candidates[name] = call
    candidates["PyTorch"] = lambda i: torch.nn.functional.conv2d(x, w, padding=K // 2, groups=C)
    times = measure.graph_medians(candidates)
    rows: list[dict[str, Any]] = []
    previous = None
    for name, us in times.items():
        rows.append(
            {
                "version": name,
                "us": us,
                "PyTorch / it": times["PyTorch"] / us,
                "previous / it": previous / us if previous and name != "PyTorch" else "",
                "relative error": errors.get(name, ""),
            }
        )
        previous = us
    print(measure.table(rows))
    results = {"environment": measure.environment("torch"), "rows": rows}
    print(measure.save("article_003", results, options.out))


if __name__ == "__main__":
    main()
