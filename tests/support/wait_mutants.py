"""Mutants of the waits and barriers in a GPU's kernels: is one proved that sim finds wrong?

    python -m tests.support.wait_mutants [--only NAME] [--tiles N]

Of each template, programs of some tiles for small problems are lowered for a Hopper GPU. A mutant
lacks a wait, lets one more group stay under way, has a wait behind the statement that follows, or
lacks the end of a group, a fence or a barrier. Most are refused by the proof. Those that are proved
run on sim, where copies arrive as late as they may, and have to compute the same: they lack what
nothing needs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any

import numpy as np
from tests.correctness.test_cluster_sums import SUMS
from tests.correctness.test_clusters import SHARED
from tests.correctness.test_producers import PRODUCED
from tests.correctness.test_tile_stores import STORED
from tests.support.mutation import Mutant
from tests.support.sketch_mutants import PROBLEMS, Checked, run

from tilewright.ir import Func, Module
from tilewright.ir.errors import TilewrightError
from tilewright.ir.stmt import Instr, Queue, Seq, Stmt, Sync
from tilewright.ir.visit import Rewriter, Steps, statements
from tilewright.lower.pipeline import lower
from tilewright.runtime.sim import SimulationError
from tilewright.target import Target
from tilewright.topi import Attention, Conv, Gemm, Mlp
from tilewright.topi.pieces.attention import AttentionGroupTile, AttentionMmaTile
from tilewright.topi.pieces.box_tiles import BoxGradientTile, BoxProductTile
from tilewright.topi.pieces.mlp import MlpTile
from tilewright.topi.pieces.tap_tiles import TapGradientTile
from tilewright.topi.problem import Problem
from tilewright.topi.template import Template
from tilewright.topi.templates import TEMPLATES
from tilewright.verify import check

_CUDA = Target.parse("cuda -arch=sm_90a")


def _dense(**more: str) -> Conv:
    return Conv.parse((1, 64, 9, 9), (64, 64, 3, 3), 1, padding=1, dtype="float16", **more)


#: Small problems beside those of depthwise convolution.
MORE: tuple[Problem, ...] = (
    _dense(layout="NHWC"),
    _dense(layout="NCHW"),
    _dense(layout="NHWC", pass_="wgrad"),
    _dense(layout="NHWC", pass_="dgrad"),
    Conv.parse((2, 72, 7, 9), (192, 72, 1, 1), 1, dtype="float16", layout="NHWC",
               epilogue="bias+residual+relu"),
    Conv.parse((1, 64, 8, 8), (64, 64, 3, 3), 1, padding=1, dtype="int8", accumulate="int32",
               layout="NHWC", epilogue="bias+dequantize+relu+quantize(1)"),
    Conv.parse((1, 64, 8, 8), (64, 4, 3, 3), 16, padding=1, dtype="float16", layout="NHWC"),
    Gemm(m=150, n=128, k=136, dtype="float16", transpose_b=True),
    Gemm(m=70, n=64, k=200, dtype="float16"),
    Gemm(m=33, n=40, k=512, dtype="float16", transpose_b=True, epilogue="bias"),
    Gemm(m=40, n=40, k=64, dtype="float32", precision="tf32", transpose_b=True),
    Attention(batch=1, heads=1, rows=70, keys=130, depth=64, dtype="float16"),
    Mlp(m=40, k=32, hidden=64, n=32, inner="bias+gelu", norm="1e-6", dtype="float16"),
)  # fmt: skip


_ATTENTION = Attention(
    heads=1, rows=100, keys=130, depth=64, dtype="float16", layout="BSHD", causal=True
)
_TF32 = Conv.parse((40, 64, 4, 2), (128, 64, 1, 1), 1, dtype="float32", precision="tf32",
                   layout="NHWC", pass_="wgrad")  # fmt: skip
_FEW = Conv.parse((1, 64, 7, 7), (64, 64, 3, 3), 1, padding=1, dtype="float16", layout="NHWC")
#: Kernels with tiles that the candidates for small problems do not have: of windows, of clusters,
#: of producers, of blocks of channels, and with loops whose length depends on the block.
NAMED: tuple[tuple[str, Problem, Any], ...] = (
    *SHARED, *SUMS, *STORED, *PRODUCED,
    ("gpu.window_products", _FEW.replace(padding=2), BoxProductTile(104, 1, 1, 64, 3, 1, 4, 1)),
    ("gpu.window_splits", _FEW, BoxProductTile(64, 1, 1, 64, 3, 3, 1)),
    ("gpu.box_gradient", _FEW.replace(pass_="wgrad"), BoxGradientTile(64, 64, 3, 2, producer=1)),
    ("gpu.tap_gradient", Conv.parse((8, 16, 5, 5), (16, 16, 3, 3), 1, padding=1, pass_="wgrad",
     layout="NHWC", dtype="float16"), TapGradientTile(16, 16, 1, 1, 3, 3, splits=4)),
    ("gpu.tap_gradient", Conv.parse((8, 16, 5, 5), (16, 16, 3, 3), 1, padding=1, pass_="wgrad",
     layout="NHWC", dtype="float16"), TapGradientTile(16, 16, 1, 1, 3, 3, producer=1)),
    ("gpu.attention_groups", _ATTENTION, AttentionGroupTile(2, 64, 2)),
    ("gpu.attention_groups", _ATTENTION, AttentionGroupTile(1, 32, 3)),
    ("gpu.attention", _ATTENTION, AttentionMmaTile(2, 64, 3)),
    ("gpu.attention", _ATTENTION.replace(causal=False), AttentionMmaTile(2, 32, 2, 2)),
    ("gpu.mlp", Mlp(m=40, k=32, hidden=96, n=32, inner="bias+gelu", dtype="float16"),
     MlpTile(2, 32, 2)),
    ("gpu.mlp", Mlp(m=40, k=32, hidden=96, n=32, inner="bias+gelu", dtype="float16"),
     MlpTile(1, 48, 3)),
    ("gpu.block_rows", Conv.parse((3, 64, 6, 10), (64, 64, 1, 1), 1, dtype="int8",
     accumulate="int32", layout="NCHW32", constants=("filter",),
     epilogue="bias+dequantize+relu+quantize(1)"), BoxProductTile(16, 1, 16, 64, 2)),
    ("gpu.turned_gradient", _TF32, BoxGradientTile(64, 64, 3, 4, cluster=2)),
    ("gpu.turned_gradient", _TF32, BoxGradientTile(64, 64, 2, x_to=2)),
    ("gpu.copied_gradient", _TF32, BoxGradientTile(64, 64, 3, producer=1)),
    ("gpu.copied_gradient", _TF32, BoxGradientTile(64, 64, 3, 4, producer=1, cluster=2)),
    ("gpu.box_products", Conv.parse((2, 64, 9, 7), (96, 64, 1, 1), 1, dtype="float16",
     layout="NHWC", epilogue="scale_shift+residual+relu"),
     BoxProductTile(64, 1, 1, 96, 3, 1, 2, staged=96, kept=1)),
    ("gpu.held_products", Conv.parse((2, 64, 4, 8), (96, 64, 1, 1), 1, dtype="float32",
     precision="tf32", layout="NHWC", pass_="dgrad"),
     BoxProductTile(64, 1, 1, 64, 3, turned=1, staged=64)),
)  # fmt: skip


def wait_mutants(module: Module) -> Iterator[Mutant]:
    """Every module with one of its waits, or the end of one group, taken out or weakened."""
    for i, func in enumerate(module.funcs):
        for lacks, changed in _mutated(func):
            funcs = (*module.funcs[:i], changed, *module.funcs[i + 1 :])
            yield Mutant(lacks, replace(module, funcs=funcs))


def _mutated(func: Func) -> Iterator[tuple[str, Func]]:
    target = 0
    while True:
        change = _Change(target)
        body = change.stmt(func.body)
        if not change.lacks:
            return
        target += 1
        yield change.lacks, replace(func, body=body)


class _Change(Rewriter):
    """Visits each place once, and changes the ``target``-th."""

    def __init__(self, target: int) -> None:
        self.left, self.lacks = target, ""

    def hit(self, lacks: str) -> bool:
        self.left -= 1
        if self.left == -1:
            self.lacks = lacks
        return self.left == -1

    def steps(self, s: Stmt) -> Steps:
        match s:
            case Queue(queue, "wait", pending):
                if self.hit(f"wait of {queue} for all but {pending}"):
                    return Seq(())
                if self.hit(f"one group of the wait of {queue} for all but {pending}"):
                    return replace(s, pending=pending + 1)
                return s
            case Queue(queue, action):
                return Seq(()) if self.hit(f"{action} of {queue}") else s
            case Sync(scope, frees):
                what = f" that frees {', '.join(b.name for b in frees)}" if frees else ""
                return Seq(()) if self.hit(f"barrier ({scope}){what}") else s
            case Seq(stmts):
                for k, (x, y) in enumerate(pairwise(stmts)):
                    if isinstance(x, Queue) and x.action == "wait" and self.hit(
                        f"wait of {x.queue} for all but {x.pending} before what follows"
                    ):  # fmt: skip
                        return Seq((*stmts[:k], y, x, *stmts[k + 2 :]))
        return (yield from super().steps(s))


def awaiting(template: Template, p: Problem, tiles: int) -> Iterator[Module]:
    """Programs of some tiles that wait for something, no two of them with the same statements."""
    try:
        found = [*islice(template.candidates(p, _CUDA), 400)]
    except TilewrightError:
        return
    seen: set[tuple[object, ...]] = set()
    for tile in found[:: max(1, len(found) // (3 * tiles))]:
        try:
            module = lower(*template.scheduled(p, tile), _CUDA)
        except TilewrightError:
            continue
        kinds = tuple(_kinds(module))
        if kinds and kinds not in seen:
            seen.add(kinds)
            yield module
            if len(seen) == tiles:
                return


def _kinds(module: Module) -> Iterator[object]:
    for func in module.funcs:
        for s in statements(func.body):
            if isinstance(s, Queue):
                yield s.queue, s.action, s.pending
            elif isinstance(s, Instr) and s.instruction.queue:
                yield s.instruction.name


def named(name: str, p: Problem, tile: Any) -> Module:
    """The program of a template with a tile."""
    return lower(*TEMPLATES[name].scheduled(p, tile), _CUDA)


def unproved_errors(module: Module, every: int = 1) -> tuple[int, int, list[str]]:
    """How many mutants are made, of which one of ``every`` is tried, how many of them the proof
    refuses, and what the others lack that sim finds wrong."""
    checked: Checked | None = None
    made = refused = 0
    wrong: list[str] = []
    for mutant in islice(wait_mutants(module), 0, None, every):
        made += 1
        if any(check(func) for func in mutant.module.funcs):
            refused += 1
            continue
        checked = checked or Checked.of(module)
        given, right = checked.arrays[0], checked.right[0]
        try:
            same = all(map(np.array_equal, run(mutant.module, given), right))
        except SimulationError as error:
            wrong.append(f"{mutant.lacks}: {str(error)[:300]}")
        else:
            if not same:
                wrong.append(f"{mutant.lacks}: another result")
    return made, refused, wrong


def problems(template: Template) -> Iterator[Problem]:
    """Those that a template is for."""
    found = [PROBLEMS[template.name]] if template.name in PROBLEMS else []
    for p in (*found, *MORE):
        if (not template.operators or p.operator in template.operators) and not template.why_not(
            p, _CUDA
        ):
            yield p


def programs(part: str, tiles: int) -> Iterator[tuple[str, Problem, Module]]:
    """Those of the templates whose name contains ``part``."""
    for name, p, tile in NAMED:
        if part in name:
            yield name, p, named(name, p, tile)
    for name, template in TEMPLATES.items():
        if name.startswith("gpu.") and part in name:
            for p in problems(template):
                for module in awaiting(template, p, tiles):
                    yield name, p, module


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.wait_mutants")
    parser.add_argument("--only", default="", help="templates whose name contains this")
    parser.add_argument("--tiles", type=int, default=2, help="programs of a problem")
    chosen = parser.parse_args()
    total = holes = 0
    for name, p, module in programs(chosen.only, chosen.tiles):
        start = time.monotonic()
        made, refused, wrong = unproved_errors(module)
        total, holes = total + made, holes + len(wrong)
        print(f"{name}: {p.key[:60]}: {made} mutants, {refused} refused, {len(wrong)} proved "
              f"and wrong ({time.monotonic() - start:.0f} s)", flush=True)  # fmt: skip
        for text in wrong:
            print("   ", text, flush=True)
    print(f"{total} mutants, {holes} proved and wrong")
    return int(holes > 0)


if __name__ == "__main__":
    sys.exit(main())
