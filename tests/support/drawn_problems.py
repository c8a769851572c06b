"""Problems of any operator, by any schedule of the library: each is decided by one integer.

A problem is drawn over operators, types, precisions, passes, layouts, strides, groups, epilogues,
with as many channels as tensor cores take and as odd ones as they do not; then one of all schedules
that the library has for it, with any of its parameters. Sums are compared with float64, integers
bit by bit.
"""

from __future__ import annotations

import math
import os
import traceback
from collections.abc import Sequence
from typing import Any

from tests.support import attention, conv_programs, depthwise, mlp, quantized
from tests.support.dense import convolution, product
from tests.support.drawing import Dice, Replayed, Seeded
from tests.support.drawn_programs import Outcome
from tests.support.narrow import error_of_float8

from tilewright.ir.dtype import FLOAT8
from tilewright.ir.errors import ProblemError, TilewrightError, VerificationError
from tilewright.select.algorithm import Scheduled
from tilewright.select.registry import algorithms
from tilewright.target import Target
from tilewright.topi import Attention, Conv, Conv3d, ConvProgram, Gemm, Mlp
from tilewright.topi.problem import Problem

#: Multiplications of a problem, at most, by the kind of the target.
MOST_WORK = {"sim": 300_000, "llvm": 3_000_000, "opencl": 1_000_000, "cuda": 30_000_000}
#: What problems of a kind of target are drawn for: architectures with other instructions.
MACHINES = {"llvm": ("llvm", "llvm -arch=avx2", "llvm", "llvm -arch=baseline")}
#: Error norms that are allowed beyond those of the type of the result, by precision and by type.
_PRECISIONS = {"tf32": 2e-3, "tf32x3": 1e-5, "winograd": 1e-4, "half": 2e-2}
_FLOAT8 = 2e-3  # Hopper's tensor cores keep fewer digits of sums than float32 has
_CHANNELS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 16, 20, 24, 32, 32, 40, 64, 64, 96, 128, 130)
_STEPS = (
    "bias", "scale_shift", "wide_batch_norm(1e-05)", "residual", "relu", "relu6",
    "leaky_relu(0.2)", "hswish", "hsigmoid", "silu", "gelu", "clamp(-0.5,1)",
)  # fmt: skip
#: By type, its precisions.
_TYPES = {
    "float32": ("exact", "exact", "tf32", "tf32x3", "winograd"), "float16": ("exact",),
    "bfloat16": ("exact",), "float64": ("exact",), "int8": ("exact",), "uint8": ("exact",),
    **dict.fromkeys(FLOAT8, ("exact", "exact", "half")),
}  # fmt: skip


class DrawnProblem:
    """The problem of a seed, or of the choices that were made for one, with a schedule of it.

    ``target`` is "problems-" and a kind of target.
    """

    def __init__(self, target: str, of: int | Sequence[int]) -> None:
        kind = target.partition("/")[0].partition("-")[2]
        self.dice = Seeded(of) if isinstance(of, int) else Replayed(of)
        self.machine = of_this_machine(self.dice.pick(MACHINES.get(kind, (kind,))))
        self.problem: Problem | None = None
        self.chosen: tuple[str, Any] | None = None

    def draw(self) -> DrawnProblem:
        """Decide everything."""
        self.problem = problem(self.dice, MOST_WORK[self.machine.kind])
        p, machine = self.problem, self.machine
        able = [a for a in algorithms() if isinstance(a, Scheduled) and not a.can(p, machine)]
        if not able:
            raise AssertionError("the library has no schedule for it")
        found = self.dice.pick(able)
        # The first are what is chosen, and the others what a search tries.
        configs = found.candidates(p, machine)
        last = 0 if self.dice.chance(30) else len(configs) - 1
        config = configs[self.dice.number(0, last)]
        self.chosen = found.name, found.to_values(config)
        self.kernel = found.kernel(p, config, machine)
        return self

    def outcome(self) -> Outcome:
        """What became of it."""
        try:
            self.draw()
        except VerificationError as error:
            return Outcome("doubted", f"{error}")
        except TilewrightError as error:
            return Outcome("refused", f"{type(error).__name__}: {error}")
        except Exception:
            return Outcome("internal", traceback.format_exc())
        assert self.problem is not None
        try:
            errors = [self._error(seed) for seed in (0, 1)]  # sums may cancel in one by chance
        except TilewrightError as error:
            return Outcome("wrong", f"{error}")
        except Exception:
            return Outcome("internal", traceback.format_exc())
        finally:
            self._still_works()
        if min(errors) > allowed(self.problem):
            return Outcome("wrong", f"relative errors {errors[0]:.2g} and {errors[1]:.2g}")
        return Outcome("right", "" if self.chosen is None else self.chosen[0])

    def _error(self, seed: int) -> float:
        """Of the kernel on random inputs."""
        p, kernel = self.problem, self.kernel
        if isinstance(p, Attention):
            return attention.error(p, kernel, seed)
        if isinstance(p, Mlp):
            return mlp.error(p, kernel, seed)
        if isinstance(p, ConvProgram):
            return conv_programs.error(p, kernel, seed)
        assert p is not None
        if p.is_quantized:
            arrays = quantized.inputs(p, seed)
            found, wanted = quantized.result(kernel, p, arrays), quantized.reference(p, arrays)
            return float((found != wanted).sum())
        exact: Any = product if isinstance(p, Gemm) else convolution
        if p.is_float8:
            return error_of_float8(p, kernel, exact, seed)
        return depthwise.run(p, kernel, seed, exact=exact)

    def _still_works(self) -> None:
        """End the process if its kernel has broken the device for those that follow."""
        if self.machine.kind == "cuda":
            from tilewright.runtime.cuda import synchronize

            try:
                synchronize()
            except TilewrightError:
                os._exit(86)

    def __repr__(self) -> str:
        if self.problem is None:
            return "no problem"
        return f"{self.problem!r}\nby {self.chosen} on {str(self.machine)!r}"


