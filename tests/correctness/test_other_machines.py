"""Machines that nobody measured on: the heuristic answers, with code within their limits."""

from __future__ import annotations

import math
import re
from itertools import cycle, product
from pathlib import Path

import pytest
from tests.support.depthwise import TOLERANCE, run

from tilewright.ir.expr import IntImm
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.llvm_host import lacking, processor
from tilewright.select import ProfileCache, choose
from tilewright.select.algorithm import BuiltKernel
from tilewright.target import Target
from tilewright.topi.operators.conv import LAYOUTS, Conv

GPUS = ["sm_80", "sm_86", "sm_89", "sm_120"]
DTYPES = ["float32", "float16", "bfloat16"]
#: Registers that a block may have on every one of GPUS.
REGISTERS = 65536
#: Bytes stored and loaded: ptxas keeps a word or two aside where one more block fits so.
_KEPT_ASIDE = 64

#: (batch, channels, image), kernel, and what else there is to a problem.
_SHAPES = cycle(
    [
        ((64, 96, 56), (3, 3), dict(padding=1, epilogue="scale_shift+relu6")),
        ((1, 144, 28), (5, 5), dict(padding=2, stride=2, epilogue="bias+silu")),
        ((8, 384, 14), (7, 7), dict(padding=3)),
        ((2, 30, 33), (4, 2), dict(padding=(0, 1, 2, 0), dilation=2, multiplier=2)),
        ((16, 64, 32), (31, 31), dict(padding=15)),
        ((3, 17, 40), (1, 9), dict(padding="SAME", stride=(3, 1), epilogue="residual+gelu")),
        ((32, 32, 112), (3, 3), dict(padding=1, stride=2)),
    ]
)


def _problem(pass_: str, layout: str, dtype: str) -> Conv:
    (batch, channels, extent), (kh, kw), more = next(_SHAPES)
    flat = len(layout) == 3
    if flat:
        stride = more.get("stride", 1)
        more = more | dict(
            padding="CAUSAL", stride=stride if isinstance(stride, int) else stride[1]
        )
    if pass_ == "wgrad":
        more = more | dict(epilogue="")
    return Conv(
        operator=next(name for name, known in LAYOUTS.items() if layout in known),
        batch=batch, channels=channels, height=1 if flat else extent, width=extent,
        kernel_h=1 if flat else kh, kernel_w=kw, pass_=pass_, layout=layout, dtype=dtype, **more,
    )  # fmt: skip


#: Every pass in every layout, by turns in one type and in two.
PROBLEMS = [
    _problem(*parts)
    for parts in product(
        Conv.PASSES, [name for known in LAYOUTS.values() for name in known], DTYPES
    )
][::2]


def _built(p: Conv, target: Target, tmp_path: Path) -> Kernel:
    """What the heuristic takes where no record and no measurement is."""
    built = choose(p, target, cache=ProfileCache(tmp_path / "none.sqlite")).build()
    assert isinstance(built, BuiltKernel)
    return built.kernel


@pytest.mark.spread
@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(
    ("p", "arch"),
    list(zip(PROBLEMS, cycle(GPUS), strict=False)),
    ids=str,
)
def test_a_gpu_that_nobody_measured(p: Conv, arch: str, tmp_path: Path) -> None:
    target = Target.parse(f"cuda -arch={arch}")
    kernel = _built(p, target, tmp_path)
    used = list(kernel.resources.values())
    assert len(used) == len(kernel.module.funcs)
    for func, resources in zip(kernel.module.funcs, used, strict=True):
        extents = [a.extent for a in func.launch if a.tag.startswith("threadIdx")]
        threads = math.prod(e.value for e in extents if isinstance(e, IntImm))
        assert threads <= target.limits.threads_per_block
        assert resources.spills is not None
        assert resources.spills <= _KEPT_ASIDE
        assert resources.registers is not None
        assert -(-threads // 32) * 32 * resources.registers <= REGISTERS
        assert resources.shared_memory is not None
        assert resources.shared_memory <= target.limits.shared_memory


#: By set of features, what assembly of it must not name: registers of 64 and of 32 bytes.
WIDER = {"avx2": re.compile(r"%zmm|%k[0-7]\b"), "baseline": re.compile(r"%[yz]mm")}


@pytest.mark.parametrize(("p", "arch"), list(zip(PROBLEMS[::2], cycle(WIDER))), ids=str)
def test_a_cpu_with_fewer_instructions(p: Conv, arch: str, tmp_path: Path) -> None:
    small = p.replace(batch=min(p.batch, 2), channels=min(p.channels, 20))
    target = Target.parse(f"llvm -arch={arch}")
    if reason := lacking(processor(arch).features):
        pytest.skip(reason)
    kernel = _built(small, target, tmp_path)
    assert not WIDER[arch].search(kernel.assembly)
    assert run(small, kernel) < TOLERANCE[p.dtype]
