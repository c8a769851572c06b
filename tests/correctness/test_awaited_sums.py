"""What products in the background sum up is touched when they have ended: in the machine code too.

A case of a benchmark's was wrong on an H200, though its CUDA C++ waited: ptxas of CUDA 13.0 makes
two roundings to 16 bits one instruction, wherever the first of them stood, before the wait too.
"""

from __future__ import annotations

import dataclasses
import functools
import re

import pytest
from tests.support.sums_under_way import touched_early

import tilewright
from tilewright.codegen.cuda import generate
from tilewright.ir.expr import Var
from tilewright.ir.stmt import Access, Evaluate, If, Instr, Queue, seq
from tilewright.ir.visit import statements
from tilewright.lower.analysis.accesses import collect
from tilewright.lower.async_ import insert_async_waits as passes
from tilewright.lower.async_.insert_async_waits import insert_async_waits
from tilewright.lower.ir_builder import buffer, func, loop, store
from tilewright.lower.pipeline import lower
from tilewright.runtime.nvrtc import compile_cubin
from tilewright.runtime.sass import disassemble
from tilewright.target.instruction import Argument, Axis, decl_instruction
from tilewright.target.queues import QUEUES
from tilewright.topi import Conv
from tilewright.topi.templates import TEMPLATES
from tilewright.verify.background import unawaited

HOPPER = "cuda -arch=sm_90a"

#: Results of odd widths are stored one by one, the sums being rounded one by one: without the
#: branch behind the wait these are wrong. Others, below, were right before.
CASES = [
    (Conv.parse("64x608x18x29", "608x1x17x17", padding=8, pass_="dgrad", dtype="float16"),
     "gpu.toeplitz", (4, 32, 4, 2, 2)),
    (Conv.parse("64x184x63x63", "184x1x9x9", padding=4, pass_="dgrad", dtype="bfloat16"),
     "gpu.toeplitz", (2, 16, 4, 8, 2)),
    (Conv.parse("64x464x9x7", "464x1x19x19", padding=9, pass_="dgrad", dtype="bfloat16"),
     "gpu.toeplitz", (4, 8, 2, 2, 3)),
]  # fmt: skip
RIGHT = [
    (Conv.parse("64x384x32x32", "384x1x31x31", padding=15, dtype="float16"),
     "gpu.toeplitz_staged", (4, 32, 2, 4, 0, 1, 1, 0)),
    (Conv.parse("64x256x28x28", "256x1x29x29", padding=14, pass_="wgrad", dtype="float16"),
     "gpu.row_products", None),
]  # fmt: skip


def assembly(p: Conv, template: str, values: tuple[int, ...] | None) -> str:
    chosen = TEMPLATES[template]
    config = chosen.candidates(p, tilewright.Target.parse(HOPPER))[0]
    if values is not None:
        config = chosen.parse(dict(zip(vars(config), values, strict=True)))
    module = lower(*chosen.scheduled(p, config), HOPPER)
    # Past the cache: tests change what is generated.
    return disassemble(compile_cubin(generate(module, "sm_90a").text, "sm_90a").data)


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize(("p", "template", "values"), CASES + RIGHT, ids=lambda x: str(x))
def test_sums_are_touched_when_their_products_have_ended(p, template, values):
    text = assembly(p, template, values)
    assert "HGMMA" in text
    assert not touched_early(text)


@pytest.mark.needs_nvrtc
def test_a_wait_that_is_taken_away_is_seen():
    text = assembly(*CASES[0])
    fewer = re.sub(r"(DEPBAR\.LE gsb0, )0x0", r"\g<1>0x7", text)
    assert fewer != text
    assert touched_early(fewer)


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case[0]))
def test_without_the_branch_behind_the_wait_they_are_touched_early(case, monkeypatch):
    """Where a newer ptxas is right here, the branch may go."""
    wgmma = dataclasses.replace(QUEUES["wgmma"], wait_all="")
    monkeypatch.setitem(QUEUES, "wgmma", wgmma)
    assert touched_early(assembly(*case))


def group(first: int, *, left: str = "R120") -> str:
    return f"HGMMA.64x8x16.F32 R{first}, {left}, gdesc[UR4], R{first}, gsb0"


TWO = [group(24), group(32)]
READ = "MOV R2, R25"