def of_this_machine(target: str) -> Target:
    """A target; of CUDA for the GPU that is there."""
    found = Target.parse(target)
    if found.kind != "cuda":
        return found
    from tilewright.runtime.cuda import resolve_arch

    return found.with_arch(resolve_arch(found))


def allowed(p: Problem) -> float:
    """The error norm that a result may have; of integers, that none is wrong."""
    if p.is_quantized:
        return 0
    # One sum after the other of n numbers loses the square root of n of their last digits.
    products = p.flops / 2 / max(1, math.prod(p.result.shape))
    digits = 2**-24 * math.sqrt(products) if p.accumulate == "float32" else 0
    known = max(depthwise.TOLERANCE[p.result.dtype], digits)
    return max(known, _FLOAT8 if p.is_float8 else 0, _PRECISIONS.get(p.precision, 0))


def problem(dice: Dice, most_work: int) -> Problem:
    """One of any operator, with at most about ``most_work`` multiplications."""
    kind = dice.pick(
        ("conv", "conv", "conv", "depthwise", "conv3d", "gemm", "gemm", "attention", "mlp")
    )
    own = {"attention": _attention, "mlp": _joined}
    while True:  # what no operator has, like a gradient of integers, is drawn again
        try:
            p = own[kind](dice) if kind in own else _sums(dice, kind, most_work)
        except ProblemError:
            continue
        if p.flops <= 2 * most_work:
            return p


def _sums(dice: Dice, kind: str, most_work: int) -> Problem:
    dtype = dice.pick([*_TYPES, "float16", "float16", "float32", "float32"])
    whole = dtype in ("int8", "uint8")
    pass_ = "forward" if whole or dtype in FLOAT8 else dice.pick(("forward", "dgrad", "wgrad"))
    common: dict[str, Any] = {
        "dtype": dtype, "pass_": pass_, "precision": dice.pick(_TYPES[dtype]),
        "epilogue": _steps(dice, whole) if pass_ == "forward" else [],
    }  # fmt: skip
    if dtype in FLOAT8:
        common["out_dtype"] = dice.pick(("float16", "float32", "bfloat16"))
    return (
        _gemm(dice, common, most_work) if kind == "gemm" else _conv(dice, kind, common, most_work)
    )


def _steps(dice: Dice, whole: bool) -> list[str]:
    if not whole:
        return dice.some(_STEPS, 12)
    steps = ["bias"] if dice.chance(50) else []
    if dice.chance(25):
        return steps
    steps += ["dequantize", *dice.some(("relu", "hswish", "quantized_residual(0.375,3)"), 25)]
    return steps + dice.pick(([], ["quantize(0.25,5)"], ["quantize(0.1,100)"]))