@pytest.mark.parametrize(
    ("lines", "early"),
    [
        ([*TWO, "WARPGROUP.DEPBAR.LE gsb0, 0x0", "MOV R2, R35"], []),
        ([*TWO, "WARPGROUP.DEPBAR.LE gsb0, 0x1", READ], []),
        ([*TWO, "WARPGROUP.DEPBAR.LE gsb0, 0x1", "MOV R2, R32"], ["MOV R2, R32"]),
        ([*TWO, "@P0 WARPGROUP.DEPBAR.LE gsb0, 0x0", READ], [READ]),
        ([*TWO, "MOV R2, R28"], []),  # of neither
        ([*TWO, "MOV R24, RZ"], ["MOV R24, RZ"]),
        ([*TWO, "@P0 BRA `(.L_x_0)", "WARPGROUP.DEPBAR.LE gsb0, 0x0", ".L_x_0:", READ], [READ]),
        ([*TWO, "BRA.DIV UR4, `(.L_x_0)", READ, ".L_x_0:", "EXIT"], [READ]),
        ([*TWO, "BRA P1, `(.L_x_0)", READ, ".L_x_0:", "EXIT"], [READ]),
        ([*TWO, "BRA `(.L_x_0)", READ, ".L_x_0:", "EXIT"], []),
        ([*TWO, "@P0 EXIT", READ], [READ]),
        ([*TWO, group(40, left="R24")], [group(40, left="R24")]),
        ([*(group(24 + 4 * k) for k in range(9)), READ], [READ]),
    ],
)
def test_what_is_under_way(lines, early):
    text = [x if x.startswith(".L") else f"        /*0020*/      {x} ;" for x in lines]
    assert touched_early("\n".join(text)) == early


@pytest.mark.parametrize("line", ["BRX R4 -0x10", "CALL.REL.NOINC 0x10", "HGMMA.SP.64x8x32 R24"])
def test_what_is_not_understood_is_said(line):
    with pytest.raises(ValueError, match=re.escape(line)):
        touched_early(f"        /*0020*/      {line} ;")


# -- what lowering makes of it -------------------------------------------------------------------


@functools.cache
def products():
    """Two groups under way, with the operands and the sums of each."""
    i = Var.make("i")
    arguments = (Argument("C", ("i",), "float32"), Argument("A", ("i",), "float32"))
    double = decl_instruction(
        "double_awaited", (Axis("i", 4),), arguments, lambda c, a: a * 2.0, queue="wgmma"
    )
    operands = [buffer(name, 4, scope="local") for name in ("A", "B")]
    sums = [buffer(name, 4, scope="local") for name in ("C", "D")]
    issued = [
        Instr(double, (i,), (Access(c, (i,)), Access(a, (i,))), store(c[i], a[i]))
        for c, a in zip(sums, operands, strict=True)
    ]
    return issued, operands, sums


def waits(made):
    found = [s for s in statements(made.body) if isinstance(s, Queue)]
    return [s.pending for s in found if s.action == "wait"]


def test_threads_wait_for_all_products_before_they_read_sums_of_some():
    issued, _, (first, _) = products()
    out = buffer("out", 4)
    assert waits(insert_async_waits(func(*issued, store(out[0], first[0])))) == [0]


def test_they_wait_for_those_alone_whose_operands_they_fill():
    issued, (first, _), _ = products()
    assert waits(insert_async_waits(func(*issued, store(first[0], 1.0)))) == [1, 0]


# -- registers that products read ----------------------------------------------------------------


def a_branch_of_more(*, waits: bool):
    """Products under way, and a branch that issues more."""
    (one, another), _, _ = products()
    block = Var.make("block")
    branch = If(block < 1, seq(another, Evaluate(block)))
    with pytest.MonkeyPatch.context() as patch:
        if not waits:
            patch.setattr(passes, "level", lambda *branches: branches)
        return insert_async_waits(func(one, loop(block, 2, branch)))


def test_both_branches_wait_for_products_that_read_registers():
    made = a_branch_of_more(waits=True)
    assert waits(made) == [0, 0, 0]  # in each, and where none ran
    assert not list(unawaited(collect(made)))


def test_where_they_are_not_the_proof_says_so():
    found = list(map(str, unawaited(collect(a_branch_of_more(waits=False)))))
    assert any("reads registers of A in the background where two branches" in x for x in found)


#: What is loaded for products in a branch behind a loop of two products.
BRANCH = """#define WAIT(n) asm volatile("wgmma.wait_group.sync.aligned " #n ";" ::: "memory");
#define MULTIPLY(at) { \\
  const unsigned* a = shared + (at) + threadIdx.x * 4; \\
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); \\
  asm volatile("wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 " \\
    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, 1, 1, 1;" \\
    : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) \\
    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)); \\
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
extern "C" __global__ void k(float* out, unsigned long long b, int branch) {
  extern __shared__ unsigned shared[];
  float c[4] = {};
  #pragma unroll 1
  for (int t = 0; t < 16; ++t) {
    MULTIPLY(t * 1024)
    WAIT(1)
    MULTIPLY(t * 1024 + 512)
    WAIT(1)
  }
  if (branch) {
    MULTIPLY(16384)
    LEVEL(1)
  } else {
    LEVEL(0)
  }
  WAIT(0)
  for (int i = 0; i < 4; ++i) out[i * 128 + threadIdx.x] = c[i];
}
"""


@pytest.mark.needs_nvrtc
@pytest.mark.parametrize("level", ["", "WAIT(n)"], ids=["plain", "level"])
def test_ptxas_loads_into_registers_that_are_read_unless_branches_are_level(level):
    """Where a newer ptxas is right without, lowering and the proof may do without."""
    text = f"#define LEVEL(n) {level}\n{BRANCH}"
    early = touched_early(disassemble(compile_cubin(text, "sm_90a").data))
    assert bool(early) != bool(level)
    assert all(x.startswith("LDS") for x in early)