def _gemm(dice: Dice, common: dict[str, Any], most_work: int) -> Gemm:
    sizes = [dice.pick((*_CHANNELS, 49, 197, 256, 300)) for _ in range(3)]
    batch = dice.pick((1, 1, 1, 2, 5))
    while batch * math.prod(sizes) > most_work:
        k = sizes.index(max(sizes))
        sizes[k] = max(1, sizes[k] // 2)
    m, n, depth = sizes
    return Gemm(
        m=m, n=n, k=depth, batch=batch, transpose_a=dice.chance(50), transpose_b=dice.chance(50),
        **common,
    )  # fmt: skip


def _conv(dice: Dice, kind: str, common: dict[str, Any], most_work: int) -> Problem:
    rank = 3 if kind == "conv3d" else dice.pick((1, 2, 2, 2))
    groups = 1
    if kind == "depthwise" or (kind == "conv3d" and dice.chance(30)):
        groups = channels = dice.pick(_CHANNELS)
        outputs = groups * dice.pick((1, 1, 1, 2, 3))
    else:
        groups = dice.pick((1, 1, 1, 2, 3, 8))
        channels, outputs = (groups * dice.pick(_CHANNELS) for _ in range(2))
    large = kind == "depthwise" and dice.chance(30)
    kernel = [dice.number(1, 13 if large else 4) for _ in range(rank)]
    kernel = kernel[:1] * rank if dice.chance(60) else kernel
    dilation = [dice.pick((1, 1, 1, 1, 2, 3)) for _ in range(rank)]
    windows = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    pads = [dice.number(0, w // 2) for w in windows]
    before, after = pads, pads if dice.chance(70) else [dice.number(0, w // 2) for w in windows]
    image = [
        max(1, w - a - b) + dice.number(0, 30)
        for w, a, b in zip(windows, before, after, strict=True)
    ]
    batch = dice.pick((1, 1, 2, 3, 5, 64))
    work = channels // groups * outputs * math.prod(kernel)
    while batch > 1 and batch * work * math.prod(image) > most_work:
        batch //= 2
    layouts = {1: ("NCW", "NWC"), 2: ("NCHW", "NHWC", "NHWC"), 3: ("NCDHW", "NDHWC")}[rank]
    parse = Conv3d.parse if rank == 3 else Conv.parse
    return parse(
        (batch, channels, *image), (outputs, channels // groups, *kernel),
        None if rank < 3 and groups == channels else groups,
        stride=tuple(dice.pick((1, 1, 1, 2, 2, 3)) for _ in range(rank)),
        padding=(*before, *after), dilation=tuple(dilation), layout=dice.pick(layouts), **common,
    )  # fmt: skip


def _attention(dice: Dice) -> Attention:
    heads = dice.pick((1, 2, 3, 4))
    rows, keys = (dice.pick((1, 5, 16, 33, 49, 64, 70)) for _ in range(2))
    batch = dice.pick((1, 1, 2))
    mask: tuple[int, ...] = ()
    if dice.chance(30):
        mask = dice.pick(((rows, keys), (batch, 1, rows, keys), (1, heads, rows, keys)))
    return Attention(
        batch=batch, heads=heads, kv_heads=dice.pick((0, 0, 1)), rows=rows, keys=keys,
        depth=dice.pick((1, 8, 16, 20, 32, 64)), causal=dice.chance(20), mask=mask,
        mask_dtype="bool" if mask and dice.chance(50) else "",
        layout=dice.pick(("BHSD", "BSHD")), dtype=dice.pick(("float16", "bfloat16", "float32")),
    )  # fmt: skip


def _joined(dice: Dice) -> Problem:
    """Layers that one kernel computes."""
    return _conv_program(dice) if dice.pick((False, True)) else _mlp(dice)


def _conv_program(dice: Dice) -> ConvProgram:
    n, high, wide = (dice.pick((1, 2, 3)), *(dice.pick((7, 8, 13, 16, 19)) for _ in range(2)))
    kernel, stride = dice.pick((1, 2, 3, 5)), dice.pick((1, 1, 2))
    values = {
        "padding": dice.pick((0, kernel // 2, kernel // 2)), "stride": stride,
        "dtype": dice.pick(("float16", "bfloat16", "float16", "float32")),
        "epilogue": dice.pick(("", "bias", "bias+relu", "relu")),
    }  # fmt: skip
    if dice.pick((False, True)):
        c = dice.pick((8, 16, 24, 40, 64, 96, 130))
        return conv_programs.normalised(f"{n}x{c}x{high}x{wide}", kernel, **values)
    c, made = dice.pick((3, 8, 24, 64, 96)), dice.pick((8, 24, 40, 64, 130))
    return conv_programs.pooled(
        f"{n}x{c}x{high}x{wide}", f"{made}x{c}x{kernel}x{kernel}", dice.pick((2, 2, 3, 4)), **values
    )


def _mlp(dice: Dice) -> Mlp:
    m, k, hidden, n = (dice.pick((1, 7, 16, 40, 64, 96, 130, 192)) for _ in range(4))
    inner = [x for x in dice.some(_STEPS, 12) if x != "residual"]
    return Mlp(
        m=m, k=k, hidden=hidden, n=n, inner="+".join(inner), epilogue=dice.some(_STEPS, 12),
        dtype=dice.pick(("float16", "bfloat16", "float32")),
    )  # fmt: skip
